"""The recorders of the eventsourcing library, and its transcoder.

SQLite: WAL, where the library leaves `synchronous` at FULL. PostgreSQL: as many connections as
callers, 32 at most. Events carry what ours carry; a recorder numbers nothing, so each caller
counts its versions, as an aggregate does.
"""

import importlib
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from bench.callers import Step
from bench.scenario import Work
from bench.tally import Tally

_SPACE: Final = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_KIND: Final = "bench:StepCompleted"
_PAGE: Final = 1000
_POOL_SIZE: Final = 32


class Program:
    """eventsourcing in its own environment."""

    colour = "blocking"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._work: Final = work
        self._module: Final[Any] = importlib.import_module("eventsourcing.persistence")
        self._encode = self._module.JSONTranscoder().encode
        self._decode = self._module.JSONTranscoder().decode
        env = importlib.import_module("eventsourcing.utils").Environment
        self._factory: Final[Any] = self._module.InfrastructureFactory.construct(
            env("Bench", _settings(where, work))
        )

    def open(self) -> None:
        """Insert what is there before the clock starts."""
        self._recorder: Any = self._factory.application_recorder()
        for begin in range(0, self._work.events, _PAGE):
            numbers = range(begin, min(begin + _PAGE, self._work.events))
            run = uuid5(_SPACE, self._work.cells(0)[0])
            self._recorder.insert_events([self._event(run, n + 1, -n) for n in numbers])

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        work, recorder, decode = self._work, self._recorder, self._decode
        runs = [uuid5(_SPACE, name) for name in work.cells(number)]
        versions = dict.fromkeys(runs, 0)

        def insert(run: UUID, numbers: range) -> object:
            first = versions[run] + 1
            new = [self._event(run, version, n) for version, n in enumerate(numbers, first)]
            recorder.insert_events(new)
            versions[run] += len(new)
            return None

        def append(n: int) -> object:
            return insert(runs[n % len(runs)], range(n, n + 1))

        def append_ten(n: int) -> object:
            return insert(runs[n % len(runs)], range(10 * n, 10 * n + 10))

        def replay(_: int) -> object:
            found = [(one, decode(one.state)) for one in recorder.select_events(runs[0])]
            assert len(found) == work.events
            return found

        def feed(_: int) -> object:
            found: list[object] = []
            while len(found) < work.events:
                page = recorder.select_notifications(len(found) + 1, _PAGE)
                found += [(one, decode(one.state)) for one in page]
            return found

        return {"append": append, "append_ten": append_ten, "replay": replay, "feed": feed}[
            work.operation
        ]

    def verify(self, done: int) -> None:
        """Every event has a notification."""
        written = {"append": done, "append_ten": 10 * done}.get(self._work.operation, 0)
        wanted = self._work.events + written
        found = self._recorder.max_notification_id() or 0
        assert found == wanted, f"{found} events arrived, {wanted} were inserted"

    def close(self) -> None:
        """Close the connections."""
        self._factory.close()

    def _event(self, run: UUID, version: int, number: int) -> object:
        state = self._encode(self._work.content(number))
        return self._module.StoredEvent(run, version, _KIND, state)


def _settings(where: str, work: Work) -> dict[str, str]:
    if "://" not in where:
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": where}
    url = urlsplit(where)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": url.path.lstrip("/"),
        "POSTGRES_HOST": url.hostname or "",
        "POSTGRES_PORT": str(url.port),
        "POSTGRES_USER": url.username or "",
        "POSTGRES_PASSWORD": url.password or "none",
        "POSTGRES_POOL_SIZE": str(min(work.callers, _POOL_SIZE)),
        "POSTGRES_MAX_OVERFLOW": "0",
        "POSTGRES_MAX_WAITING": "0",
    }

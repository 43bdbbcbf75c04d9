"""Raw apsw: a log in one table, one connection, one prepared statement per append in autocommit.

WAL with FULL. No idempotency key, no event id: what nobody can do with less.
"""

from typing import Final

import apsw
import msgspec

from bench.callers import Step
from bench.scenario import Work
from bench.tally import Tally

_SCHEMA: Final = """
CREATE TABLE log (id INTEGER PRIMARY KEY, run TEXT, seq INTEGER, kind TEXT, data TEXT);
CREATE UNIQUE INDEX log_by_seq ON log (run, seq)
"""
_APPEND: Final = """
INSERT INTO log (run, seq, kind, data)
VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM log WHERE run = ?1), 'StepCompleted', ?2)
RETURNING seq
"""
_REPLAY: Final = "SELECT seq, kind, data FROM log WHERE run = ? ORDER BY seq"
_FEED: Final = "SELECT id, run, seq, kind, data FROM log WHERE id > ? ORDER BY id LIMIT 1000"
_DECODER: Final = msgspec.json.Decoder()


class Program:
    """The ceiling for SQLite: what a hand-written program reaches."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._db: Final = apsw.Connection(where, vfs=options.get("vfs"))

    def open(self) -> None:
        """Make the table and what is in it before the clock starts."""
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        with self._db:
            self._db.execute(_SCHEMA)
            for number in range(self._work.events):
                self._append(self._work.cells(0)[0], -number)

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names, work, db = self._work.cells(number), self._work, self._db

        def append(n: int) -> object:
            return self._append(names[n % len(names)], n)

        def append_ten(n: int) -> object:
            with db:
                for i in range(10):
                    self._append(names[n % len(names)], 10 * n + i)
            return None

        def replay(_: int) -> object:
            rows = db.execute(_REPLAY, (names[0],))
            found = [(seq, kind, _DECODER.decode(str(data))) for seq, kind, data in rows]
            assert len(found) == work.events
            return found

        def feed(_: int) -> object:
            found: list[object] = []
            while len(found) < work.events:
                rows = db.execute(_FEED, (len(found),))
                found += [(*row, _DECODER.decode(str(data))) for *row, data in rows]
            return found

        return {"append": append, "append_ten": append_ten, "replay": replay, "feed": feed}[
            work.operation
        ]

    def verify(self, done: int) -> None:
        """Every event is a row."""
        written = {"append": done, "append_ten": 10 * done}.get(self._work.operation, 0)
        wanted = self._work.events + written
        found = self._db.execute("SELECT count(*) FROM log").get
        assert found == wanted, f"{found} events arrived, {wanted} were appended"

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _append(self, run: str, number: int) -> object:
        data = msgspec.json.encode(self._work.content(number)).decode()
        return self._db.execute(_APPEND, (run, data)).fetchall()

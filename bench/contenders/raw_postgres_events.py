"""Raw psycopg, blocking: a log in one table, one connection, prepared statements in autocommit.

No idempotency key, no event id, and a feed that would miss what commits late: what nobody can
do with less.
"""

from typing import Any, Final

import msgspec
import psycopg

from bench.callers import Step
from bench.scenario import Work
from bench.tally import Tally

_SCHEMA: Final = b"""
CREATE TABLE log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run text, seq bigint, kind text, data text,
    UNIQUE (run, seq)
)
"""
APPEND: Final = b"""
INSERT INTO log (run, seq, kind, data)
SELECT %(run)s, coalesce(max(seq), 0) + 1, 'StepCompleted', %(data)s FROM log WHERE run = %(run)s
RETURNING seq
"""
_REPLAY: Final = b"SELECT seq, kind, data FROM log WHERE run = %s ORDER BY seq"
_FEED: Final = b"SELECT id, run, seq, kind, data FROM log WHERE id > %s ORDER BY id LIMIT 1000"
_DECODER: Final = msgspec.json.Decoder()


class Program:
    """The ceiling for one statement per append on PostgreSQL."""

    colour = "blocking"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._where: Final = where
        self._work: Final = work

    def open(self) -> None:
        """Make the table and what is in it before the clock starts."""
        prepare_log(self._where, self._work)
        self._connection = psycopg.connect(self._where, autocommit=True)

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names, work, connection = self._work.cells(number), self._work, self._connection
        cursor = connection.cursor()

        def append(n: int) -> object:
            new = bindings(work, names[n % len(names)], n)
            return cursor.execute(APPEND, new, prepare=True).fetchone()

        def append_ten(n: int) -> object:
            run = names[n % len(names)]
            with connection.transaction():
                cursor.executemany(APPEND, [bindings(work, run, 10 * n + i) for i in range(10)])
            return None

        def replay(_: int) -> object:
            rows = cursor.execute(_REPLAY, (names[0],), prepare=True).fetchall()
            found = [(seq, kind, _DECODER.decode(data)) for seq, kind, data in rows]
            assert len(found) == work.events
            return found

        def feed(_: int) -> object:
            found: list[Any] = []
            while len(found) < work.events:
                last = found[-1][0] if found else 0
                rows = cursor.execute(_FEED, (last,), prepare=True).fetchall()
                found += [(*row, _DECODER.decode(data)) for *row, data in rows]
            return found

        return {"append": append, "append_ten": append_ten, "replay": replay, "feed": feed}[
            work.operation
        ]

    def verify(self, done: int) -> None:
        """Every event is a row."""
        verify_log(self._where, self._work, done)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def bindings(work: Work, run: str, number: int) -> dict[str, str]:
    """What the append of that number binds."""
    return {"run": run, "data": msgspec.json.encode(work.content(number)).decode()}


def prepare_log(where: str, work: Work) -> None:
    """Make the table and what is in it before the clock starts."""
    with psycopg.connect(where) as connection, connection.cursor() as cursor:
        cursor.execute(_SCHEMA)
        run = work.cells(0)[0]
        if work.events:
            cursor.executemany(APPEND, [bindings(work, run, -n) for n in range(work.events)])


def verify_log(where: str, work: Work, done: int) -> None:
    """Raise unless the table has exactly the events that were appended."""
    written = {"append": done, "append_ten": 10 * done}.get(work.operation, 0)
    with psycopg.connect(where) as connection:
        row = connection.execute("SELECT count(*) FROM log").fetchone()
    assert row is not None
    wanted = work.events + written
    assert row[0] == wanted, f"{row[0]} events arrived, {wanted} were appended"

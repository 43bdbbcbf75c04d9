"""Raw psycopg, blocking: one table, a connection per caller, prepared statements in autocommit."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import psycopg

from bench.callers import Step
from bench.scenario import Work
from bench.tally import Tally

SCHEMA: Final = b"""
CREATE TABLE cells (key text PRIMARY KEY, value text NOT NULL, version bigint NOT NULL)
WITH (fillfactor = 70)
"""
UPSERT: Final = b"""
INSERT INTO cells (key, value, version) VALUES (%s, %s, 1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = cells.version + 1
RETURNING version
"""
CAS: Final = b"""
UPDATE cells SET value = %s, version = version + 1
WHERE key = %s AND version = %s
RETURNING version
"""
GET: Final = b"SELECT value FROM cells WHERE key = %s"
_VERSIONS: Final = b"SELECT sum(version)::bigint, count(*) FROM cells"


class Program:
    """The ceiling for one statement per operation on PostgreSQL."""

    colour = "blocking"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._where: Final = where
        self._work: Final = work
        self._connections: Final[list[psycopg.Connection[tuple[Any, ...]]]] = []

    def open(self) -> None:
        """Make the table and its rows."""
        prepare_table(self._where, self._work)

    def caller(self, number: int) -> Step:
        """The caller's operation, on a connection of its own."""
        connection = psycopg.connect(self._where, autocommit=True)
        self._connections.append(connection)
        names = self._work.cells(number)
        execute = connection.cursor().execute
        operation = self._work.operation
        content = self._work.content
        versions = dict.fromkeys(names, 1)

        def set_(n: int) -> object:
            bindings = (names[n % len(names)], encode(content(n)))
            return execute(UPSERT, bindings, prepare=True).fetchone()

        def cas(n: int) -> object:
            name = names[n % len(names)]
            row = execute(CAS, (encode(content(n)), name, versions[name]), prepare=True).fetchone()
            assert row is not None
            versions[name] = row[0]
            return row

        def get(n: int) -> object:
            row = execute(GET, (names[n % len(names)],), prepare=True).fetchone()
            assert row is not None
            return msgspec.json.decode(row[0])

        return {"set": set_, "put": set_, "cas": cas, "get": get}[operation]

    def verify(self, done: int) -> None:
        """Every write is one version."""
        verify_table(self._where, self._work, done)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()


def encode(content: Mapping[str, object]) -> str:
    """The value as JSON text."""
    return msgspec.json.encode(content).decode()


def prepare_table(where: str, work: Work) -> None:
    """Make the table, with one row per cell."""
    with psycopg.connect(where) as connection, connection.cursor() as cursor:
        cursor.execute(SCHEMA)
        cursor.executemany(UPSERT, [(name, encode(work.content(0))) for name in work.all_cells()])


def verify_table(where: str, work: Work, done: int) -> None:
    """Raise unless the table's versions tell of exactly `done` writes."""
    if not work.writes:
        return
    with psycopg.connect(where) as connection:
        row = connection.execute(_VERSIONS).fetchone()
        assert row is not None
        total, rows = row
        assert total == rows + done, f"{total - rows} writes arrived, {done} were made"

"""Raw apsw: one table, one connection, one prepared statement per operation in autocommit.

WAL with FULL, SQLite's own checkpoints. Many threads share the connection under a lock,
which is the fastest that SQLite's single writer allows without batches.
"""

import threading
from collections.abc import Mapping
from typing import Final

import apsw
import msgspec

from bench.callers import Step
from bench.scenario import Work
from bench.tally import Tally

_SCHEMA: Final = """
CREATE TABLE cells (key TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL)
WITHOUT ROWID
"""
_UPSERT: Final = """
INSERT INTO cells (key, value, version) VALUES (?, ?, 1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = version + 1
RETURNING version
"""
_CAS: Final = """
UPDATE cells SET value = ?, version = version + 1
WHERE key = ? AND version = ?
RETURNING version
"""
_GET: Final = "SELECT value FROM cells WHERE key = ?"


class Program:
    """The ceiling for SQLite: what a hand-written program reaches."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._db: Final = apsw.Connection(where, vfs=options.get("vfs"))
        self._lock: Final = threading.Lock()

    def open(self) -> None:
        """Make the table and its rows."""
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        with self._db:
            self._db.execute(_SCHEMA)
            for name in self._work.all_cells():
                self._db.execute(_UPSERT, (name, _encode(self._work.content(0)))).fetchall()

    def caller(self, number: int) -> Step:
        """The caller's operation, under the lock where several callers share the connection."""
        names = self._work.cells(number)
        steps = {"set": self._set, "put": self._set, "cas": self._cas, "get": self._get}
        step = steps[self._work.operation](names)
        if self._work.callers == 1:
            return step

        def locked(n: int) -> object:
            with self._lock:
                return step(n)

        return locked

    def verify(self, done: int) -> None:
        """Every write is one version."""
        if self._work.writes:
            total, rows = self._db.execute("SELECT sum(version), count(*) FROM cells").get
            assert total == rows + done, f"{total - rows} writes arrived, {done} were made"

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _set(self, names: list[str]) -> Step:
        execute = self._db.cursor().execute
        content = self._work.content

        def step(n: int) -> object:
            name = names[n % len(names)]
            return execute(_UPSERT, (name, _encode(content(n)))).fetchall()[0][0]

        return step

    def _cas(self, names: list[str]) -> Step:
        execute = self._db.cursor().execute
        content = self._work.content
        versions = dict.fromkeys(names, 1)

        def step(n: int) -> object:
            name = names[n % len(names)]
            bindings = (_encode(content(n)), name, versions[name])
            version = execute(_CAS, bindings).fetchall()[0][0]
            assert isinstance(version, int)
            versions[name] = version
            return version

        return step

    def _get(self, names: list[str]) -> Step:
        execute = self._db.cursor().execute

        def step(n: int) -> object:
            text = execute(_GET, (names[n % len(names)],)).fetchall()[0][0]
            assert isinstance(text, str)
            return msgspec.json.decode(text)

        return step


def _encode(content: Mapping[str, object]) -> str:
    return msgspec.json.encode(content).decode()

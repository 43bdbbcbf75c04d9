"""aiosqlite: the usual way to SQLite from asyncio, a thread per connection.

At its best: WAL with FULL, one statement per write in autocommit, which is one hop to the
thread and back.
"""

import importlib
import json
from typing import Any, Final

from bench.callers import AsyncStep
from bench.scenario import Work, value
from bench.tally import Tally

_SCHEMA: Final = """
CREATE TABLE cells (key TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL)
WITHOUT ROWID
"""
_UPSERT: Final = """
INSERT INTO cells (key, value, version) VALUES (?, ?, 1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = version + 1
"""


class Program:
    """aiosqlite in its own environment, setting cells."""

    colour = "async"

    def __init__(self, where: str, work: Work, _options: object, tally: Tally | None) -> None:
        assert work.operation == "set"
        self._where: Final = where
        self._work: Final = work
        self._tally: Final = tally
        self._db: Any = None

    async def open(self) -> None:
        """Make the table and its rows."""
        aiosqlite = importlib.import_module("aiosqlite")
        self._db = await aiosqlite.connect(self._where, isolation_level=None)
        await self._db.execute("PRAGMA journal_mode = WAL")
        await self._db.execute("PRAGMA synchronous = FULL")
        await self._db.execute(_SCHEMA)
        for name in self._work.all_cells():
            await self._db.execute(_UPSERT, (name, json.dumps(value(0))))
        if self._tally is not None:
            await self._db.set_trace_callback(self._traced)
            self._tally.hooked = True

    def caller(self, number: int) -> AsyncStep:
        """Set the caller's cells in turn."""
        names = self._work.cells(number)

        async def step(n: int) -> object:
            return await self._db.execute(_UPSERT, (names[n % len(names)], json.dumps(value(n))))

        return step

    async def verify(self, done: int) -> None:
        """Every write is one version."""
        cursor = await self._db.execute("SELECT sum(version), count(*) FROM cells")
        total, rows = await cursor.fetchone()
        assert total == rows + done, f"{total - rows} writes arrived, {done} were made"

    async def close(self) -> None:
        """Close the connection and its thread."""
        await self._db.close()

    def _traced(self, _statement: str) -> None:
        assert self._tally is not None
        self._tally.statement()
        # In autocommit each statement of the timed stretch is a transaction.
        self._tally.transaction()

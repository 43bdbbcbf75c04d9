"""Raw psycopg under asyncio: one append per statement, many callers share 32 connections."""

from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool

from bench.callers import AsyncStep
from bench.contenders.raw_postgres_events import APPEND, bindings, prepare_log, verify_log
from bench.scenario import Work
from bench.tally import Tally

_POOL_SIZE: Final = 32


class Program:
    """What an asyncio program with a pool and one statement per append reaches."""

    colour = "async"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._where: Final = where
        self._work: Final = work
        self._pool: Final[AsyncConnectionPool[psycopg.AsyncConnection[tuple[Any, ...]]]] = (
            AsyncConnectionPool(
                where,
                min_size=_POOL_SIZE,
                max_size=_POOL_SIZE,
                kwargs={"autocommit": True},
                open=False,
            )
        )

    async def open(self) -> None:
        """Make the table and connect."""
        prepare_log(self._where, self._work)
        await self._pool.open(wait=True)

    def caller(self, number: int) -> AsyncStep:
        """The caller's append, on a connection from the pool."""
        names = self._work.cells(number)

        async def append(n: int) -> object:
            new = bindings(self._work, names[n % len(names)], n)
            async with self._pool.connection() as connection:
                return await (await connection.execute(APPEND, new, prepare=True)).fetchone()

        return append

    async def verify(self, done: int) -> None:
        """Every event is a row."""
        verify_log(self._where, self._work, done)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

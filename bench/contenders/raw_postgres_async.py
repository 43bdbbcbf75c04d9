"""Raw psycopg under asyncio: as the blocking one; many callers share a pool of 32 connections."""

from typing import Any, Final

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from bench.callers import AsyncStep
from bench.contenders.raw_postgres import CAS, GET, UPSERT, encode, prepare_table, verify_table
from bench.scenario import Work
from bench.tally import Tally

_POOL_SIZE: Final = 32

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class Program:
    """What an asyncio program with a pool and one statement per operation reaches."""

    colour = "async"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._where: Final = where
        self._work: Final = work
        self._alone: Connection | None = None
        self._pool: AsyncConnectionPool[Connection] | None = None

    async def open(self) -> None:
        """Make the table and connect."""
        prepare_table(self._where, self._work)
        if self._work.callers == 1:
            self._alone = await psycopg.AsyncConnection.connect(self._where, autocommit=True)
            return
        self._pool = AsyncConnectionPool(
            self._where,
            min_size=_POOL_SIZE,
            max_size=_POOL_SIZE,
            kwargs={"autocommit": True},
            open=False,
        )
        await self._pool.open(wait=True)

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation, on a connection from the pool."""
        names = self._work.cells(number)
        content = self._work.content
        versions = dict.fromkeys(names, 1)

        async def set_(n: int) -> object:
            return await self._fetch(UPSERT, (names[n % len(names)], encode(content(n))))

        async def cas(n: int) -> object:
            name = names[n % len(names)]
            row = await self._fetch(CAS, (encode(content(n)), name, versions[name]))
            versions[name] = row[0]
            return row

        async def get(n: int) -> object:
            return msgspec.json.decode((await self._fetch(GET, (names[n % len(names)],)))[0])

        return {"set": set_, "put": set_, "cas": cas, "get": get}[self._work.operation]

    async def verify(self, done: int) -> None:
        """Every write is one version."""
        verify_table(self._where, self._work, done)

    async def close(self) -> None:
        """Close every connection."""
        if self._alone is not None:
            await self._alone.close()
        if self._pool is not None:
            await self._pool.close()

    async def _fetch(self, query: bytes, bindings: tuple[object, ...]) -> tuple[Any, ...]:
        if self._alone is not None:
            return await _one(self._alone, query, bindings)
        assert self._pool is not None
        async with self._pool.connection() as connection:
            return await _one(connection, query, bindings)


async def _one(
    connection: Connection, query: bytes, bindings: tuple[object, ...]
) -> tuple[Any, ...]:
    row = await (await connection.execute(query, bindings, prepare=True)).fetchone()
    assert row is not None
    return row

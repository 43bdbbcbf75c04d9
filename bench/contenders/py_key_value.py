"""py-key-value on its stores for disk, PostgreSQL and Redis; a record is one JSON value.

Its disk store is diskcache as that comes, with `synchronous=NORMAL`: a write is not synced.
`synchronous=full` hands it one that is. On PostgreSQL it has a pool of 32 connections.
"""

import importlib
from typing import Any, Final

from bench.callers import AsyncStep
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written

_FULL: Final = 2
_POOL_SIZE: Final = 32


class Program:
    """py-key-value in its own environment."""

    colour = "async"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._where: Final = where
        self._work: Final = work
        self._synced: Final = options.get("synchronous") == "full"
        self._written: Final = Written(work)
        self._store: Any = None
        self._pool: Any = None

    async def open(self) -> None:
        """Make the records."""
        self._store = await self._open()
        for name in self._written.last:
            await self._store.put(name, record(0))

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation."""
        names = self._work.cells(number)
        store, last = self._store, self._written.last

        async def put(n: int) -> object:
            name = names[n % len(names)]
            await store.put(name, record(n))
            last[name] = n
            return None

        async def get(n: int) -> object:
            return await store.get(names[n % len(names)])

        return {"put": put, "get": get}[self._work.operation]

    async def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            self._written.check(name, await self._store.get(name))

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
        if self._pool is not None:
            await self._pool.close()

    async def _open(self) -> Any:  # noqa: ANN401 - a class of another environment
        scheme = self._where.partition("://")[0]
        if scheme == "redis":
            return _stores("redis").RedisStore(url=self._where)
        if scheme == "postgresql":
            asyncpg = importlib.import_module("asyncpg")
            self._pool = await asyncpg.create_pool(
                self._where, min_size=min(self._work.callers, _POOL_SIZE), max_size=_POOL_SIZE
            )
            return _stores("postgresql").PostgreSQLStore(pool=self._pool)
        if not self._synced:
            return _stores("disk").DiskStore(directory=self._where)
        cache = importlib.import_module("diskcache").Cache
        synced = cache(self._where, eviction_policy="none", sqlite_synchronous=_FULL)
        synced.set("one", 1)  # the store takes an empty cache for none at all
        return _stores("disk").DiskStore(disk_cache=synced)


def _stores(name: str) -> Any:  # noqa: ANN401 - a module of another environment
    return importlib.import_module(f"key_value.aio.stores.{name}")

"""redis-py under asyncio, a connection per busy caller: a record is a hash, a put one HSET.

That is less than a put of ours: fields that were there before stay, and nothing is indexed or told.
"""

from typing import Any, Final

import redis.asyncio

from bench.callers import AsyncStep
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written


class Program:
    """The usual way to Redis."""

    colour = "async"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._work: Final = work
        self._written: Final = Written(work)
        self._redis: Final[Any] = redis.asyncio.Redis.from_url(where)

    async def open(self) -> None:
        """Make the records."""
        for name in self._written.last:
            await self._redis.hset(name, mapping=record(0))

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation."""
        names = self._work.cells(number)
        client, last = self._redis, self._written.last

        async def put(n: int) -> object:
            name = names[n % len(names)]
            await client.hset(name, mapping=record(n))
            last[name] = n
            return None

        async def set_field(n: int) -> object:
            name = names[n % len(names)]
            await client.hset(name, "step", n)
            last[name] = n
            return None

        async def get(n: int) -> object:
            return await client.hgetall(names[n % len(names)])

        return {"put": put, "set_field": set_field, "get": get}[self._work.operation]

    async def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            found = await self._redis.hgetall(name)
            self._written.check(name, {field.decode(): value for field, value in found.items()})

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

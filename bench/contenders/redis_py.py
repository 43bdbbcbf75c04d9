"""redis-py, blocking: a record is a hash, a put is one HSET.

That is less than a put of ours: fields that were there before stay, and nothing is indexed or told.
"""

from typing import Any, Final

import redis

from bench.callers import Step
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written


class Program:
    """The usual way to Redis."""

    colour = "blocking"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._work: Final = work
        self._written: Final = Written(work)
        self._redis: Final[Any] = redis.Redis.from_url(where)

    def open(self) -> None:
        """Make the records."""
        for name in self._written.last:
            self._redis.hset(name, mapping=record(0))

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names = self._work.cells(number)
        client, last = self._redis, self._written.last

        def put(n: int) -> object:
            name = names[n % len(names)]
            client.hset(name, mapping=record(n))
            last[name] = n
            return None

        def set_field(n: int) -> object:
            name = names[n % len(names)]
            client.hset(name, "step", n)
            last[name] = n
            return None

        def get(n: int) -> object:
            return client.hgetall(names[n % len(names)])

        return {"put": put, "set_field": set_field, "get": get}[self._work.operation]

    def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            found = self._redis.hgetall(name)
            self._written.check(name, {field.decode(): value for field, value in found.items()})

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

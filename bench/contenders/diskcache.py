"""diskcache with `synchronous=FULL`: each write is synced before it returns.

At its best otherwise: no eviction. A record is a pickled dict; changing one field of it is a
read and a write in a transaction.
"""

import importlib
from typing import Any, Final

from bench.callers import Step
from bench.scenario import Work, record
from bench.tally import Tally
from bench.written import Written

_FULL: Final = 2


class Program:
    """diskcache in its own environment, at the durability that we compare at."""

    colour = "blocking"

    def __init__(self, where: str, work: Work, _options: object, _tally: Tally | None) -> None:
        self._where: Final = where
        self._work: Final = work
        self._written: Final = Written(work)
        self._cache: Any = None

    def open(self) -> None:
        """Make the records."""
        cache = importlib.import_module("diskcache").Cache
        self._cache = cache(self._where, eviction_policy="none", sqlite_synchronous=_FULL)
        for name in self._written.last:
            self._cache.set(name, record(0))

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names = self._work.cells(number)
        cache, last = self._cache, self._written.last

        def put(n: int) -> object:
            name = names[n % len(names)]
            cache.set(name, record(n))
            last[name] = n
            return None

        def set_field(n: int) -> object:
            name = names[n % len(names)]
            with cache.transact():
                cache.set(name, {**cache.get(name), "step": n})
            last[name] = n
            return None

        def compare_and_swap(n: int) -> object:
            name = names[n % len(names)]
            with cache.transact():
                fields = cache.get(name)
                assert fields["step"] == last[name]
                cache.set(name, {**fields, "step": n})
            last[name] = n
            return None

        def get(n: int) -> object:
            return cache.get(names[n % len(names)])

        return {
            "put": put,
            "set_field": set_field,
            "compare_and_swap": compare_and_swap,
            "get": get,
        }[self._work.operation]

    def verify(self, _done: int) -> None:
        """Each record is what its last write made of it."""
        for name in self._written.last:
            self._written.check(name, self._cache.get(name))

    def close(self) -> None:
        """Close the connections."""
        self._cache.close()

"""StrataDB's state cells with durability "always": each write is synced before it returns.

Strata has no async colour. Under asyncio its calls run on the loop's own thread, which is
faster here than a hop to a thread pool and back for each call.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from bench.callers import AsyncStep, Step
from bench.scenario import Work, value
from bench.tally import Tally


class Program:
    """Strata in its own environment, at the durability that we compare at."""

    def __init__(
        self, where: str, work: Work, options: dict[str, str], tally: Tally | None
    ) -> None:
        self._where: Final = where
        self._work: Final = work
        self.colour: Final = options.get("colour", "blocking")
        self._db: Any = None
        self._versions: dict[str, int] = {}
        if tally is not None:
            tally.source = self._counts

    def open(self) -> None:
        """Set the durability, which counts from the next opening on, and make the cells."""
        strata = importlib.import_module("stratadb").Strata
        strata.open(self._where).configure_set("durability", "always")
        self._db = strata.open(self._where)
        assert self._db.config()["durability"] == "always"
        for name in self._work.all_cells():
            self._db.state.set(name, value(0))
            self._versions[name] = self._db.state.get_versioned(name)["version"]

    def caller(self, number: int) -> Step | AsyncStep:
        """The caller's operation, as a coroutine function if the callers are tasks."""
        step = self._step(self._work.cells(number))
        if self.colour == "blocking":
            return step

        async def inline(n: int) -> object:
            return step(n)

        return inline

    def verify(self, done: int) -> None:
        """Each write was one record in Strata's log, and one sync."""
        if self._work.writes:
            counters = self._db.durability_counters()
            wanted = done + len(self._versions)
            assert counters["wal_appends"] == wanted, f"{wanted} writes, but {counters}"
            assert counters["sync_calls"] >= wanted, f"{wanted} writes, but {counters}"

    def close(self) -> None:
        """Strata closes with its last reference."""
        self._db = None

    def _step(self, names: list[str]) -> Step:
        cells = self._db.state
        versions = {name: self._versions[name] for name in names}

        def set_(n: int) -> object:
            return cells.set(names[n % len(names)], value(n))

        def cas(n: int) -> object:
            name = names[n % len(names)]
            version = cells.cas(name, value(n), expected_version=versions[name])
            assert version is not None
            versions[name] = version
            return version

        def get(n: int) -> object:
            return cells.get(names[n % len(names)])

        return {"set": set_, "cas": cas, "get": get}[self._work.operation]

    def _counts(self) -> Mapping[str, int]:
        counters = self._db.durability_counters()
        return {"transactions": counters["wal_appends"], "syncs": counters["sync_calls"]}

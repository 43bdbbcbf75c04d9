"""Holdfast's branches, async: reads through levels of forks, forks, merges."""

import asyncio
from typing import Final

import holdfast
from bench.branches import TRIAL, changed_cells, check_forks
from bench.callers import AsyncStep
from bench.contenders.holdfast_cells import add_others, fill, store_url
from bench.scenario import Work, value
from bench.tally import Tally


class Program:
    """Branches through `holdfast.open_async`."""

    colour = "async"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)

    async def open(self) -> None:
        """Make the cells, and the branches that the work needs before the clock starts."""
        await fill(self._url, self._work)
        await asyncio.to_thread(add_others, self._url, self._work)
        self._store = await holdfast.open_async(self._url)
        for source, name in self._work.chain():
            await self._store.branches.fork(name, source=source)

    def caller(self, _number: int) -> AsyncStep:
        """The caller's operation."""
        store, work = self._store, self._work
        names = work.cells(0)
        deepest = store.cells.on(work.branch)
        trial = store.cells.on(TRIAL)

        async def get(n: int) -> object:
            return await deepest.get(names[n % len(names)])

        async def fork(n: int) -> object:
            return await store.branches.fork(f"fork-{n}")

        async def merge(n: int) -> object:
            await trial.set_many(changed_cells(work, n))
            merged = (await store.branches.merge(TRIAL)).merged
            assert len(merged) == work.changes, f"{len(merged)} of {work.changes} were merged"
            return merged

        return {"get": get, "fork": fork, "merge": merge}[work.operation]

    async def verify(self, done: int) -> None:
        """The branches that were made are there; the last merge arrived."""
        work, store = self._work, self._store
        if work.operation == "fork":
            check_forks([branch.name for branch in await store.branches.list()], done)
        elif work.operation == "merge":
            for name, wanted in changed_cells(work, done).items():
                assert await store.cells.get(name) == wanted, name
        else:
            assert await store.cells.on(work.branch).get(work.cells(0)[0]) == value(0)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

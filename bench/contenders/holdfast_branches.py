"""Holdfast's branches, blocking: reads through levels of forks, forks, merges."""

import asyncio
from typing import Final

import holdfast
from bench.branches import TRIAL, changed_cells, check_forks
from bench.callers import Step
from bench.contenders.holdfast_cells import add_others, fill, store_url
from bench.scenario import Work, value
from bench.tally import Tally


class Program:
    """Branches through `holdfast.open`."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)

    def open(self) -> None:
        """Make the cells, and the branches that the work needs before the clock starts."""
        asyncio.run(fill(self._url, self._work))
        add_others(self._url, self._work)
        self._store = holdfast.open(self._url)
        for source, name in self._work.chain():
            self._store.branches.fork(name, source=source)

    def caller(self, _number: int) -> Step:
        """The caller's operation."""
        store, work = self._store, self._work
        names = work.cells(0)
        deepest = store.cells.on(work.branch)
        trial = store.cells.on(TRIAL)

        def get(n: int) -> object:
            return deepest.get(names[n % len(names)])

        def fork(n: int) -> object:
            return store.branches.fork(f"fork-{n}")

        def merge(n: int) -> object:
            trial.set_many(changed_cells(work, n))
            merged = store.branches.merge(TRIAL).merged
            assert len(merged) == work.changes, f"{len(merged)} of {work.changes} were merged"
            return merged

        return {"get": get, "fork": fork, "merge": merge}[work.operation]

    def verify(self, done: int) -> None:
        """The branches that were made are there; the last merge arrived."""
        work, store = self._work, self._store
        if work.operation == "fork":
            check_forks([branch.name for branch in store.branches.list()], done)
        elif work.operation == "merge":
            for name, wanted in changed_cells(work, done).items():
                assert store.cells.get(name) == wanted, name
        else:
            assert store.cells.on(work.branch).get(work.cells(0)[0]) == value(0)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

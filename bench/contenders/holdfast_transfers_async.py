"""Holdfast's async store: transfers between two accounts, in a session or by CAS loops."""

from collections.abc import Callable
from typing import Any, Final, cast

import holdfast
from bench.callers import AsyncStep
from bench.contenders.holdfast_cells import store_url
from bench.scenario import Work
from bench.tally import Tally
from bench.transfers import ALL, ATTEMPTS, Way, check, first_cells, moved, pair
from holdfast.aio.sessions import AsyncCellsSession


class Program:
    """Transfers through `holdfast.open_async`."""

    colour = "async"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._way: Final = cast("Way", options["way"])
        self._url: Final = store_url(where, options)
        self._tried: Final = [0] * work.callers

    async def open(self) -> None:
        """Make the accounts."""
        self._store = await holdfast.open_async(self._url)
        await self._store.cells.set_many(first_cells(self._work, self._way))

    def caller(self, number: int) -> AsyncStep:
        """The caller's transfer."""
        names, cells, tried = self._work.all_cells(), self._store.cells, self._tried

        async def change(name: str, new: Callable[[Any], object]) -> None:
            version = None
            while version is None:
                tried[number] += 1
                cell = await cells.get_versioned(name)
                assert cell is not None
                version = await cells.cas(name, cell.version, new(cell.value))

        async def one_cell(n: int) -> None:
            await change(ALL, lambda accounts: moved(accounts, *pair(names, n)))

        async def two_loops(n: int) -> None:
            source, target = pair(names, n)
            await change(source, lambda balance: balance - 1)
            try:
                await change(target, lambda balance: balance + 1)
            except BaseException:
                await change(source, lambda balance: balance + 1)
                raise

        async def session(n: int) -> None:
            source, target = pair(names, n)

            async def transfer(s: AsyncCellsSession) -> None:
                tried[number] += 1
                await s.set(source, await s.get(source) - 1)
                await s.set(target, await s.get(target) + 1)

            await cells.in_session(transfer, attempts=ATTEMPTS)

        return {"one cell": one_cell, "two loops": two_loops, "session": session}[self._way]

    async def verify(self, done: int) -> dict[str, float]:
        """Nothing was lost, and every transfer made once."""
        names = first_cells(self._work, self._way)
        cells = [await self._store.cells.get_versioned(name) for name in names]
        return check(self._way, cells, tried=sum(self._tried), done=done)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

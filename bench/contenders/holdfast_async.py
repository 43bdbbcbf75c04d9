"""Holdfast's async store; many callers are tasks that share it."""

from typing import Final

import holdfast
from bench.callers import AsyncStep
from bench.contenders.holdfast_cells import check_versions, fill, store_url
from bench.scenario import Work, value
from bench.tally import Tally


class Program:
    """Cells through `holdfast.open_async`."""

    colour = "async"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)
        self._won: Final = [0] * work.callers

    async def open(self) -> None:
        """Make the cells, with as many versions as the work asks for."""
        await fill(self._url, self._work)
        self._store = await holdfast.open_async(self._url)

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation."""
        names = self._work.cells(number)
        cells = self._store.cells
        versions = dict.fromkeys(names, self._work.versions)

        async def set_(n: int) -> object:
            return await cells.set(names[n % len(names)], value(n))

        async def cas(n: int) -> object:
            name = names[n % len(names)]
            version = await cells.cas(name, versions[name], value(n))
            if version is None:
                cell = await cells.get_versioned(name)
                assert cell is not None
                version = cell.version
            else:
                self._won[number] += 1
            versions[name] = version
            return version

        async def increment(n: int) -> object:
            won = self._won[number]
            while self._won[number] == won:
                await cas(n)
            return None

        async def get(n: int) -> object:
            return await cells.get(names[n % len(names)])

        async def get_versioned(n: int) -> object:
            return await cells.get_versioned(names[n % len(names)])

        return {
            "set": set_,
            "cas": cas,
            "increment": increment,
            "get": get,
            "get_versioned": get_versioned,
        }[self._work.operation]

    async def verify(self, done: int) -> dict[str, float]:
        """Every accepted write is one version."""
        cells = [await self._store.cells.get_versioned(name) for name in self._work.all_cells()]
        versions = [cell.version for cell in cells if cell is not None]
        return check_versions(self._work, versions, won=sum(self._won), done=done)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

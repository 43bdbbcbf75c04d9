"""Holdfast's blocking store; many callers are threads that share it."""

import asyncio
from typing import Final

import holdfast
from bench.callers import Step
from bench.contenders.holdfast_cells import add_others, check_versions, fill, store_url
from bench.scenario import Work, value
from bench.tally import Tally


class Program:
    """Cells through `holdfast.open`."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)
        self._won: Final = [0] * work.callers

    def open(self) -> None:
        """Make the cells, with as many versions as the work asks for."""
        asyncio.run(fill(self._url, self._work))
        self._store = holdfast.open(self._url)
        if self._work.others:
            for name in self._work.all_cells():
                self._store.cells.get(name)
            add_others(self._url, self._work)

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names = self._work.cells(number)
        cells = self._store.cells
        versions = dict.fromkeys(names, self._work.versions)

        def set_(n: int) -> object:
            return cells.set(names[n % len(names)], value(n))

        def cas(n: int) -> object:
            name = names[n % len(names)]
            version = cells.cas(name, versions[name], value(n))
            if version is None:
                cell = cells.get_versioned(name)
                assert cell is not None
                version = cell.version
            else:
                self._won[number] += 1
            versions[name] = version
            return version

        def increment(n: int) -> object:
            won = self._won[number]
            while self._won[number] == won:
                cas(n)
            return None

        def get(n: int) -> object:
            return cells.get(names[n % len(names)])

        def get_versioned(n: int) -> object:
            return cells.get_versioned(names[n % len(names)])

        return {
            "set": set_,
            "cas": cas,
            "increment": increment,
            "get": get,
            "get_versioned": get_versioned,
        }[self._work.operation]

    def verify(self, done: int) -> dict[str, float]:
        """Every accepted write is one version."""
        cells = [self._store.cells.get_versioned(name) for name in self._work.all_cells()]
        versions = [cell.version for cell in cells if cell is not None]
        return check_versions(self._work, versions, won=sum(self._won), done=done)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

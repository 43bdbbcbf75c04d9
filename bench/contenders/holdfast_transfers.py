"""Holdfast's blocking store: transfers between two accounts, in a session or by CAS loops."""

from collections.abc import Callable
from typing import Any, Final, cast

import holdfast
from bench.callers import Step
from bench.contenders.holdfast_cells import store_url
from bench.scenario import Work
from bench.tally import Tally
from bench.transfers import ALL, ATTEMPTS, Way, check, first_cells, moved, pair
from holdfast.sync.sessions import CellsSession


class Program:
    """Transfers through `holdfast.open`."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._way: Final = cast("Way", options["way"])
        self._url: Final = store_url(where, options)
        self._tried: Final = [0] * work.callers

    def open(self) -> None:
        """Make the accounts."""
        self._store = holdfast.open(self._url)
        self._store.cells.set_many(first_cells(self._work, self._way))

    def caller(self, number: int) -> Step:
        """The caller's transfer."""
        names, cells, tried = self._work.all_cells(), self._store.cells, self._tried

        def change(name: str, new: Callable[[Any], object]) -> None:
            version = None
            while version is None:
                tried[number] += 1
                cell = cells.get_versioned(name)
                assert cell is not None
                version = cells.cas(name, cell.version, new(cell.value))

        def one_cell(n: int) -> None:
            change(ALL, lambda accounts: moved(accounts, *pair(names, n)))

        def two_loops(n: int) -> None:
            source, target = pair(names, n)
            change(source, lambda balance: balance - 1)
            try:
                change(target, lambda balance: balance + 1)
            except BaseException:
                change(source, lambda balance: balance + 1)
                raise

        def session(n: int) -> None:
            source, target = pair(names, n)

            def transfer(s: CellsSession) -> None:
                tried[number] += 1
                s.set(source, s.get(source) - 1)
                s.set(target, s.get(target) + 1)

            cells.in_session(transfer, attempts=ATTEMPTS)

        return {"one cell": one_cell, "two loops": two_loops, "session": session}[self._way]

    def verify(self, done: int) -> dict[str, float]:
        """Nothing was lost, and every transfer made once."""
        names = first_cells(self._work, self._way)
        cells = [self._store.cells.get_versioned(name) for name in names]
        return check(self._way, cells, tried=sum(self._tried), done=done)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

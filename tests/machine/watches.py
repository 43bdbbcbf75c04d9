"""Watches that are opened at the start and read now and then: they tell what the model has.

Of each cell every entry once and in order; with retention perhaps some less, the newest never.
"""

from __future__ import annotations

from typing import Any

from holdfast import CAUGHT_UP, Cell, CellChange, NotFound
from holdfast.testing.cells_model import GONE, Missing, ModelBranch, ModelCells, Written
from tests.machine.lockstep import Lockstep, Opened


class Watched:
    """One watch of a branch; its cursor outlives the store that it was opened on."""

    def __init__(self, pair: Lockstep, at: int, *, cursor: bool) -> None:
        self._pair = pair
        self._at = at
        self._cursor: str | None = None
        self._branch: ModelBranch | None = None
        self._told: dict[str, int] = {}  # so many entries of each cell are behind us
        self._caught_up = False
        self.over = False
        self._begin()
        if cursor:
            self.read()
            self._resume()

    def leave(self, store: Opened) -> None:
        """Go on elsewhere, from the cursor, if this store is about to be closed."""
        if self._opened is store and not self.over:
            self._resume()
            self._pair.counts["watches resumed"] += 1

    def close(self) -> None:
        """End it, if its branch has not done so; its store may be closed since."""
        if not self.over:
            self._opened.call(self._real.close)

    def read(self) -> None:
        """Read all there is, and compare."""
        if self.over:
            return
        model = self._pair.cells(self._at)[2]
        branch = _branch(model)
        if branch is None or self._branch not in (None, branch):
            self._ends()
        elif self._branch is None:
            self._branch = branch
            self._replay(model)
        if not self.over:
            self._changes(model)
            self._cursor = self._real.cursor
            self._pair.counts["watches read"] += 1

    def _ends(self) -> None:
        """The branch is gone, or another one has its name."""
        try:
            found = self._next()
        except NotFound:
            self.close()
            self.over = True
        else:
            raise AssertionError(f"a watch of a branch that is gone told {found!r}")
        self._pair.counts["watches ended with their branch"] += 1

    def _replay(self, model: ModelCells) -> None:
        """What is there now, by name."""
        present = [(name, model.get_versioned(name)) for name in model.list()]
        found = [self._next() for _ in present]
        assert CAUGHT_UP not in found
        assert [(change.name, self._pair.seen(change.cell)) for change in found] == [
            (name, self._pair.seen(cell)) for name, cell in present
        ]
        assert self._next() is CAUGHT_UP
        self._caught_up = True
        self._told = {name: len(model.branch.cells[name].entries) for name in model.every_name()}
        self._pair.counts["replayed"] += len(found)

    def _changes(self, model: ModelCells) -> None:
        """Every entry since the last time."""
        cells = model.branch.cells
        new = {
            name: list(map(self._entry, cells[name].entries[self._told.get(name, 0) :]))
            for name in model.every_name()
        }
        found: dict[str, list[object]] = {name: [] for name in new}
        missing = {name for name, entries in new.items() if entries}
        while (change := self._next(wait=bool(missing) or not self._caught_up)) is not None:
            if change is CAUGHT_UP:
                assert not self._caught_up
                self._caught_up = True
                continue
            assert isinstance(change, CellChange)
            assert change.replay is not self._caught_up
            told = found[change.name]
            told.append(self._entry(change.cell))
            if told[-1] == new[change.name][-1:][0]:
                missing.discard(change.name)
            self._pair.counts["changes told"] += 1
        assert not missing, f"not told: {missing}"
        assert self._caught_up
        for name, told in found.items():
            self._compare(name, told, new[name])
            self._told[name] = len(cells[name].entries)

    def _compare(self, name: str, told: list[object], entries: list[object]) -> None:
        if not self._pair.trimmed:
            assert told == entries, name
            return
        rest = iter(entries)
        assert all(entry in rest for entry in told), f"{name!r}: {told} of {entries}"
        assert told[-1:] == entries[-1:], name

    def _entry(self, cell: Cell | Written | None) -> object:
        deleted = cell is None or cell.value is GONE
        return "deleted" if deleted else self._pair.seen(cell)

    def _resume(self) -> None:
        self._opened.call(self._real.close)
        self._begin()

    def _begin(self) -> None:
        self._opened, real, _ = self._pair.cells(self._at)
        self._real = self._opened.call(lambda: real.watch(after=self._cursor))
        self._caught_up = False
        if self._cursor is None:
            self._branch = None  # it begins again, with what is there

    def _next(self, *, wait: bool = True) -> Any:  # noqa: ANN401 - a change or the marker
        timeout = self._pair.patience if wait else 0
        return self._opened.colour.run(self._real.next(timeout=timeout))


def _branch(model: ModelCells) -> ModelBranch | None:
    try:
        return model.branch
    except Missing:
        return None

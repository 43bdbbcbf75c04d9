"""A model of sessions in plain Python: a copy of everything, and a comparison at the end.

Written from the specification; it shares no line with the engines. The first call
copies the branch twice. One copy stays as it is; the session works on the other
like anybody on plain cells. The commit compares the first copy with what is there
by then, and takes the newest entry of each cell that grew in the second:

    there   a: x1                 a: x1
    past    a: x1                 a: x1
    work    a: x1, y2, z3         a: x1, z3 is added, one entry
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from holdfast.testing.cells_model import (
    GONE,
    Missing,
    ModelBranch,
    ModelCells,
    ModelSpace,
    ModelStore,
    Versions,
    Written,
)

# Inside the class, `list` is the method.
Names = list[str]


class Changed(NamedTuple):
    """The cells that others changed under a session, as far as what it read tells.

    After a page of a list, what came or went behind its last name may count or not.
    """

    certain: set[str]
    possible: set[str]


class _Copies(NamedTuple):
    of: ModelBranch
    past: ModelCells
    work: ModelCells


class ModelSession:
    """The operations of cells in one session; `cells` are those that it is opened on."""

    def __init__(self, store: ModelStore, cells: ModelCells) -> None:
        self._store = store
        self._cells = cells
        self._copies: _Copies | None = None
        self._touched: set[str] = set()
        self._listed: list[tuple[Callable[[str], bool], Callable[[str], bool]]] = []

    @property
    def past(self) -> ModelCells:
        """The cells as they were at the first call."""
        return self._opened.past

    def init(self, name: str, value: object) -> int:
        """See ModelCells."""
        return self._touch(name).init(name, value)

    def set(self, name: str, value: object) -> int:
        """See ModelCells."""
        return self._touch(name).set(name, value)

    def cas(self, name: str, expected: int | None, value: object) -> int | None:
        """See ModelCells."""
        return self._touch(name).cas(name, expected, value)

    def delete(self, name: str) -> bool:
        """See ModelCells."""
        return self._touch(name).delete(name)

    def set_many(self, values: Mapping[str, object]) -> dict[str, int]:
        """See ModelCells."""
        return {name: self.set(name, value) for name, value in values.items()}

    def get(self, name: str, default: object = None) -> object:
        """See ModelCells."""
        return self._touch(name).get(name, default)

    def get_versioned(self, name: str) -> Written | None:
        """See ModelCells; what the session wrote has commit 0."""
        found = self._touch(name).get_versioned(name)
        return self.own(name) if self._wrote(name) else found

    def getv(self, name: str, limit: int | None = None) -> Versions:
        """What the session wrote as one version, then the past."""
        if limit == 0:
            return []
        self._touch(name)
        own = self.own(name)
        return [*([own] if own else []), *self.past.getv(name)][:limit]

    def list(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Names:
        """See ModelCells."""
        if limit == 0:
            return []
        names = self._opened.work.list(prefix, after=after, limit=limit)
        first, last = (after or "").encode(), names[-1].encode() if names else b""
        page_is_full = len(names) == limit

        def possible(name: str) -> bool:
            return name.startswith(prefix) and name.encode() > first

        def certain(name: str) -> bool:
            return possible(name) and not (page_is_full and name.encode() > last)

        self._listed.append((certain, possible))
        return names

    def own(self, name: str) -> Written | None:
        """What the session wrote to the cell, unless it was a delete in the end."""
        if not self._wrote(name):
            return None
        newest = self._opened.work.branch.cells[name].entries[-1]
        return None if newest.value is GONE else newest._replace(updated_at=0, commit=0)

    def live_version(self, name: str) -> int:
        """The version that the session sees, 0 for none; not remembered as read."""
        cell = self._opened.work.get_versioned(name)
        return cell.version if cell else 0

    def changed(self) -> Changed:
        """What stands against a commit. Missing if the branch is gone, or another one by now."""
        if not self._written():
            return Changed(set(), set())
        if self._cells.branch is not self._opened.of:
            raise Missing
        then, now = self.past.branch, self._cells.branch
        changed = {name for name in self._touched if _size(then, name) != _size(now, name)}
        moved = set(self.past.list()) ^ set(self._cells.list())
        certain, possible = (
            changed | {name for name in moved for listed in self._listed if listed[kind](name)}
            for kind in (0, 1)
        )
        return Changed(certain, possible)

    def write(self) -> dict[str, int]:
        """The new versions, written in one commit."""
        written = self._written()
        if written:
            self._store.commits += 1
        for name in written:
            newest = self._opened.work.branch.cells[name].entries[-1]
            self._cells.add(name, newest.value, newest.version, None)
        own = {name: self.own(name) for name in written}
        return {name: entry.version for name, entry in own.items() if entry}

    def _written(self) -> Names:
        return sorted(filter(self._wrote, self._touched))

    def _wrote(self, name: str) -> bool:
        _, past, work = self._opened
        return _size(work.branch, name) != _size(past.branch, name)

    def _touch(self, name: str) -> ModelCells:
        work = self._opened.work
        self._touched.add(name)
        return work

    @property
    def _opened(self) -> _Copies:
        if self._copies is None:
            branch = self._cells.branch
            self._copies = _Copies(branch, self._copy(branch), self._copy(branch))
        return self._copies

    def _copy(self, branch: ModelBranch) -> ModelCells:
        space = ModelSpace()
        # Under its own name: what is kept of a branch's past is less certain than of main's.
        space.branches = {self._cells.name: branch.copy()}
        return ModelCells(ModelStore(), space, self._cells.name)


def _size(branch: ModelBranch, name: str) -> int:
    """Entries are only ever added, so this tells whether anybody wrote."""
    return len(branch.cells[name].entries) if name in branch.cells else 0

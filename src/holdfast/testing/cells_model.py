"""A model of cells in plain Python, which every engine is compared with.

Written from the specification; it shares no line with the engines. A cell is the
list of everything written to it, oldest first, deletes among it:

    set("a", "x") -> 1    [("x", 1)]
    set("a", "y") -> 2    [("x", 1), ("y", 2)]
    delete("a")   -> True [("x", 1), ("y", 2), (GONE, 2)]
    init("a", 0)  -> 3    [("x", 1), ("y", 2), (GONE, 2), (0, 3)]

The methods are those of `store.cells`. Time is a plain number that stands still
until a test moves it, and a commit's number counts the calls that wrote.

A fork is a copy of all lists: what the engines avoid, so they share no idea here
either. Lists are never cut; each knows how many of its oldest entries retention
has dropped, which is exact on `main`. What an engine still shows of a branch's
past beyond that is up to it, see `ModelCells.certain`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

_SURROGATES = re.compile("[\ud800-\udfff]")

GONE = object()
"""Stands in a cell's list where it was deleted."""


class Refused(Exception):
    """The call can never work as it is written: the engine's InvalidArgument."""


class Missing(Exception):
    """There is no such branch: the engine's NotFound."""


class Written(NamedTuple):
    """One entry of a cell's list; as an answer it is a version, like holdfast.Cell."""

    value: object
    version: int
    updated_at: int
    commit: int
    op_id: UUID | None


Versions = list[Written]
Names = list[str]
Condition = Callable[[int], bool]
"""Whether a write is done, given the version that the cell has, 0 when it is absent."""


@dataclass(eq=False)
class ModelCell:
    """One cell on one branch."""

    entries: Versions = field(default_factory=list)
    inherited: int = 0  # so many entries came with the fork
    dropped: int = 0  # so many of the oldest are no longer kept

    @property
    def kept(self) -> Versions:
        """What retention keeps, oldest first."""
        return self.entries[self.dropped :]


@dataclass(eq=False)
class ModelBranch:
    """The cells of one branch by name, and where it came from."""

    cells: dict[str, ModelCell] = field(default_factory=dict)
    parent: ModelBranch | None = None
    fork_commit: int = 0

    def fork(self, commit: int) -> ModelBranch:
        """A branch with all that this one has now."""
        cells = {
            name: ModelCell(list(cell.entries), len(cell.entries), cell.dropped)
            for name, cell in self.cells.items()
        }
        return ModelBranch(cells, self, commit)

    def copy(self) -> ModelBranch:
        """This one as it is, for somebody to keep."""
        cells = {
            name: ModelCell(list(cell.entries), cell.inherited, cell.dropped)
            for name, cell in self.cells.items()
        }
        return ModelBranch(cells, self.parent, self.fork_commit)

    def state(self, commit: float | None = None) -> dict[str, Written]:
        """The newest entry of every cell, deletes included, now or at that commit."""
        found = {}
        for name, cell in self.cells.items():
            seen = [e for e in cell.entries if commit is None or e.commit <= commit]
            if seen:
                found[name] = seen[-1]
        return found


class ModelSpace:
    """A namespace: its branches, with `main` among them."""

    def __init__(self) -> None:
        self.branches = {"main": ModelBranch()}
        self.merges: dict[frozenset[ModelBranch], dict[str, Written]] = {}
        self.forks: dict[UUID, tuple[str, ModelBranch]] = {}


class ModelStore:
    """All cells of one store. `keep` is how many versions of a cell stay, None for all."""

    def __init__(self, keep: int | None = None) -> None:
        self.keep = keep
        self.now = 0
        self.commits = 0
        self._namespaces: dict[str, ModelSpace] = {}

    def namespace(self, name: str) -> ModelCells:
        """The cells of one namespace, on `main`."""
        return ModelCells(self, self.space(name), "main")

    def space(self, name: str) -> ModelSpace:
        """Everything in one namespace."""
        return self._namespaces.setdefault(name, ModelSpace())


class ModelCells:
    """The cells of one namespace on one branch, with the methods of `store.cells`."""

    def __init__(self, store: ModelStore, space: ModelSpace, branch: str) -> None:
        self._store = store
        self._space = space
        self.name = branch

    def on(self, branch: str) -> ModelCells:
        """The cells on that branch."""
        return ModelCells(self._store, self._space, branch)

    @property
    def is_main(self) -> bool:
        """True on `main`."""
        return self.name == "main"

    @property
    def branch(self) -> ModelBranch:
        """The branch of that name."""
        if self.name not in self._space.branches:
            raise Missing(self.name)
        return self._space.branches[self.name]

    @property
    def _cells(self) -> dict[str, ModelCell]:
        return self.branch.cells

    def init(self, name: str, value: object, *, op_id: UUID | None = None) -> int:
        """Keeps what exists; the version it has or gets."""
        _check(name, value)
        return self._write(name, value, op_id, when=lambda live: live == 0)[1]

    def set(self, name: str, value: object, *, op_id: UUID | None = None) -> int:
        """The new version."""
        _check(name, value)
        return self._write(name, value, op_id, when=lambda _: True)[1]

    def set_many(
        self, values: Mapping[str, object], *, op_id: UUID | None = None
    ) -> dict[str, int]:
        """The new versions, all of one commit."""
        for name, value in values.items():
            _check(name, value)
        if values:
            _ = self._cells  # nothing is written to a branch that is missing
        self._store.commits += 1
        return {name: self._apply(name, value, op_id)[1] for name, value in values.items()}

    def cas(
        self, name: str, expected: int | None, value: object, *, op_id: UUID | None = None
    ) -> int | None:
        """The new version if the cell was at the expected one; None means absent."""
        _check(name, value)
        if expected is not None and expected < 1:
            raise Refused(expected)
        wanted = 0 if expected is None else expected
        done, version = self._write(name, value, op_id, when=lambda live: live == wanted)
        return version if done else None

    def delete(self, name: str, *, op_id: UUID | None = None) -> bool:
        """True if there was something to delete."""
        _check(name)
        return self._write(name, GONE, op_id, when=lambda live: live > 0)[0]

    def get(self, name: str, default: object = None) -> object:
        """The value."""
        cell = self.get_versioned(name)
        return default if cell is None else cell.value

    def get_versioned(self, name: str) -> Written | None:
        """The newest version."""
        _check(name)
        return _current(self._kept(name))

    def get_at(self, name: str, when: int) -> Written | None:
        """The version that was current then, if it is still kept."""
        _check(name)
        return _current([entry for entry in self._kept(name) if entry.updated_at <= when])

    def getv(self, name: str, limit: int | None = None) -> Versions:
        """The versions that are kept, newest first."""
        _check(name)
        _check_limit(limit)
        if limit == 0:
            return []  # nothing is looked for, not even the branch
        newest_first = reversed(self._kept(name))
        return [entry for entry in newest_first if entry.value is not GONE][:limit]

    def list(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Names:
        """The names of what exists, in the order of their bytes."""
        _check_text(prefix or "prefix")
        _check_limit(limit)
        if after is not None:
            _check_text(after)
        if limit == 0:
            return []
        names = sorted(
            (name for name, cell in self._cells.items() if _current(cell.entries)), key=str.encode
        )
        above = [name for name in names if after is None or name.encode() > after.encode()]
        return [name for name in above if name.startswith(prefix)][:limit]

    def prune(self, keep: int) -> int:
        """How many entries went because only the newest versions are to stay."""
        return sum(_trim(cell, keep) for cell in self._cells.values())

    def every_name(self) -> Names:
        """All names ever used, deleted ones too."""
        return sorted(self._cells)

    def deleted_after(self, name: str, version: int) -> bool:
        """True if what follows this version of the cell is that it was deleted.

        A delete keeps the counter, but not one that was merged, or came after a set in a session.
        """
        entries = self._cells[name].entries
        return any(
            one.value is not GONE and one.version == version and following.value is GONE
            for one, following in pairwise(entries)
        )

    def everything(self, name: str) -> Versions:
        """All versions there ever were on this branch, newest first."""
        cell = self._cells.get(name, ModelCell())
        return [entry for entry in reversed(cell.entries) if entry.value is not GONE]

    def ever_at(self, name: str, when: int) -> Written | None:
        """What was current then, whether it is still kept or not."""
        cell = self._cells.get(name, ModelCell())
        return _current([entry for entry in cell.entries if entry.updated_at <= when])

    def unchanged_since(self, name: str, when: int) -> bool:
        """True if nothing was written to the cell later than that."""
        cell = self._cells.get(name, ModelCell())
        return all(entry.updated_at <= when for entry in cell.entries)

    def certain(self, name: str) -> int:
        """How many of the newest versions must be there, whatever other branches have done.

        The branch's own that are kept; of what it inherited the newest, if it shows at all.
        """
        cell = self._cells.get(name, ModelCell())
        if self.is_main:
            return len(self.getv(name))
        own = cell.entries[max(cell.inherited, cell.dropped) :]
        count = sum(entry.value is not GONE for entry in own)
        last = cell.entries[: cell.inherited][-1:]
        shows = cell.dropped <= cell.inherited and bool(last) and last[0].value is not GONE
        return count + shows

    def _kept(self, name: str) -> Versions:
        cell = self._cells.get(name)
        return [] if cell is None else cell.kept

    def _write(
        self, name: str, value: object, op_id: UUID | None, *, when: Condition
    ) -> tuple[bool, int]:
        self._store.commits += 1
        return self._apply(name, value, op_id, when=when)

    def _apply(
        self, name: str, value: object, op_id: UUID | None, *, when: Condition = lambda _: True
    ) -> tuple[bool, int]:
        """Whether it was done, by this call or the first one of its op_id, and the version."""
        cells = self._cells
        cell = cells.get(name, ModelCell())
        entries = cell.entries
        for entry in entries[max(cell.inherited, cell.dropped) :]:
            if op_id is not None and entry.op_id == op_id:
                return True, entry.version
        current = _current(entries)
        live = 0 if current is None else current.version
        if not when(live):
            return False, live
        counter = entries[-1].version if entries else 0
        version = counter if value is GONE else counter + 1
        self.add(name, value, version, op_id)
        return True, version

    def add(self, name: str, value: object, version: int, op_id: UUID | None) -> None:
        """Add an entry, whatever its version."""
        cell = self._cells.setdefault(name, ModelCell())
        entries = cell.entries
        # A cell's time never goes back, also when the clock does.
        at = max(self._store.now, entries[-1].updated_at if entries else self._store.now)
        entries.append(Written(value, version, at, self._store.commits, op_id))
        if self._store.keep is not None:
            _trim(cell, self._store.keep)


def _current(entries: Versions) -> Written | None:
    return entries[-1] if entries and entries[-1].value is not GONE else None


def _trim(cell: ModelCell, keep: int) -> int:
    oldest = cell.entries[-1].version - keep
    gone = sum(entry.version <= oldest for entry in cell.entries) - cell.dropped
    cell.dropped += max(gone, 0)
    return max(gone, 0)


def _check(name: str, value: object = None) -> None:
    _check_text(name)
    if name.startswith(("_strata/", "_holdfast/")) or not _is_legal(value):
        raise Refused(name, value)


def _check_text(text: str) -> None:
    size = len(text.encode(errors="surrogatepass"))
    if not 1 <= size <= 1024 or "\0" in text or _SURROGATES.search(text):
        raise Refused(text)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise Refused(limit)


def _is_legal(value: object) -> bool:
    """True for what comes back the same: any JSON value, and bytes."""
    if isinstance(value, list):
        return all(map(_is_legal, value))
    if isinstance(value, dict):
        keys_are_legal = all(isinstance(key, str) and _is_legal(key) for key in value)
        return keys_are_legal and all(map(_is_legal, value.values()))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return not _SURROGATES.search(value)
    return value is None or isinstance(value, bytes)

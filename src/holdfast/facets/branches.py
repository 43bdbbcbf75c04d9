"""Branches of cells: a fork copies nothing, a merge is three-way.

A branch is (parent, fork commit). Its cells are its own versions, and behind
them what its parent held at that commit, and so on up to `main`. So what a
branch sees is a **lineage**: pairs of a branch and the last commit seen of it.
With `a` forked from main at commit 10 and `b` from `a` at commit 20:

    lineage of b    ((b, everything), (a, 20), (main, 10))

The newest version on the first branch that has one is the cell; a tombstone is
a version too. Commits of a lineage never overlap: what a branch wrote itself
lies above its fork commit.

A merge compares both sides with a base: the source as it was at the last merge
of the two, in whichever direction, or else where they parted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.codec import INT64_MAX
from holdfast.errors import InvalidArgument, InvalidState
from holdfast.facets.cells import MAIN
from holdfast.facets.names import check_name

MAX_LEVELS = 16
"""How many forks a branch may be away from `main`."""

MAIN_ID = 0
EVERYTHING = INT64_MAX

Strategy = Literal["strict", "source_wins", "target_wins"]
STRATEGIES: tuple[Strategy, ...] = ("strict", "source_wins", "target_wins")

Lineage = tuple[tuple[int, int], ...]
"""What a branch sees: (branch id, last commit), the nearest first; `main` is id 0."""


class Branch(msgspec.Struct, frozen=True):
    """A branch. `created_at` is in microseconds since the epoch, as in `Cell.updated_at`."""

    name: str
    parent: str
    fork_commit: int
    created_at: int


class Change(msgspec.Struct, frozen=True):
    """A cell that differs between two branches.

    `kind` tells which side changed it since the last merge or fork: "source", "target" or
    "both". `source` and `target` are the versions there, None where the cell is absent.
    """

    name: str
    kind: Literal["source", "target", "both"]
    source: int | None
    target: int | None


class MergeResult(msgspec.Struct, frozen=True):
    """What a merge wrote to its target: versions of cells by name, and names of deleted ones."""

    merged: dict[str, int]
    deleted: list[str]


class Operation(NamedTuple):
    """Under which id something is done; the same id again is the same operation."""

    id: bytes
    given: bool  # the caller chose it


class State(NamedTuple):
    """A cell as a branch sees it: `payload` is None when it is absent."""

    payload: str | None
    version: int  # the counter, also of a deleted cell; 0 if it never was
    own_commit: int  # of the version, if the branch wrote it itself, else 0


ABSENT_STATE = State(None, 0, 0)


class Difference(NamedTuple):
    """A cell on the two sides and in the base they are compared with."""

    name: str
    base: State
    source: State
    target: State

    @property
    def kind(self) -> Literal["source", "target", "both"] | None:
        """Which side changed the value; None when both sides hold the same."""
        if self.source.payload == self.target.payload:
            return None
        if self.source.payload == self.base.payload:
            return "target"
        return "source" if self.target.payload == self.base.payload else "both"


class Comparison(NamedTuple):
    """Two branches at the moment they are compared, and their base."""

    namespace: str
    source: Lineage
    target: Lineage
    base: Lineage

    @property
    def pair(self) -> tuple[int, int]:
        """The two branches' ids, the smaller one first."""
        low, high = sorted((self.source[0][0], self.target[0][0]))
        return low, high


class MergeWrite(NamedTuple):
    """What a merge found about a cell; `write` is False where the target stays as it is."""

    name: str
    seen: int  # the target's own commit, which must still be its newest
    write: bool
    payload: str | None
    version: int


class BranchesBackend(Protocol):
    """What a backend must do for branches. A missing branch is NotFound in every operation."""

    async def fork(self, namespace: str, name: str, source: str, operation: Operation) -> Branch:
        """The new branch; Conflict when the name is taken, unless by this very operation.

        InvalidState when the source is MAX_LEVELS forks away from `main`.
        """

    async def page(self, namespace: str, *, after: str, limit: int) -> list[Branch]:
        """The next branches by name; `main` is not among them."""

    async def delete(self, namespace: str, name: str, operation: Operation) -> bool:
        """True if the branch was there; nobody sees it any more, except its children."""

    async def purge(self, namespace: str) -> bool:
        """Free some of what deleted branches without children left; True while there is more."""

    async def compare(self, namespace: str, source: str, target: str) -> Comparison:
        """The two branches as they are now, to look at."""

    async def begin_merge(
        self, namespace: str, source: str, target: str, operation: Operation
    ) -> Comparison | MergeResult:
        """The two branches, the source as it stands; or the result, if the operation was done.

        Until the merge ends or the next one begins, retention keeps this state of the source.
        """

    async def differences(
        self, comparison: Comparison, *, target_too: bool, after: str | None, limit: int
    ) -> tuple[list[Difference], str | None]:
        """Look at the next cells that the source may have changed; with `target_too` either side.

        Returns them, and the last name looked at, None at the end.
        """

    async def end_merge(
        self, comparison: Comparison, writes: Sequence[MergeWrite], operation: Operation
    ) -> bool:
        """Write the cells in one atomic commit, which is the next merge's base.

        False, and nothing is written, when a cell of the target is no longer as it was seen, or
        another merge of the two has come between.
        """


def lineage_base(source: Lineage, target: Lineage) -> tuple[int, int]:
    """Where two branches parted: the nearest branch in both, and what both see of it."""
    seen = dict(target)
    for branch_id, upto in source:
        if branch_id in seen:
            return branch_id, min(upto, seen[branch_id])
    raise InvalidState("two branches without a common root")


def apart(one: Lineage, other: Lineage) -> set[int]:
    """The branches that hold versions which only one of the two sees."""
    left, right = dict(one), dict(other)
    return {branch_id for branch_id in left | right if left.get(branch_id) != right.get(branch_id)}


def merged_names(pages: Iterable[Sequence[str]], limit: int) -> tuple[list[str], str | None]:
    """The next names of several sorted pages of up to `limit` each, and where to go on.

    Names above the end of a full page are left for later: that page's branch may have more
    names before them.
    """
    names: set[str] = set()
    ends = []
    for page in pages:
        names.update(page)
        if len(page) == limit:
            ends.append(page[-1])
    if not ends:
        return sorted(names), None
    last = min(ends)
    return sorted(name for name in names if name <= last), last


def check_branch_name(name: str) -> str:
    """The name itself, when a new branch may have it."""
    check_name(name, what="branch name")
    if name == MAIN:
        raise InvalidArgument(f"branch name {name!r}: every namespace has it, it is never made")
    return name


def check_strategy(strategy: str) -> Strategy:
    """The strategy itself, when it is one."""
    for known in STRATEGIES:
        if strategy == known:
            return known
    raise InvalidArgument(f"strategy: wanted one of {', '.join(STRATEGIES)}, found {strategy!r}")


def too_deep(source: str) -> InvalidState:
    """The error for a fork that would be too far away from `main`."""
    return InvalidState(
        f"branch {source!r}: it is {MAX_LEVELS} forks away from {MAIN!r}, which is the most",
        branch=source,
        most=MAX_LEVELS,
    )


def merge_write(difference: Difference, *, source_wins: bool) -> MergeWrite:
    """What a merge does about a cell; `source_wins` decides where both sides changed it.

    A value gets a version above both sides', a delete leaves the larger counter.
    """
    name, _, source, target = difference
    kind = difference.kind
    write = kind == "source" or (kind == "both" and source_wins)
    version = max(source.version, target.version) + (source.payload is not None)
    return MergeWrite(name, target.own_commit, write, source.payload, version)

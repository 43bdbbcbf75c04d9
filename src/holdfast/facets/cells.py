"""Cells: named values with a version counter, changed by compare-and-swap.

Every version is kept (see retention) and has two numbers. `version` counts the
writes of its cell: 1, 2, 3 … and is what `cas` compares. `commit_id` is drawn by
every write in the store from one rising series: it orders the versions of all
cells, and a fork of a branch is just a commit id.

One rule decides every write. Let `live` be the cell's version, or 0 when it is
absent or deleted; `counter` is the last version ever given, also to a deleted
cell. A write carries what it expects of `live` (ANY, or a number; 0 = "absent")
and a value, or None for a delete:

    applies    when  expected is ANY or expected == live,  and  value or live > 0
    a value    becomes version counter + 1:  a recreated cell never reuses a number
    a delete   leaves a tombstone at the counter as it stands

    call              expected   value      not applied, the caller gets
    set               ANY        v          (always applies)
    init              0          v          the live version
    cas(None)         0          v          None
    cas(n)            n          v          None
    delete            ANY        None       False
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.clock import duration_us
from holdfast.codec import INT64_MAX
from holdfast.config import History
from holdfast.errors import InvalidArgument, NotFound
from holdfast.facets.feed import Page, Position
from holdfast.facets.names import check_name

ANY = -1
ABSENT = 0
MAIN = "main"
LOG = "cells"  # the name of the log of changes
MAX_COMMIT_BYTES = 64 * 1024 * 1024
RESERVED_PREFIXES = ("_strata/", "_holdfast/")
# What nearly every name looks like: nothing in it needs a closer look.
_plain = re.compile(r"[A-Za-z0-9][\x20-\x7e]{0,200}").fullmatch


class Cell(msgspec.Struct, frozen=True):
    """One version of a cell. `updated_at` is in microseconds since the epoch."""

    value: Any
    version: int
    updated_at: int
    commit_id: int


CellKey = tuple[str, str, str]
"""Where a cell is: namespace, branch, name. A plain tuple, like StoredCell, for the hottest path.

The branch goes by its name: only the engine can tell, in the same transaction, what it means now.
"""


class CellWrite(msgspec.Struct, frozen=True, gc=False):
    """One write, as the rule above wants it."""

    key: CellKey
    expected: int
    payload: str | None
    op_id: bytes
    op_given: bool  # the caller chose the id, so it may be a repeat


class CellOutcome(msgspec.Struct, frozen=True, gc=False):
    """What a write came to; `version` is the new one, or the live one if it did not apply."""

    applied: bool
    version: int


StoredCell = tuple[str, int, int, int]
"""A version as the backend keeps it: payload, version, updated_at, commit_id.

A plain tuple, so that a row of a query is one already: reading a cell is the
hottest path there is.
"""


class CellChange(msgspec.Struct, frozen=True):
    """A write that a watch tells of; `cell` is None when the cell was deleted.

    `replay` is True for what came before the marker. `cursor` is where to go on after this
    change, None as long as that is only possible from the start.
    """

    name: str
    cell: Cell | None
    replay: bool
    cursor: str | None


class StoredChange(NamedTuple):
    """A version as the log has it; `payload` is None when the cell was deleted.

    Its commit id is the position's `seq`.
    """

    position: Position
    name: str
    payload: str | None
    version: int
    updated_at: int


class ListedCell(NamedTuple):
    """A cell that is there; `recent` if the branch wrote it above the position asked about."""

    name: str
    payload: str
    version: int
    updated_at: int
    commit_id: int
    recent: bool


class Retention(NamedTuple):
    """How much history each cell keeps. The newest version always stays.

    `versions`: the newest so many. `age_us`: what was current at some moment within that time.
    """

    versions: int | None = None
    age_us: int | None = None

    @classmethod
    def of(cls, history: History) -> Retention:
        """The retention that StoreConfig's `history` asks for."""
        if history == "all":
            return cls()
        if isinstance(history, int):
            return cls(versions=history)
        return cls(age_us=duration_us(history, name="history"))


class CellsBackend(Protocol):
    """What a backend must do for cells.

    Whatever names a branch raises NotFound when there is no such branch. `main` always is.
    """

    def write(self, writes: Sequence[CellWrite], size: int) -> Awaitable[Sequence[CellOutcome]]:
        """Apply the writes in one atomic commit and answer each, in order.

        `size` is what the payloads add up to: a backend gathers so much into a commit, no more.
        All writes of a call are on the same branch.

        A write whose `op_id` its cell already knows changes nothing and gets its first answer.
        """

    async def get(self, key: CellKey) -> StoredCell | None:
        """The newest version of the cell, None when it is absent or deleted."""

    async def get_many(
        self, namespace: str, branch: str, names: Sequence[str]
    ) -> dict[str, StoredCell]:
        """The newest version of each cell that is there, by name; at most a page of them."""

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """The version that was current at the instant."""

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """Versions below the commit, newest first; tombstones are left out."""

    async def names(
        self, namespace: str, branch: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """Look at the next `limit` cells above `after` in byte order.

        Returns the names of those that are not deleted, and the last one looked at, None at
        the end.
        """

    async def prune(
        self, namespace: str, branch: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """Drop what retention no longer keeps from the next `limit` cells above `after`.

        What another branch can see through this one stays, out of this one's sight.

        Returns how many versions went, and the last name looked at, None at the end.
        """


class CellLog(Protocol):
    """What a backend must do for watches of cells. A missing branch is NotFound here too."""

    async def page(
        self,
        namespace: str,
        branch: str,
        *,
        prefix: str,
        exact: bool,
        after: str | None,
        limit: int,
        since: Position,
    ) -> tuple[int, list[ListedCell], str | None]:
        """Like `CellsBackend.names`, with the branch's id and the cells themselves.

        If `exact`, only the cell whose name is the prefix.
        """

    async def position(self) -> Position:
        """Where the log of changes ends: whatever commits from now on lies above."""

    async def end(self) -> Position:
        """Whatever has been committed so far does not lie above this."""

    async def changes(
        self, namespace: str, branch: str, *, prefix: str, exact: bool, after: Position, limit: int
    ) -> tuple[int, Page[StoredChange]]:
        """The branch's id, and what was written to it itself, above the position.

        Looks at the next `limit` changes of the log. What retention dropped is left out.
        """


def check_cell_name(name: str) -> str:
    """The name itself, when a user may use it."""
    if type(name) is str and _plain(name):
        return name
    check_name(name, what="cell name")
    if name.startswith(RESERVED_PREFIXES):
        raise InvalidArgument(f"cell name {name!r}: {' and '.join(RESERVED_PREFIXES)} are reserved")
    return name


def check_expected(expected: int | None, name: str) -> int:
    """The expectation of a cas, as a write carries it."""
    if type(expected) is int and 0 < expected <= INT64_MAX:
        return expected  # as nearly always
    if expected is None:
        return ABSENT
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 1:
        raise InvalidArgument(
            f"cell {name!r}: expected version must be 1 or more, or None for "
            f"'create if absent'; found {expected!r}"
        )
    return min(expected, INT64_MAX)  # no cell ever gets there, and engines count to there


def no_branch(branch: str) -> NotFound:
    """The error for a branch that does not exist."""
    return NotFound(f"branch {branch!r}: not found", branch=branch)

"""Cells on SQLite: the rule of facets/cells.py, decided in Python under the one writer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.backends.sql.cells import (
    NO_BRANCH,
    CellBatches,
    CellPage,
    CellQueries,
    SqlCells,
    Trimmed,
)
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.codec import INT64_MAX
from holdfast.facets.branches import MAIN_ID, Operation
from holdfast.facets.cells import (
    ANY,
    MAIN,
    CellKey,
    CellOutcome,
    CellWrite,
    Retention,
    StoredCell,
)

_OWN = load(__package__, "cells.sql", SQLITE)
_GET_NEWEST, _ADD_VERSION = (_OWN[name] for name in ("get_newest", "add_version"))
_WRITE_SLICE = 4  # a write adds one version, so looking at four old ones always catches up
_PRUNE_SLICE = 10  # of each cell in one transaction: the loop waits for it

# A cell that never was: version, deleted, updated_at, commit_id.
NEVER = (0, True, 0, 0)

Place = tuple[str, int, str]
"""Where a cell is inside the engine: namespace, branch id, name."""

Newest = tuple[int, bool, int, int]
"""A cell's newest version: version, deleted, updated_at, commit id."""


class SqliteCells(SqlCells):
    """See CellsBackend."""

    def __init__(self, db: SqliteScope, retention: Retention) -> None:
        trim = TrimCells(retention)
        batches = CellBatches(write=WriteCells(trim), trim=trim)
        own = CellQueries(
            get_on_branch=_OWN["get_branch_cell"],
            names_now=_OWN["list_names"],
            names_upto=_OWN["list_names"],
            states=_OWN["get_states"],
            position=_OWN["find_position"],
            end=_OWN["find_position"],
            changes=_OWN["read_changes"],
            spell_names=json.dumps,
        )
        super().__init__(db, SQLITE, batches, own)
        self._sqlite = db
        self._get = _OWN["get_cell"]

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        namespace, branch, name = key
        if branch != MAIN:
            return await self.get_on_branch(key)
        found = await self._sqlite.row(self._get, (namespace, name))
        return None if found is None or found[0] is None else found


class WriteCells:
    """Sets, swaps and deletes, one after the other: the same cell may come many times."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    def apply(
        self, on: SqliteConnection, items: Sequence[CellWrite], *, repeat: bool
    ) -> list[CellOutcome]:
        """See Batch."""
        now, commit_id, forked, _ = on.moments.begin()
        cells: dict[Place, Newest] = on.moments.notes
        outcomes: list[CellOutcome] = []
        for write in items:
            namespace, branch, name = write.key
            payload = write.payload
            branch_id = MAIN_ID if branch == MAIN else find_branch(on, namespace, branch)
            if branch_id is None:
                outcomes.append(NO_BRANCH)
                continue
            place = (namespace, branch_id, name)
            if repeat or write.op_given:
                known = _known(on, write, place)
                if known is not None:
                    outcomes.append(known)
                    continue
            counter, deleted, updated_at, _ = (
                cells.get(place) or get_newest(on, place) or inherited(on, place) or NEVER
            )
            live = 0 if deleted else counter
            if write.expected not in (live, ANY) or (payload is None and not live):
                outcomes.append(CellOutcome(applied=False, version=live))
                continue
            version = counter if payload is None else counter + 1
            updated_at = max(now, updated_at)  # never back, also when the clock was
            commit_id += 1
            row = (
                commit_id, namespace, branch_id, name, version, updated_at,
                write.op_id, write.op_given, payload,
            )  # fmt: skip
            on.execute(_ADD_VERSION, row)
            cells[place] = (version, payload is None, updated_at, commit_id)
            if self._trim.needed:
                newest = (version, commit_id)
                self._trim.cell(on, place, newest, now, _WRITE_SLICE, forked=forked)
            outcomes.append(CellOutcome(applied=True, version=version))
        on.moments.gave_out(commit_id)
        return outcomes


class TrimCells:
    """Drops the versions that retention does not keep."""

    def __init__(self, retention: Retention) -> None:
        self.needed = retention != Retention()
        self._versions = INT64_MAX if retention.versions is None else retention.versions
        self._age_us = retention.age_us

    def apply(
        self, on: SqliteConnection, items: Sequence[CellPage], *, repeat: bool
    ) -> list[Trimmed]:
        """See Batch."""
        del repeat  # trimming again is always safe
        if not self.needed:
            return [Trimmed(0, 0)] * len(items)
        now, _, forked, _ = on.moments.begin()
        return [self._page(on, cells, now, forked=forked) for cells in items]

    def cell(
        self,
        on: SqliteConnection,
        place: Place,
        newest: tuple[int, int],
        now: int,
        slice_: int,
        *,
        forked: bool,
    ) -> Trimmed:
        """What became of the cell's oldest `slice_` versions; `newest` is version and commit."""
        namespace, branch_id, name = place
        version, commit_id = newest
        params = {
            "namespace": namespace,
            "branch_id": branch_id,
            "name": name,
            "slice": slice_,
            "newest_version": version,
            "newest_commit": commit_id,
            "versions": self._versions,
            "cutoff": -1 if self._age_us is None else now - self._age_us,
        }
        if not forked:
            rows = on.execute(_OWN["trim_cell"], params).fetchall()
            return Trimmed(sum(not hidden for (hidden,) in rows), len(rows))
        old = on.execute(_OWN["list_old"], params).fetchall()
        for old_commit, _, seen in old:
            on.execute(_OWN["hide_version" if seen else "drop_version"], (old_commit,))
        return Trimmed(sum(not hidden for _, hidden, _ in old), len(old))

    def _page(self, on: SqliteConnection, cells: CellPage, now: int, *, forked: bool) -> Trimmed:
        branch_id = find_branch(on, cells.namespace, cells.branch)
        gone = touched = 0
        for name in cells.names if branch_id is not None else ():
            place = (cells.namespace, branch_id or MAIN_ID, name)
            version, _, _, commit_id = on.execute(_GET_NEWEST, place).get or NEVER
            newest = (version, commit_id)
            trimmed = self.cell(on, place, newest, now, _PRUNE_SLICE, forked=forked)
            gone += trimmed.gone
            touched += trimmed.touched
        return Trimmed(gone, touched)


def find_branch(on: SqliteConnection, namespace: str, branch: str) -> int | None:
    """The branch's id, None when there is none of that name."""
    if branch == MAIN:
        return MAIN_ID
    found: int | None = on.execute(_OWN["find_branch"], (namespace, branch)).get
    return found


def inherited(on: SqliteConnection, place: Place) -> Newest | None:
    """The cell as it was where the branch begins, like get_newest."""
    namespace, branch_id, name = place
    if branch_id == MAIN_ID:
        return None
    params = {"namespace": namespace, "branch_id": branch_id, "name": name}
    found: Newest | None = on.execute(_OWN["get_inherited"], params).get
    return found


def get_newest(on: SqliteConnection, place: Place) -> Newest | None:
    """The newest version on the branch itself."""
    found: Newest | None = on.execute(_GET_NEWEST, place).get
    return found


def put_versions(
    on: SqliteConnection,
    trim: TrimCells,
    namespace: str,
    branch_id: int,
    cells: Iterable[tuple[str, str | None, int]],
    *,
    operation: Operation,
) -> None:
    """Write cells (name, payload, version) whose versions were decided before."""
    now, commit_id, forked, _ = on.moments.begin()
    for name, payload, version in cells:
        commit_id += 1
        place = (namespace, branch_id, name)
        _, _, updated_at, _ = get_newest(on, place) or inherited(on, place) or NEVER
        on.execute(
            _ADD_VERSION, (commit_id, *place, version, max(now, updated_at), *operation, payload)
        )
        if trim.needed:
            trim.cell(on, place, (version, commit_id), now, _WRITE_SLICE, forked=forked)


def list_names(
    on: SqliteConnection, level: tuple[str, int, int], first: str, end: str
) -> list[tuple[str, bool | None]]:
    """All names that a level (namespace, branch id, last commit) has, as SqlCells.level_names."""
    namespace, branch_id, upto = level
    params = {
        "namespace": namespace,
        "branch_id": branch_id,
        "upto": upto,
        "first": first,
        "end": end,
        "limit": -1,
    }
    rows: list[Any] = on.execute(_OWN["list_names"], params).fetchall()
    return rows


def is_own_op(on: SqliteConnection, op_id: bytes, place: Place) -> bool:
    """True if the cell has a version of that operation, whose id was the store's own."""
    return on.execute(_OWN["find_own_op"], (op_id, *place)).get is not None


def _known(on: SqliteConnection, write: CellWrite, place: Place) -> CellOutcome | None:
    """The first answer, when this operation has been done before."""
    query = _OWN["find_op" if write.op_given else "find_own_op"]
    found = on.execute(query, (write.op_id, *place)).get
    return None if found is None else CellOutcome(applied=True, version=found)

"""Cells on SQLite: the rule of facets/cells.py, decided in Python under the one writer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.cells import CellBatches, CellPage, SqlCells
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.clock import machine_us
from holdfast.codec import INT64_MAX
from holdfast.errors import Corrupt
from holdfast.facets.cells import (
    ANY,
    CellKey,
    CellOutcome,
    CellWrite,
    Retention,
    StoredCell,
)

_OWN = load(__package__, "cells.sql", SQLITE)
_BEGIN_COMMIT, _GET_NEWEST, _ADD_VERSION = (
    _OWN[name] for name in ("begin_commit", "get_newest", "add_version")
)
_WRITE_SLICE = 4  # a write adds one version, so looking at four old ones always catches up
_PRUNE_SLICE = 10  # of each cell in one transaction: the loop waits for it

# A cell that never was: version, deleted, updated_at, commit_id.
_NEVER = (0, True, 0, 0)


class SqliteCells(SqlCells):
    """See CellsBackend."""

    def __init__(self, db: SqliteScope, retention: Retention) -> None:
        trim = TrimCells(retention)
        batches = CellBatches(write=WriteCells(trim), trim=trim)
        super().__init__(db, SQLITE, batches, list_names=_OWN["list_names"])
        self._sqlite = db
        self._get = _OWN["get_cell"]

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        # A key is the query's parameters in their order, which saves building a dict.
        found = await self._sqlite.row(self._get, key)
        return None if found is None or found[0] is None else found


class WriteCells:
    """Sets, swaps and deletes, one after the other: the same cell may come many times."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    async def apply(
        self, on: SqliteConnection, items: Sequence[CellWrite], *, repeat: bool
    ) -> list[CellOutcome]:
        """See Batch."""
        now, commit_id = _begin_commit(on)
        outcomes: list[CellOutcome] = []
        for write in items:
            outcome = _known(on, write) if repeat or write.op_given else None
            if outcome is None:
                outcome = self._write(on, write, now, commit_id + 1)
                commit_id += outcome.applied
            outcomes.append(outcome)
        return outcomes

    def _write(
        self, on: SqliteConnection, write: CellWrite, now: int, commit_id: int
    ) -> CellOutcome:
        key, expected, payload, op_id, op_given = write
        counter, deleted, updated_at, _ = on.execute(_GET_NEWEST, key).get or _NEVER
        live = 0 if deleted else counter
        if expected not in (ANY, live) or (payload is None and not live):
            return CellOutcome(applied=False, version=live)
        version = counter if payload is None else counter + 1
        updated_at = max(now, updated_at)  # never back, also when the clock was
        row = (commit_id, *key, version, updated_at, op_id, op_given, payload)
        on.execute(_ADD_VERSION, row)
        if self._trim.needed:
            self._trim.cell(on, key, newest=(version, commit_id), now=now, slice_=_WRITE_SLICE)
        return CellOutcome(applied=True, version=version)


class TrimCells:
    """Drops the versions that retention does not keep."""

    def __init__(self, retention: Retention) -> None:
        self.needed = retention != Retention()
        self._versions = INT64_MAX if retention.versions is None else retention.versions
        self._age_us = retention.age_us

    async def apply(
        self, on: SqliteConnection, items: Sequence[CellPage], *, repeat: bool
    ) -> list[int]:
        """See Batch."""
        del repeat  # trimming again is always safe
        if not self.needed:
            return [0] * len(items)
        now, _ = _begin_commit(on)
        return [self._page(on, cells, now) for cells in items]

    def cell(
        self,
        on: SqliteConnection,
        key: CellKey,
        *,
        newest: tuple[int, int],
        now: int,
        slice_: int,
    ) -> int:
        """How many versions went, out of the cell's oldest `slice_`."""
        namespace, name = key
        version, commit_id = newest
        params = {
            "namespace": namespace,
            "name": name,
            "slice": slice_,
            "newest_version": version,
            "newest_commit": commit_id,
            "versions": self._versions,
            "cutoff": -1 if self._age_us is None else now - self._age_us,
        }
        return len(on.execute(_OWN["trim_cell"], params).fetchall())

    def _page(self, on: SqliteConnection, cells: CellPage, now: int) -> int:
        gone = 0
        for name in cells.names:
            key = (cells.namespace, name)
            version, _, _, commit_id = on.execute(_GET_NEWEST, key).get or _NEVER
            gone += self.cell(on, key, newest=(version, commit_id), now=now, slice_=_PRUNE_SLICE)
        return gone


def _known(on: SqliteConnection, write: CellWrite) -> CellOutcome | None:
    """The first answer, when this operation has been done before."""
    namespace, name = write.key
    query = _OWN["find_op" if write.op_given else "find_own_op"]
    found = on.execute(query, {"op_id": write.op_id, "namespace": namespace, "name": name}).get
    return None if found is None else CellOutcome(applied=True, version=found)


def _begin_commit(on: SqliteConnection) -> tuple[int, int]:
    """The time by the store's clock, and the last commit id that was given out."""
    state = on.execute(_BEGIN_COMMIT).get
    if state is None:  # guessing a commit id could hide newer versions behind older ones
        raise Corrupt("SQLite: the row of holdfast_store_state is missing")
    offset, commit_id = state
    return machine_us() + offset, commit_id

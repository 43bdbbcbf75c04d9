"""Cells on SQLite: the rule of facets/cells.py, decided in Python under the one writer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.cells import CellBatches, CellRange, SqlCells
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.db import SqliteDb
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
_WRITE_SLICE = 4  # a write adds one version, so looking at four old ones always catches up
_PRUNE_SLICE = 100


class SqliteCells(SqlCells):
    """See CellsBackend."""

    def __init__(self, db: SqliteDb, retention: Retention) -> None:
        trim = TrimCells(retention)
        super().__init__(db, SQLITE, CellBatches(write=WriteCells(trim), trim=trim))
        self._sqlite = db
        self._get = _OWN["get_cell"]

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        # A key is the query's parameters in their order, which saves building a dict.
        return await self._sqlite.row(self._get, key)


class WriteCells:
    """Sets, swaps and deletes, one after the other: the same cell may come many times."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    async def apply(
        self, on: SqliteConnection, items: Sequence[CellWrite], *, repeat: bool
    ) -> list[CellOutcome]:
        """See Batch."""
        offset, commit_id = _begin_commit(on)
        now = machine_us() + offset
        outcomes: list[CellOutcome] = []
        for write in items:
            outcome = self._known(on, write) if repeat or write.op_given else None
            if outcome is None:
                outcome = self._write(on, write, now=now, commit_id=commit_id + 1)
                commit_id += outcome.applied
            outcomes.append(outcome)
        return outcomes

    def _known(self, on: SqliteConnection, write: CellWrite) -> CellOutcome | None:
        """The first answer, when this operation has been done before."""
        namespace, name = write.key
        params = {"op_id": write.op_id, "namespace": namespace, "name": name}
        rows = on.rows(_OWN["find_op"], params)
        return CellOutcome(applied=True, version=rows[0][0]) if rows else None

    def _write(
        self, on: SqliteConnection, write: CellWrite, *, now: int, commit_id: int
    ) -> CellOutcome:
        (namespace, name), expected, payload, op_id, _ = write
        head = on.row(_OWN["get_head"], write.key)
        counter, deleted, updated_at = head or (0, True, 0)
        live = 0 if deleted else counter
        if expected not in (ANY, live) or (payload is None and not live):
            return CellOutcome(applied=False, version=live)
        version = counter if payload is None else counter + 1
        row = {
            "commit_id": commit_id,
            "namespace": namespace,
            "name": name,
            "version": version,
            "updated_at": max(now, updated_at),  # never back, also when the clock was
            "op_id": op_id,
            "value": payload,
        }
        on.rows(_OWN["add_version"], row)
        on.rows(_OWN["put_head"], row)
        if self._trim.needed:
            self._trim.cells(on, CellRange(namespace, name, name), now, _WRITE_SLICE)
        return CellOutcome(applied=True, version=version)


class TrimCells:
    """Drops the versions that retention does not keep."""

    def __init__(self, retention: Retention) -> None:
        self.needed = retention != Retention()
        self._versions = INT64_MAX if retention.versions is None else retention.versions
        self._age_us = retention.age_us

    async def apply(
        self, on: SqliteConnection, items: Sequence[CellRange], *, repeat: bool
    ) -> list[int]:
        """See Batch."""
        del repeat  # trimming again is always safe
        offset, _ = _begin_commit(on)
        now = machine_us() + offset
        return [self.cells(on, cells, now, _PRUNE_SLICE) for cells in items]

    def cells(self, on: SqliteConnection, cells: CellRange, now: int, slice_: int) -> int:
        """How many versions went, out of the oldest `slice_` of each cell in the range."""
        if not self.needed:
            return 0
        params = {
            "namespace": cells.namespace,
            "first": cells.first,
            "last": cells.last,
            "slice": slice_,
            "versions": self._versions,
            "cutoff": -1 if self._age_us is None else now - self._age_us,
        }
        return len(on.rows(_OWN["trim_cells"], params))


def _begin_commit(on: SqliteConnection) -> tuple[int, int]:
    """The clock's offset, and the last commit id that was given out."""
    state = on.row(_OWN["begin_commit"], {})
    if state is None:  # guessing a commit id could hide newer versions behind older ones
        raise Corrupt("SQLite: the row of holdfast_store_state is missing")
    offset, commit_id = state
    return offset, commit_id

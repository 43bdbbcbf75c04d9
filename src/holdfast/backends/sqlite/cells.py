"""Writing cells on SQLite: the rule of facets/cells.py, decided under the one writer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.cells import CellBatches, CellRange
from holdfast.backends.sql.db import Connection
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.clock import machine_us
from holdfast.codec import INT64_MAX
from holdfast.facets.cells import (
    ANY,
    CellKey,
    CellOutcome,
    CellWrite,
    Retention,
    StoredCell,
)

_SHARED = load("holdfast.backends.sql", "cells.sql", SQLITE)
_OWN = load(__package__, "cells.sql", SQLITE)
_WRITE_SLICE = 4  # a write adds one version, so looking at four old ones always catches up
_PRUNE_SLICE = 1000


def batches(retention: Retention) -> CellBatches:
    """The batch operations of cells on SQLite."""
    trim = TrimCells(retention)
    return CellBatches(read=ReadCells(), write=WriteCells(trim), trim=trim)


class ReadCells:
    """The newest version of each cell."""

    async def apply(
        self, on: Connection, items: Sequence[CellKey], *, repeat: bool
    ) -> list[StoredCell | None]:
        """See Batch."""
        del repeat  # reading again is always safe
        query = _SHARED["get_cell"]
        found: list[StoredCell | None] = []
        for namespace, name in items:
            rows = await on.fetch(query, {"namespace": namespace, "name": name})
            found.append(StoredCell(*rows[0]) if rows else None)
        return found


class WriteCells:
    """Sets, swaps and deletes, one after the other: the same cell may come many times."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    async def apply(
        self, on: Connection, items: Sequence[CellWrite], *, repeat: bool
    ) -> list[CellOutcome]:
        """See Batch."""
        ((offset, commit_id),) = await on.fetch(_OWN["begin_commit"], {})
        now = machine_us() + offset
        outcomes: list[CellOutcome] = []
        for write in items:
            outcome = await self._known(on, write) if repeat or write.op_given else None
            if outcome is None:
                outcome = await self._write(on, write, now=now, commit_id=commit_id + 1)
                commit_id += outcome.applied
            outcomes.append(outcome)
        return outcomes

    async def _known(self, on: Connection, write: CellWrite) -> CellOutcome | None:
        """The first answer, when this operation has been done before."""
        namespace, name = write.key
        params = {"op_id": write.op_id, "namespace": namespace, "name": name}
        rows = await on.fetch(_OWN["find_op"], params)
        return CellOutcome(applied=True, version=rows[0][0]) if rows else None

    async def _write(
        self, on: Connection, write: CellWrite, *, now: int, commit_id: int
    ) -> CellOutcome:
        (namespace, name), expected, payload, op_id, _ = write
        rows = await on.fetch(_OWN["get_head"], {"namespace": namespace, "name": name})
        counter, deleted, updated_at = rows[0] if rows else (0, True, 0)
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
        await on.fetch(_OWN["add_version"], row)
        await on.fetch(_OWN["put_head"], row)
        if self._trim.needed:
            await self._trim.cells(on, CellRange(namespace, name, name), now, _WRITE_SLICE)
        return CellOutcome(applied=True, version=version)


class TrimCells:
    """Drops the versions that retention does not keep."""

    def __init__(self, retention: Retention) -> None:
        self.needed = retention != Retention()
        self._versions = INT64_MAX if retention.versions is None else retention.versions
        self._age_us = retention.age_us

    async def apply(self, on: Connection, items: Sequence[CellRange], *, repeat: bool) -> list[int]:
        """See Batch."""
        del repeat  # trimming again is always safe
        ((offset, _),) = await on.fetch(_OWN["begin_commit"], {})
        now = machine_us() + offset
        return [await self.cells(on, cells, now, _PRUNE_SLICE) for cells in items]

    async def cells(self, on: Connection, cells: CellRange, now: int, slice_: int) -> int:
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
        return len(await on.fetch(_OWN["trim_cells"], params))

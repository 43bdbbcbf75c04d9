"""Cells on PostgreSQL: each batch is one statement, one round trip, one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.backends.postgres.arrays import bigints, texts, uuids
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.cells import (
    NO_BRANCH,
    CellBatches,
    CellPage,
    CellQueries,
    SqlCells,
    Trimmed,
)
from holdfast.backends.sql.queries import Dialect, load
from holdfast.codec import INT64_MAX
from holdfast.errors import Unavailable
from holdfast.facets.cells import (
    ABSENT,
    MAIN,
    CellKey,
    CellOutcome,
    CellWrite,
    Retention,
    StoredCell,
)

_PRUNE_SLICE = 100
_NO_BRANCH = -(2**63)
_UNCERTAIN = CellOutcome(applied=False, version=-1)


class PostgresCells(SqlCells):
    """See CellsBackend."""

    def __init__(self, db: PostgresScope, dialect: Dialect, retention: Retention) -> None:
        queries = load(__package__, "cells.sql", dialect)
        keep = Keep(retention)
        batches = CellBatches(
            write=WriteCells(queries, keep),
            trim=TrimCells(queries["prune_cells"], keep),
        )
        own = CellQueries(
            get_on_branch=queries["get_branch_cell"],
            names_now=queries["list_names"],
            names_upto=queries["list_names_upto"],
            states=queries["get_states"],
            position=queries["find_position"],
            end=queries["find_end"],
            changes=queries["read_changes"],
            spell_names=texts,
        )
        super().__init__(db, dialect, batches, own)
        self._postgres = db
        self._read = ReadCells(queries["get_cells"])

    async def write(self, writes: Sequence[CellWrite], size: int) -> Sequence[CellOutcome]:
        """See CellsBackend."""
        outcomes = await super().write(writes, size)
        if _UNCERTAIN in outcomes:
            raise Unavailable(
                f"cell {writes[0].key[-1]!r}: the connection was lost, and what became of the "
                "first try cannot be told",
                outcome_unknown=True,
            )
        return outcomes

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        if key[1] != MAIN:
            return await self.get_on_branch(key)
        (found,) = await self._postgres.read(self._read, [key])
        return found


class Keep:
    """Retention as the functions take it: both None when everything is kept."""

    def __init__(self, retention: Retention) -> None:
        self.needed = retention != Retention()
        self.versions: int | None = None
        if self.needed:
            self.versions = INT64_MAX if retention.versions is None else retention.versions
        self.age_us = retention.age_us


class ReadCells:
    """The newest version of each cell, on `main`."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[CellKey], *, repeat: bool
    ) -> list[StoredCell | None]:
        """See Batch."""
        del repeat  # reading again is always safe
        params = {
            "namespaces": texts(namespace for namespace, _, _ in items),
            "names": texts(name for _, _, name in items),
        }
        rows = await on.fetch(self._query, params)
        return [row if row[0] is not None else None for row in rows]


class WriteCells:
    """Sets, swaps and deletes; the same cell may come many times."""

    def __init__(self, queries: Mapping[str, str], keep: Keep) -> None:
        self._live = queries["write_live_cell"]
        self._one = queries["write_cell"]
        self._many = queries["write_cells"]
        self._keep = keep

    async def apply(
        self, on: PgConnection, items: Sequence[CellWrite], *, repeat: bool
    ) -> list[CellOutcome]:
        """See Batch."""
        if len(items) > 1:
            rows = await on.fetch(self._many, self._arrays(items, repeat=repeat))
        elif repeat or self._keep.needed or not _to_live_cell(items[0]):
            rows = await on.fetch(self._one, self._params(items[0], repeat=repeat))
        else:
            rows = await on.fetch(self._live, _live_params(items[0]))
        # An applied write is safe: its operation id is taken now, so a first try that the
        # server has yet to run must fail. A refusal leaves no such mark.
        return [_outcome(answer, repeat=repeat) for (answer,) in rows]

    def _params(self, write: CellWrite, *, repeat: bool) -> dict[str, object]:
        """A caller alone is spared the arrays, and the server their unpacking and sorting."""
        namespace, branch, name = write.key
        return {
            "namespace": namespace,
            "branch": branch,
            "name": name,
            "expected": str(write.expected),  # as text: an int's type would depend on its size
            "value": write.payload,
            "op_id": write.op_id.hex(),
            "look_up": repeat or write.op_given,
            "repeat": repeat,
            "versions": self._keep.versions,
            "age_us": self._keep.age_us,
        }

    def _arrays(self, items: Sequence[CellWrite], *, repeat: bool) -> dict[str, object]:
        return {
            "namespaces": texts(write.key[0] for write in items),
            "branches": texts(write.key[1] for write in items),
            "names": texts(write.key[2] for write in items),
            "expected": bigints(write.expected for write in items),
            "values": texts(write.payload for write in items),
            "op_ids": uuids(write.op_id for write in items),
            "look_up": repeat or any(write.op_given for write in items),
            "repeat": repeat,
            "versions": self._keep.versions,
            "age_us": self._keep.age_us,
        }


def _to_live_cell(write: CellWrite) -> bool:
    """True for what changes a cell of `main` that is there, and cannot be a repeat."""
    return (
        write.expected != ABSENT
        and write.payload is not None
        and write.key[1] == MAIN
        and not write.op_given
    )


def _live_params(write: CellWrite) -> dict[str, object]:
    namespace, _, name = write.key
    return {
        "namespace": namespace,
        "name": name,
        "expected": str(write.expected),
        "value": write.payload,
        "op_id": write.op_id.hex(),
    }


def _outcome(answer: int | None, *, repeat: bool) -> CellOutcome:
    """What hf.write_cell's number says."""
    if answer == _NO_BRANCH:
        return NO_BRANCH
    if answer is None or (repeat and answer < 0):
        return _UNCERTAIN
    if answer < 0:
        return CellOutcome(applied=False, version=-1 - answer)
    return CellOutcome(applied=True, version=answer)


class TrimCells:
    """Drops the versions that retention does not keep."""

    def __init__(self, query: str, keep: Keep) -> None:
        self._query = query
        self._keep = keep

    async def apply(
        self, on: PgConnection, items: Sequence[CellPage], *, repeat: bool
    ) -> list[Trimmed]:
        """See Batch."""
        del repeat  # trimming again is always safe
        if not self._keep.needed:
            return [Trimmed(0, 0)] * len(items)
        return [await self._trim(on, cells) for cells in items]

    async def _trim(self, on: PgConnection, cells: CellPage) -> Trimmed:
        params = {
            "namespace": cells.namespace,
            "branch": cells.branch,
            "first": cells.names[0],
            "last": cells.names[-1],
            "slice": _PRUNE_SLICE,
            "versions": self._keep.versions,
            "age_us": self._keep.age_us,
        }
        (((gone, touched),),) = await on.fetch(self._query, params)
        return Trimmed(gone, touched)

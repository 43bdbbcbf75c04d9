"""The half of cells that is the same on every SQL engine; `cells.sql` shows the tables.

Writing is each engine's own: SQLite decides in Python under its one writer,
PostgreSQL in a function, so that an operation stays one round trip.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from holdfast.backends.sql.db import Batch, Db
from holdfast.backends.sql.queries import Dialect, load
from holdfast.codec import INT64_MAX
from holdfast.facets.cells import CellKey, CellOutcome, CellWrite, StoredCell
from holdfast.facets.names import next_name, prefix_end


class CellPage(NamedTuple):
    """Some cells of a namespace that follow each other in byte order, none left out."""

    namespace: str
    names: list[str]


class CellBatches(NamedTuple):
    """The operations of cells that each engine writes its own way."""

    write: Batch[CellWrite, CellOutcome]
    trim: Batch[CellPage, int]  # drops what retention does not keep, answers how many versions


class SqlCells:
    """Cells on an SQL engine; each engine adds its own `get`, the hottest path there is."""

    def __init__(self, db: Db, dialect: Dialect, batches: CellBatches, *, list_names: str) -> None:
        self._db = db
        self._batches = batches
        self._queries = load(__package__, "cells.sql", dialect)
        self._list_names = list_names

    def write(
        self, writes: Sequence[CellWrite], size: int
    ) -> Coroutine[Any, Any, Sequence[CellOutcome]]:
        """See CellsBackend."""
        return self._db.write(self._batches.write, writes, size)

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """See CellsBackend."""
        namespace, name = key
        params = {"namespace": namespace, "name": name, "at": at_us}
        rows = await self._db.fetch(self._queries["get_cell_at"], params)
        # The queries' columns are a StoredCell as they come.
        return rows[0] if rows and rows[0][0] is not None else None

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """See CellsBackend."""
        namespace, name = key
        params = {
            "namespace": namespace,
            "name": name,
            "before": INT64_MAX if before_commit is None else before_commit,
            "limit": limit,
        }
        return await self._db.fetch(self._queries["list_versions"], params)

    async def names(
        self, namespace: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """See CellsBackend."""
        rows = await self._page(namespace, prefix=prefix, after=after, limit=limit)
        names = [name for name, deleted in rows if not deleted]
        return names, rows[-1][0] if len(rows) == limit else None

    async def prune(
        self, namespace: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """See CellsBackend."""
        # Deleted cells too: their history is pruned like any other.
        rows = await self._page(namespace, prefix="", after=after, limit=limit)
        if not rows:
            return 0, None
        cells = CellPage(namespace, [name for name, _ in rows])
        (gone,) = await self._db.write(self._batches.trim, [cells])
        # A trim takes a bounded slice of each cell: the same page again until nothing goes.
        return gone, after or "" if gone else cells.names[-1]

    async def _page(
        self, namespace: str, *, prefix: str, after: str | None, limit: int
    ) -> list[tuple[str, bool]]:
        params = {
            "namespace": namespace,
            "first": max(prefix, next_name(after)),
            "end": prefix_end(prefix),
            "limit": limit,
        }
        return await self._db.fetch(self._list_names, params)

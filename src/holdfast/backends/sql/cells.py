"""The half of cells that is the same on every SQL engine; `cells.sql` shows the tables.

Writing is each engine's own: SQLite decides in Python under its one writer,
PostgreSQL in a function, so that an operation stays one round trip.

On `main` every read is one statement. From another branch `get` is too; the
others read the branch's lineage (which never changes), then level by level, and
then look whether the branch is still there: while it is, nothing that it sees
can go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.backends.batching import Batch
from holdfast.backends.sql.db import Db, Row
from holdfast.backends.sql.feed import Feed
from holdfast.backends.sql.lineage import Lineages
from holdfast.backends.sql.queries import Dialect, load
from holdfast.codec import INT64_MAX
from holdfast.facets.branches import EVERYTHING, MAIN_ID, Lineage
from holdfast.facets.cells import (
    LOG,
    MAIN,
    CellKey,
    CellOutcome,
    CellWrite,
    ListedCell,
    StoredCell,
    StoredChange,
    no_branch,
)
from holdfast.facets.feed import BEGINNING, Page, Position
from holdfast.facets.names import next_name, prefix_end

NO_BRANCH = CellOutcome(applied=False, version=-2)
"""The outcome of a write to a branch that is not there."""


class CellPage(NamedTuple):
    """Some cells of a branch that follow each other in byte order, none left out."""

    namespace: str
    branch: str
    names: list[str]


class Trimmed(NamedTuple):
    """How many versions retention dropped, and how many rows that changed."""

    gone: int
    touched: int


class CellBatches(NamedTuple):
    """The operations of cells that each engine writes its own way."""

    write: Batch[CellWrite, CellOutcome]
    trim: Batch[CellPage, Trimmed]


class CellQueries(NamedTuple):
    """Queries that engines word differently, and how they take a list of names.

    `names_now` and `names_upto` are for the names of one branch and whether each is deleted,
    now and by some commit. For `position`, `end` and `changes` see sql/feed.py.
    """

    names_now: str
    names_upto: str
    states: str
    position: str
    end: str
    changes: str
    get_on_branch: str
    spell_names: Callable[[Sequence[str]], object]


class SqlCells:
    """Cells on an SQL engine; each engine adds its own `get`, the hottest path there is."""

    def __init__(self, db: Db, dialect: Dialect, batches: CellBatches, own: CellQueries) -> None:
        self._db = db
        self._batches = batches
        self._queries = load(__package__, "cells.sql", dialect)
        self._own = own
        self._feed = Feed(db, position=own.position, end=own.end, changes=own.changes)
        self.position = self._feed.position
        self.end = self._feed.end
        self.lineages = Lineages(db, dialect)

    def write(self, writes: Sequence[CellWrite], size: int) -> Awaitable[Sequence[CellOutcome]]:
        """See CellsBackend."""
        namespace, branch, _ = writes[0].key
        if branch == MAIN:
            return self._db.write(self._batches.write, writes, size, (LOG, namespace))
        return self._write_on_branch(writes, size)

    async def _write_on_branch(
        self, writes: Sequence[CellWrite], size: int
    ) -> Sequence[CellOutcome]:
        namespace, branch, _ = writes[0].key
        outcomes = await self._db.write(self._batches.write, writes, size, (LOG, namespace))
        if NO_BRANCH in outcomes:
            raise no_branch(branch)
        return outcomes

    async def get_on_branch(self, key: CellKey) -> StoredCell | None:
        """What `get` finds on another branch than `main`."""
        namespace, branch, name = key
        params = {"namespace": namespace, "branch": branch, "name": name}
        rows = await self._db.fetch(self._own.get_on_branch, params)
        if not rows:
            raise no_branch(branch)
        return rows[0] if rows[0][0] is not None else None

    async def get_many(
        self, namespace: str, branch: str, names: Sequence[str]
    ) -> dict[str, StoredCell]:
        """See CellsBackend."""
        lineage = await self.lineages.of(namespace, branch)
        rows = await self.states(namespace, names, lineage)
        if branch != MAIN:
            await self.lineages.check(namespace, branch, lineage)
        return {
            name: (payload, version, updated_at, commit_id)
            for name, payload, version, _, updated_at, commit_id, _ in rows
            if payload is not None
        }

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """See CellsBackend."""
        namespace, branch, name = key
        if branch == MAIN:
            return _present(await self._level_at(key, (MAIN_ID, EVERYTHING), at_us))
        lineage = await self.lineages.of(namespace, branch)
        found: StoredCell | None = None
        for level in lineage:
            # Within a cell time rises from level to level too: the first that has any is it.
            found = await self._level_at((namespace, branch, name), level, at_us)
            if found is not None:
                break
        await self.lineages.check(namespace, branch, lineage)
        return _present(found)

    async def _level_at(
        self, key: CellKey, level: tuple[int, int], at_us: int
    ) -> StoredCell | None:
        branch_id, upto = level
        params = {
            "namespace": key[0],
            "branch_id": branch_id,
            "name": key[2],
            "at": at_us,
            "upto": upto,
        }
        rows = await self._db.fetch(self._queries["get_cell_at"], params)
        # The queries' columns are a StoredCell as they come.
        return rows[0] if rows else None

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """See CellsBackend."""
        namespace, branch, name = key
        before = INT64_MAX if before_commit is None else before_commit
        if branch == MAIN:
            params = {"namespace": namespace, "name": name, "before": before, "limit": limit}
            return await self._db.fetch(self._queries["list_versions"], params)
        lineage = await self.lineages.of(namespace, branch)
        versions: list[StoredCell] = []
        for level in lineage:
            whole = await self._add_versions(versions, key, level, before=before, limit=limit)
            if not whole or len(versions) == limit:
                break
        await self.lineages.check(namespace, branch, lineage)
        return versions

    async def _add_versions(
        self,
        versions: list[StoredCell],
        key: CellKey,
        level: tuple[int, int],
        *,
        before: int,
        limit: int,
    ) -> bool:
        """Add what a level shows, up to the limit; False if older history is no longer kept.

        A hidden version shows only as the newest of its level.
        """
        branch_id, upto = level
        newest = before > upto or before == INT64_MAX
        bound = min(upto, before - 1)
        while True:
            params = {
                "namespace": key[0],
                "branch_id": branch_id,
                "name": key[2],
                "upto": bound,
                "limit": limit,
            }
            rows = await self._db.fetch(self._queries["list_level_versions"], params)
            for *stored, hidden in rows:
                if hidden and not newest:
                    return False
                newest = False
                if stored[0] is not None:
                    versions.append((stored[0], stored[1], stored[2], stored[3]))
                if len(versions) == limit:
                    return True
            if len(rows) < limit:
                return True
            bound = rows[-1][3] - 1

    async def names(
        self, namespace: str, branch: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """See CellsBackend."""
        first, end = max(prefix, next_name(after)), prefix_end(prefix)
        if branch == MAIN:
            rows = await self.level_names(namespace, MAIN_ID, first=first, end=end, limit=limit)
            names = [name for name, deleted in rows if not deleted]
            return names, rows[-1][0] if len(rows) == limit else None
        lineage = await self.lineages.of(namespace, branch)
        page = await self._names_through(namespace, lineage, first=first, end=end, limit=limit)
        await self.lineages.check(namespace, branch, lineage)
        return page

    async def _names_through(
        self, namespace: str, lineage: Lineage, *, first: str, end: str, limit: int
    ) -> tuple[list[str], str | None]:
        """The names that exist on the first level that knows them."""
        present: dict[str, bool] = {}
        last: str | None = None
        for branch_id, upto in lineage:
            rows = await self.level_names(
                namespace, branch_id, upto=upto, first=first, end=end, limit=limit
            )
            for name, deleted in rows:
                if deleted is not None:
                    present.setdefault(name, not deleted)
            if len(rows) == limit:
                # This level has more names: whatever lies above is for the next page.
                last = rows[-1][0]
                end = next_name(last)
        return sorted(name for name, here in present.items() if here and name < end), last

    async def level_names(
        self,
        namespace: str,
        branch_id: int,
        *,
        upto: int = EVERYTHING,
        first: str,
        end: str,
        limit: int,
    ) -> list[tuple[str, bool | None]]:
        """Names that a branch itself has, and whether each is deleted; None: not there by then."""
        params = {
            "namespace": namespace,
            "branch_id": branch_id,
            "upto": upto,
            "first": first,
            "end": end,
            "limit": limit,
        }
        query = self._own.names_now if upto == EVERYTHING else self._own.names_upto
        return await self._db.fetch(query, params)

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
        """See CellsBackend."""
        lineage = await self.lineages.of(namespace, branch)
        names, last = [prefix], None
        if not exact:
            names, last = await self.names(
                namespace, branch, prefix=prefix, after=after, limit=limit
            )
        rows = await self.states(namespace, names, lineage, since)
        if branch != MAIN:
            await self.lineages.check(namespace, branch, lineage)
        # One that was deleted between the two reads is left out.
        cells = [ListedCell(row[0], row[1], row[2], *row[4:]) for row in rows if row[1] is not None]
        return lineage[0][0], sorted(cells), last

    async def states(
        self,
        namespace: str,
        names: Sequence[str],
        lineage: Lineage,
        since: Position = BEGINNING,
    ) -> list[Row]:
        """Cells as one sees them who has that lineage; those that never were are left out.

        Columns: name, payload, version, own commit, updated_at, commit id, whether the branch
        itself wrote it above `since`.
        """
        branch_id, upto = lineage[0]
        params = {
            "namespace": namespace,
            "branch_id": branch_id,
            "upto": upto,
            "names": self._own.spell_names(names),
            "since_epoch": since.epoch,
            "since_xid": since.xid,
            "since_seq": since.seq,
        }
        return await self._db.fetch(self._own.states, params) if names else []

    async def changes(
        self, namespace: str, branch: str, *, prefix: str, exact: bool, after: Position, limit: int
    ) -> tuple[int, Page[StoredChange]]:
        """See CellsBackend."""
        branch_id = (await self.lineages.of(namespace, branch))[0][0]
        params = {
            "namespace": namespace,
            "branch_id": branch_id,
            "first": prefix,
            "end": next_name(prefix) if exact else prefix_end(prefix),
        }
        page = await self._feed.read(after, limit, params)
        changes = [StoredChange(position, *change) for position, change in page.changes]
        return branch_id, page.of(changes)

    async def prune(
        self, namespace: str, branch: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """See CellsBackend."""
        lineage = await self.lineages.of(namespace, branch)
        # Deleted cells too: their history is pruned like any other.
        rows = await self.level_names(
            namespace, lineage[0][0], first=next_name(after), end=prefix_end(""), limit=limit
        )
        if not rows:
            return 0, None
        cells = CellPage(namespace, branch, [name for name, _ in rows])
        (trimmed,) = await self._db.write(self._batches.trim, [cells])
        # A trim takes a bounded slice of each cell: the same page again until nothing goes.
        return trimmed.gone, after or "" if trimmed.touched else cells.names[-1]


def _present(stored: StoredCell | None) -> StoredCell | None:
    return stored if stored is not None and stored[0] is not None else None

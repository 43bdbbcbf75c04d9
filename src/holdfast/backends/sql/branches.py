"""The half of branches that is the same on every SQL engine; `branches.sql` shows the tables.

What changes branches is each engine's own: SQLite decides in Python under its
one writer, PostgreSQL in functions under the branch's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.backends.batching import Batch
from holdfast.backends.sql.cells import SqlCells
from holdfast.backends.sql.db import Db
from holdfast.backends.sql.queries import Dialect, load
from holdfast.errors import Conflict
from holdfast.facets.branches import (
    ABSENT_STATE,
    Branch,
    Comparison,
    Difference,
    Lineage,
    MergeResult,
    MergeWrite,
    Operation,
    State,
    apart,
    lineage_base,
    merged_names,
    too_deep,
)
from holdfast.facets.cells import LOG, no_branch
from holdfast.facets.names import next_name, prefix_end


class Fork(NamedTuple):
    """A branch to be made."""

    namespace: str
    name: str
    source: str
    op_id: bytes


class Delete(NamedTuple):
    """A branch to be deleted."""

    namespace: str
    name: str
    op_id: bytes


class BeginMerge(NamedTuple):
    """A merge to begin."""

    namespace: str
    source: str
    target: str
    op_id: bytes


class Begun(NamedTuple):
    """A merge that has begun, or that was done before; an id is None where a branch is missing."""

    source_id: int | None
    target_id: int | None
    source_commit: int | None
    done: bool | None


class EndMerge(NamedTuple):
    """A merge to end."""

    comparison: Comparison
    writes: Sequence[MergeWrite]
    operation: Operation


class BranchBatches(NamedTuple):
    """The operations of branches that each engine writes its own way."""

    fork: Batch[Fork, Branch | str]  # or why not: "no source", "too deep", "taken"
    delete: Batch[Delete, bool]
    purge: Batch[str, bool]
    begin_merge: Batch[BeginMerge, Begun]
    end_merge: Batch[EndMerge, bool]


class Spelling(NamedTuple):
    """A query that engines word differently, and how they take an operation id."""

    list_merged: str
    op_id: Callable[[bytes], bytes | str]


class SqlBranches:
    """See BranchesBackend."""

    def __init__(
        self,
        db: Db,
        dialect: Dialect,
        cells: SqlCells,
        batches: BranchBatches,
        own: Spelling,
    ) -> None:
        self._db = db
        self._cells = cells
        self._lineages = cells.lineages
        self._batches = batches
        self._queries = load(__package__, "branches.sql", dialect)
        self._own = own

    async def fork(self, namespace: str, name: str, source: str, operation: Operation) -> Branch:
        """See BranchesBackend."""
        item = Fork(namespace, name, source, operation.id)
        (outcome,) = await self._db.write(self._batches.fork, [item])
        if isinstance(outcome, Branch):
            return outcome
        if outcome == "no source":
            raise no_branch(source)
        if outcome == "too deep":
            raise too_deep(source)
        raise Conflict(f"branch {name!r}: exists already", branch=name)

    async def page(self, namespace: str, *, after: str, limit: int) -> list[Branch]:
        """See BranchesBackend."""
        params = {"namespace": namespace, "after": after, "limit": limit}
        return [
            Branch(*row) for row in await self._db.fetch(self._queries["list_branches"], params)
        ]

    async def delete(self, namespace: str, name: str, operation: Operation) -> bool:
        """See BranchesBackend."""
        item = Delete(namespace, name, operation.id)
        # Who watches the branch has nothing more to wait for.
        (deleted,) = await self._db.write(self._batches.delete, [item], topic=(LOG, namespace))
        return deleted

    async def purge(self, namespace: str) -> bool:
        """See BranchesBackend."""
        (more,) = await self._db.write(self._batches.purge, [namespace])
        return more

    async def compare(self, namespace: str, source: str, target: str) -> Comparison:
        """See BranchesBackend."""
        return await self._compared(
            namespace,
            await self._lineages.of(namespace, source),
            await self._lineages.of(namespace, target),
        )

    async def begin_merge(
        self, namespace: str, source: str, target: str, operation: Operation
    ) -> Comparison | MergeResult:
        """See BranchesBackend."""
        if operation.given:
            lineage = await self._lineages.of(namespace, target)
            known = await self._merged(namespace, lineage[0][0], operation)
            if known.merged or known.deleted:
                return known
        item = BeginMerge(namespace, source, target, operation.id)
        (begun,) = await self._db.write(self._batches.begin_merge, [item])
        if begun.source_id is None or begun.target_id is None:
            raise no_branch(source if begun.source_id is None else target)
        if begun.done or begun.source_commit is None:
            return await self._merged(namespace, begun.target_id, operation)
        return await self._compared(
            namespace,
            await self._lineages.at(begun.source_id, begun.source_commit),
            await self._lineages.of(namespace, target),
        )

    async def differences(
        self, comparison: Comparison, *, target_too: bool, after: str | None, limit: int
    ) -> tuple[list[Difference], str | None]:
        """See BranchesBackend."""
        namespace, source, target, base = comparison
        levels = apart(source, base) | (apart(target, base) if target_too else set())
        first, end = next_name(after), prefix_end("")
        pages = []
        for branch_id in sorted(levels):
            rows = await self._cells.level_names(
                namespace, branch_id, first=first, end=end, limit=limit
            )
            pages.append([name for name, _ in rows])
        names, last = merged_names(pages, limit)
        sides = [await self._states(namespace, names, side) for side in (base, source, target)]
        return [
            Difference(name, *(side.get(name, ABSENT_STATE) for side in sides)) for name in names
        ], last

    async def end_merge(
        self, comparison: Comparison, writes: Sequence[MergeWrite], operation: Operation
    ) -> bool:
        """See BranchesBackend."""
        item = EndMerge(comparison, writes, operation)
        topic = (LOG, comparison.namespace)
        (done,) = await self._db.write(self._batches.end_merge, [item], topic=topic)
        return done

    async def _compared(self, namespace: str, source: Lineage, target: Lineage) -> Comparison:
        comparison = Comparison(namespace, source, target, base=())
        low, high = comparison.pair
        params = {"namespace": namespace, "low": low, "high": high}
        rows = await self._db.fetch(self._queries["find_merge"], params)
        base = rows[0] if rows else lineage_base(source, target)
        return comparison._replace(base=await self._lineages.at(*base))

    async def _states(
        self, namespace: str, names: Sequence[str], lineage: Lineage
    ) -> dict[str, State]:
        rows = await self._cells.states(namespace, names, lineage)
        return {
            name: State(payload, version, own_commit)
            for name, payload, version, own_commit, *_ in rows
        }

    async def _merged(self, namespace: str, target_id: int, operation: Operation) -> MergeResult:
        """What the operation wrote to its target, as far as it is kept."""
        op_id = self._own.op_id(operation.id)
        params = {"namespace": namespace, "branch_id": target_id, "op_id": op_id}
        rows = await self._db.fetch(self._own.list_merged, params)
        return MergeResult(
            merged={name: version for name, version, deleted in rows if not deleted},
            deleted=[name for name, _, deleted in rows if deleted],
        )

"""Branches on PostgreSQL: each change is one function, one round trip, one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.postgres.arrays import bigints, booleans, texts
from holdfast.backends.postgres.cells import Keep, PostgresCells
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.db import PostgresDb
from holdfast.backends.sql.branches import (
    BeginMerge,
    Begun,
    BranchBatches,
    Delete,
    EndMerge,
    Fork,
    Spelling,
    SqlBranches,
)
from holdfast.backends.sql.queries import Dialect, load
from holdfast.facets.branches import MAX_LEVELS, Branch
from holdfast.facets.cells import Retention

_PURGE_STEP = 5000


class PostgresBranches(SqlBranches):
    """See BranchesBackend."""

    def __init__(
        self, db: PostgresDb, dialect: Dialect, cells: PostgresCells, retention: Retention
    ) -> None:
        queries = load(__package__, "branches.sql", dialect)
        batches = BranchBatches(
            fork=ForkBranch(queries["fork_branch"]),
            delete=DeleteBranch(queries["delete_branch"]),
            purge=PurgeBranches(queries["purge_branches"]),
            begin_merge=BeginMerges(queries["begin_merge"]),
            end_merge=EndMerges(queries["end_merge"], Keep(retention)),
        )
        super().__init__(db, dialect, cells, batches, spelling(dialect))


def spelling(dialect: Dialect) -> Spelling:
    """See Spelling."""
    queries = load(__package__, "branches.sql", dialect)
    return Spelling(queries["list_merged"], op_id=bytes.hex)


class ForkBranch:
    """Makes branches. Each is a statement of its own, and looks its operation up first."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[Fork], *, repeat: bool
    ) -> list[Branch | str]:
        """See Batch."""
        del repeat
        return [await self._fork(on, fork) for fork in items]

    async def _fork(self, on: PgConnection, fork: Fork) -> Branch | str:
        params = {
            "namespace": fork.namespace,
            "name": fork.name,
            "source": fork.source,
            "op_id": fork.op_id.hex(),
            "most_levels": MAX_LEVELS,
        }
        ((outcome, *made),) = await on.fetch(self._query, params)
        return Branch(*made) if outcome == "done" else str(outcome)


class DeleteBranch:
    """Takes branches out of sight."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(self, on: PgConnection, items: Sequence[Delete], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat
        return [await self._delete(on, delete) for delete in items]

    async def _delete(self, on: PgConnection, delete: Delete) -> bool:
        namespace, name, op_id = delete
        params = {"namespace": namespace, "name": name, "op_id": op_id.hex()}
        ((deleted,),) = await on.fetch(self._query, params)
        return bool(deleted)


class PurgeBranches:
    """Frees what deleted branches left, a step at a time."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(self, on: PgConnection, items: Sequence[str], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat
        return [await self._purge(on, namespace) for namespace in items]

    async def _purge(self, on: PgConnection, namespace: str) -> bool:
        ((more,),) = await on.fetch(self._query, {"namespace": namespace, "limit": _PURGE_STEP})
        return bool(more)


class BeginMerges:
    """Draws the cuts of sources, which retention keeps from then on."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[BeginMerge], *, repeat: bool
    ) -> list[Begun]:
        """See Batch."""
        del repeat
        return [await self._begin(on, merge) for merge in items]

    async def _begin(self, on: PgConnection, merge: BeginMerge) -> Begun:
        (row,) = await on.fetch(self._query, merge._asdict() | {"op_id": merge.op_id.hex()})
        return Begun(*row)


class EndMerges:
    """Writes what merges decided."""

    def __init__(self, query: str, keep: Keep) -> None:
        self._query = query
        self._keep = keep

    async def apply(
        self, on: PgConnection, items: Sequence[EndMerge], *, repeat: bool
    ) -> list[bool]:
        """See Batch."""
        del repeat
        return [await self._end(on, merge) for merge in items]

    async def _end(self, on: PgConnection, merge: EndMerge) -> bool:
        (namespace, source, target, _), writes, (op_id, _) = merge
        source_id, source_commit = source[0]
        params = {
            "namespace": namespace,
            "source_id": source_id,
            "target_id": target[0][0],
            "source_commit": source_commit,
            "op_id": op_id.hex(),
            "names": texts(write.name for write in writes),
            "seen": bigints(write.seen for write in writes),
            "write": booleans(write.write for write in writes),
            "values": texts(write.payload for write in writes),
            "new_versions": bigints(write.version for write in writes),
            "versions": self._keep.versions,
            "age_us": self._keep.age_us,
        }
        ((done,),) = await on.fetch(self._query, params)
        return bool(done)

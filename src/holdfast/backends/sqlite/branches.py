"""Branches on SQLite: decided in Python under the one writer."""

from __future__ import annotations

from collections.abc import Sequence

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
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.cells import (
    NEVER,
    SqliteCells,
    TrimCells,
    find_branch,
    get_newest,
    put_versions,
)
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.facets.branches import MAX_LEVELS, Branch, Operation
from holdfast.facets.cells import Retention

_OWN = load(__package__, "branches.sql", SQLITE)
SPELLING = Spelling(_OWN["list_merged"], op_id=bytes)
_PURGE_STEP = 500  # versions in one transaction: the loop waits for it


class SqliteBranches(SqlBranches):
    """See BranchesBackend."""

    def __init__(self, db: SqliteDb, cells: SqliteCells, retention: Retention) -> None:
        batches = BranchBatches(
            fork=ForkBranch(),
            delete=DeleteBranch(),
            purge=PurgeBranches(),
            begin_merge=BeginMerges(),
            end_merge=EndMerges(TrimCells(retention)),
        )
        super().__init__(db, SQLITE, cells, batches, SPELLING)


class ForkBranch:
    """Makes branches: one row each, no cell is read."""

    def apply(
        self, on: SqliteConnection, items: Sequence[Fork], *, repeat: bool
    ) -> list[Branch | str]:
        """See Batch."""
        del repeat  # the operation is always looked up: forks are few
        return [self._fork(on, fork) for fork in items]

    def _fork(self, on: SqliteConnection, fork: Fork) -> Branch | str:
        namespace, name, source, op_id = fork
        known = on.execute(_OWN["find_fork"], (namespace, op_id)).get
        if known is not None:
            return Branch(*known)
        parent_id = find_branch(on, namespace, source)
        if parent_id is None:
            return "no source"
        if on.execute(_OWN["count_levels"], (parent_id,)).get > MAX_LEVELS:
            return "too deep"
        if find_branch(on, namespace, name) is not None:
            return "taken"
        now, commit_id, *_ = on.moments.begin()
        on.execute(_OWN["add_branch"], (namespace, name, parent_id, commit_id, now, op_id))
        return Branch(name, source, commit_id, now)


class DeleteBranch:
    """Takes branches out of sight."""

    def apply(self, on: SqliteConnection, items: Sequence[Delete], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat
        return [self._delete(on, delete) for delete in items]

    def _delete(self, on: SqliteConnection, delete: Delete) -> bool:
        namespace, name, op_id = delete
        branch_id = find_branch(on, namespace, name)
        if branch_id is None:
            return bool(on.execute(_OWN["find_delete"], delete).get)
        now, *_ = on.moments.begin()
        on.execute(_OWN["mark_deleted"], (now, op_id, branch_id))
        on.execute(_OWN["drop_merges"], (namespace, branch_id))
        return True


class PurgeBranches:
    """Frees what deleted branches left, a step at a time."""

    def apply(self, on: SqliteConnection, items: Sequence[str], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat
        return [self._purge(on, namespace) for namespace in items]

    def _purge(self, on: SqliteConnection, namespace: str) -> bool:
        branch_id = on.execute(_OWN["find_purgeable"], (namespace,)).get
        if branch_id is None:
            return False
        _, commit_id, *_ = on.moments.begin()
        on.execute(_OWN["raise_floor"], (commit_id,))
        step = (namespace, branch_id, _PURGE_STEP)
        if len(on.execute(_OWN["purge_versions"], step).fetchall()) < _PURGE_STEP:
            on.execute(_OWN["drop_branch"], (branch_id,))
        return True


class BeginMerges:
    """Draws the cuts of sources, which retention keeps from then on."""

    def apply(
        self, on: SqliteConnection, items: Sequence[BeginMerge], *, repeat: bool
    ) -> list[Begun]:
        """See Batch."""
        del repeat
        return [self._begin(on, merge) for merge in items]

    def _begin(self, on: SqliteConnection, merge: BeginMerge) -> Begun:
        namespace, source, target, op_id = merge
        source_id, target_id = (find_branch(on, namespace, side) for side in (source, target))
        if source_id is None or target_id is None:
            return Begun(source_id, target_id, None, None)
        pair = (namespace, min(source_id, target_id), max(source_id, target_id))
        last = on.execute(_OWN["find_merge"], (*pair, 1)).get
        if last is not None and last[1] == op_id:
            return Begun(source_id, target_id, None, done=True)
        _, commit_id, *_ = on.moments.begin()
        on.execute(_OWN["begin_merge"], (*pair, source_id, commit_id, op_id))
        return Begun(source_id, target_id, commit_id, done=False)


class EndMerges:
    """Writes what merges decided."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    def apply(self, on: SqliteConnection, items: Sequence[EndMerge], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat
        return [self._end(on, merge) for merge in items]

    def _end(self, on: SqliteConnection, merge: EndMerge) -> bool:
        (namespace, source, target, _), writes, (op_id, _) = merge
        pair = (namespace, *merge.comparison.pair)
        under_way = on.execute(_OWN["find_merge"], (*pair, 0)).get
        # Gone with either branch, and replaced by any merge that began later.
        if under_way != (source[0][1], op_id):
            last = on.execute(_OWN["find_merge"], (*pair, 1)).get
            return last is not None and last[1] == op_id
        target_id = target[0][0]
        for write in writes:
            newest = get_newest(on, (namespace, target_id, write.name)) or NEVER
            if newest[3] != write.seen:
                return False
        cells = [(write.name, write.payload, write.version) for write in writes if write.write]
        operation = Operation(op_id, given=True)
        put_versions(on, self._trim, namespace, target_id, cells, operation=operation)
        on.execute(_OWN["forget_merge"], pair)
        on.execute(_OWN["end_merge"], pair)
        return True

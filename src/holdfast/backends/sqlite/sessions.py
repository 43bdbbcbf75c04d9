"""Sessions on SQLite: a reader in a read transaction, and a commit under the one writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.sql.branches import Spelling
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.inside import refuse_inside
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sql.sessions import Ended, Opened
from holdfast.backends.sql.snapshot import Snapshot
from holdfast.backends.sqlite.branches import SPELLING
from holdfast.backends.sqlite.cells import (
    NEVER,
    SqliteCells,
    TrimCells,
    find_branch,
    get_newest,
    is_own_op,
    list_names,
    put_versions,
)
from holdfast.backends.sqlite.connection import Params, SqliteConnection
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.facets.branches import EVERYTHING
from holdfast.facets.cells import LOG, Retention
from holdfast.facets.sessions import Listed, SessionCommit
from holdfast.runtime import Runtime

_LINEAGE = load("holdfast.backends.sql", "branches.sql", SQLITE)["find_lineage_of"]


class SqliteSessions:
    """See SessionEngine."""

    own: Spelling = SPELLING

    def __init__(self, db: SqliteDb, retention: Retention) -> None:
        self.runtime: Runtime = db.runtime
        self.fetch = db.fetch
        self._db = db
        self._retention = retention
        self._commits = CommitSessions(TrimCells(retention))

    async def open(self, limit: float) -> Opened:
        """See SessionEngine."""
        self._db.check()
        refuse_inside(self._db)  # a session's commit would be refused there
        snapshot = SqliteSnapshot(self._db, limit)
        return snapshot, SqliteCells(snapshot, self._retention)

    async def commit(self, commit: SessionCommit, size: int) -> Ended:
        """See SessionEngine."""
        topic = (LOG, commit.namespace)
        (ended,) = await self._db.write(self._commits, [commit], size, topic)
        return ended


class SqliteSnapshot(Snapshot):
    """See SqliteScope."""

    def __init__(self, db: SqliteDb, limit: float) -> None:
        self._db = db
        self._reader = db.readers.take()
        super().__init__(db, limit)
        try:
            # Deferred: the first read pins what all of them see.
            self._reader.run("BEGIN")
        except BaseException:
            self.expire()
            raise

    async def row(self, query: str, params: Params) -> Row | None:
        """See SqliteScope."""

        async def read() -> Row | None:
            return self._reader.row(query, params)

        return await self._reading(read)

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""

        async def read() -> list[Row]:
            return self._reader.rows(query, params)

        return await self._reading(read)

    async def _give_back(self) -> None:
        self._drop()

    def _drop(self) -> None:
        try:
            self._reader.rollback()
        except BaseException:
            self._reader.close()
            raise
        self._db.readers.give_back(self._reader)


class CommitSessions:
    """Compares what sessions saw with what is there, and writes."""

    def __init__(self, trim: TrimCells) -> None:
        self._trim = trim

    def apply(
        self, on: SqliteConnection, items: Sequence[SessionCommit], *, repeat: bool
    ) -> list[Ended]:
        """See Batch."""
        return [self._commit(on, commit, repeat=repeat) for commit in items]

    def _commit(self, on: SqliteConnection, commit: SessionCommit, *, repeat: bool) -> Ended:
        if _known(on, commit, repeat=repeat):
            return Ended("known", [], repeat)
        if find_branch(on, commit.namespace, commit.branch) != commit.branch_id:
            return Ended("no branch", [], repeat)
        changed = _changed(on, commit)
        if changed:
            return Ended("changed", changed, repeat)
        cells = [(cell.name, cell.payload, cell.version) for cell in commit.cells if cell.write]
        place = (commit.namespace, commit.branch_id)
        put_versions(on, self._trim, *place, cells, operation=commit.operation)
        return Ended("done", [], repeat)


def _known(on: SqliteConnection, commit: SessionCommit, *, repeat: bool) -> bool:
    """True if this operation has been done before."""
    op_id, given = commit.operation
    if given:
        params = {"namespace": commit.namespace, "branch_id": commit.branch_id, "op_id": op_id}
        return bool(on.execute(SPELLING.list_merged, params).fetchall())
    written = next(cell.name for cell in commit.cells if cell.write)
    return repeat and is_own_op(on, op_id, (commit.namespace, commit.branch_id, written))


def _changed(on: SqliteConnection, commit: SessionCommit) -> list[str]:
    """The names of cells that are no longer as the session saw them."""
    found = []
    for cell in commit.cells:
        newest = get_newest(on, (commit.namespace, commit.branch_id, cell.name)) or NEVER
        if newest[3] != cell.seen:
            found.append(cell.name)
    for listed in commit.lists:
        found += set(listed.names).symmetric_difference(_names_now(on, commit, listed))
    return sorted(set(found))


def _names_now(on: SqliteConnection, commit: SessionCommit, listed: Listed) -> list[str]:
    """What the list would find by now: the first level that knows a name decides."""
    start = {"branch_id": commit.branch_id, "upto": EVERYTHING}
    there: dict[str, bool] = {}
    levels: list[Any] = on.execute(_LINEAGE, start).fetchall()
    for level in levels:
        for name, deleted in list_names(on, (commit.namespace, *level), listed.first, listed.end):
            if deleted is not None:
                there.setdefault(name, not deleted)
    return [name for name, here in there.items() if here]

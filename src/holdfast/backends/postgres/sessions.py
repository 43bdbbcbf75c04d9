"""Sessions on PostgreSQL: a REPEATABLE READ transaction, and a commit that is one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.backends.batching import Answer, Batch, Item, to_await
from holdfast.backends.pool import Lease
from holdfast.backends.postgres.arrays import bigints, booleans, texts
from holdfast.backends.postgres.branches import spelling
from holdfast.backends.postgres.cells import Keep, PostgresCells
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.db import PostgresDb
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.queries import Dialect, load
from holdfast.backends.sql.sessions import Ended, Opened
from holdfast.backends.sql.snapshot import Snapshot
from holdfast.errors import StoreError
from holdfast.facets.cells import LOG, Retention
from holdfast.facets.sessions import SessionCommit
from holdfast.runtime import Runtime, Topic


class PostgresSessions:
    """See SessionEngine."""

    def __init__(self, db: PostgresDb, dialect: Dialect, retention: Retention) -> None:
        self.runtime: Runtime = db.runtime
        self.own = spelling(dialect)
        self.fetch = db.fetch
        self._db = db
        self._dialect = dialect
        self._retention = retention
        queries = load(__package__, "sessions.sql", dialect)
        self._commits = CommitSessions(queries["commit_session"], Keep(retention))

    async def open(self, limit: float) -> Opened:
        """See SessionEngine."""
        lease = await self._db.take()
        snapshot = PostgresSnapshot(self._db, lease, await lease.__aenter__(), limit)
        await snapshot.begin()
        return snapshot, PostgresCells(snapshot, self._dialect, self._retention)

    async def commit(self, commit: SessionCommit, size: int) -> Ended:
        """See SessionEngine."""
        # Not with others': one that waits for a lock would hold them all up.
        topic = (LOG, commit.namespace)
        (ended,) = await self._db.write_alone(self._commits, [commit], size, topic)
        return ended


class PostgresSnapshot(Snapshot):
    """See PostgresScope."""

    def __init__(
        self, db: PostgresDb, lease: Lease[PgConnection], connection: PgConnection, limit: float
    ) -> None:
        self._lease = lease
        self._connection = connection
        super().__init__(db, limit)

    async def begin(self) -> None:
        """Begin the transaction, which the server ends too if its owner hangs."""
        await self._reading(lambda: self._connection.begin(self._limit, snapshot=True))

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        return await self._reading(lambda: self._connection.fetch(query, params))

    async def read(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Sequence[Answer]:
        """See PostgresScope."""
        del size, topic
        return await self._reading(
            lambda: to_await(batch.apply(self._connection, items, repeat=False))
        )

    async def _give_back(self) -> None:
        try:
            await self._connection.run("ROLLBACK")
        except StoreError:
            self._drop()  # nothing is lost with it
        except BaseException:
            self._drop()
            raise
        else:
            await self._lease.__aexit__(None, None, None)

    def _drop(self) -> None:
        try:
            self._connection.drop()
        finally:
            self._lease.release()


class CommitSessions:
    """Compares what sessions saw with what is there, and writes."""

    def __init__(self, query: str, keep: Keep) -> None:
        self._query = query
        self._keep = keep

    async def apply(
        self, on: PgConnection, items: Sequence[SessionCommit], *, repeat: bool
    ) -> list[Ended]:
        """See Batch."""
        return [await self._commit(on, commit, repeat=repeat) for commit in items]

    async def _commit(self, on: PgConnection, commit: SessionCommit, *, repeat: bool) -> Ended:
        cells, lists = commit.cells, commit.lists
        found = [(item, name) for item, listed in enumerate(lists, 1) for name in listed.names]
        params = {
            "namespace": commit.namespace,
            "branch": commit.branch,
            "branch_id": commit.branch_id,
            "exclusive": commit.exclusive,
            "op_id": commit.operation.id.hex(),
            "look_up": repeat or commit.operation.given,
            "names": texts(cell.name for cell in cells),
            "seen": bigints(cell.seen for cell in cells),
            "write": booleans(cell.write for cell in cells),
            "values": texts(cell.payload for cell in cells),
            "new_versions": bigints(cell.version for cell in cells),
            "firsts": texts(listed.first for listed in lists),
            "ends": texts(listed.end for listed in lists),
            "found": texts(name for _, name in found),
            "found_in": bigints(item for item, _ in found),
            "versions": self._keep.versions,
            "age_us": self._keep.age_us,
        }
        ((outcome, changed),) = await on.fetch(self._query, params)
        return Ended(outcome, sorted(set(changed or ())), repeat)

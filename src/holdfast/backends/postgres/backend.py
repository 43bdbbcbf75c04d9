"""A store on PostgreSQL, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg

from holdfast.backends.pool import Pool
from holdfast.backends.postgres.branches import PostgresBranches
from holdfast.backends.postgres.cells import PostgresCells
from holdfast.backends.postgres.connection import (
    AsyncConnection,
    BlockingConnection,
    PgConnection,
    bounded,
)
from holdfast.backends.postgres.connector import Connector
from holdfast.backends.postgres.db import PostgresDb
from holdfast.backends.postgres.events import PostgresEvents
from holdfast.backends.postgres.joining import driver_connection
from holdfast.backends.postgres.migrate import migrate
from holdfast.backends.postgres.records import PostgresRecords
from holdfast.backends.postgres.search import PostgresSearch
from holdfast.backends.postgres.sessions import PostgresSessions
from holdfast.backends.postgres.transaction import JoinedTransaction, PostgresTransaction
from holdfast.backends.postgres.transport import PostgresTransport
from holdfast.backends.postgres.watch import Exchange
from holdfast.backends.sql.namespaces import list_namespaces
from holdfast.backends.sql.queries import Dialect, postgres
from holdfast.backends.sql.sessions import SqlSession
from holdfast.config import StoreConfig, seconds
from holdfast.facets import cells, events, records, transport
from holdfast.facets.backend import (
    Backend,
    Capability,
    OpenSession,
    OpenTransaction,
    Progress,
    no_watch,
)
from holdfast.facets.cells import CellLog, Retention
from holdfast.facets.events import EventLog
from holdfast.facets.records import RecordLog
from holdfast.facets.sessions import Order, no_session_here
from holdfast.facets.watch import Listener
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime

T = TypeVar("T")
CAPABILITIES = frozenset(Capability) - {Capability.BACKUP}


async def open_backend(url: str, config: StoreConfig, runtime: Runtime) -> Backend:
    """The open store; its schema is created or migrated first."""
    connector = Connector(url, config, runtime)
    dialect = postgres(config.schema)
    await migrate(connector, config.schema, dialect, allowed=config.migrate)
    exchange = Exchange(
        connector.connect_aside,
        runtime,
        config.schema,
        can_listen=connector.can_listen,
        poll_interval=seconds(config.poll_interval),
    )
    pool = Pool(
        connector.connect,
        runtime,
        connector.where,
        size=config.pool_size,
        patience=bounded(config.connect_timeout),
    )
    db = PostgresDb(pool, runtime, exchange)
    return PostgresBackend(db, dialect, config)


class PostgresBackend:
    """See Backend."""

    engine = "postgres"
    capabilities = CAPABILITIES

    def __init__(self, db: PostgresDb, dialect: Dialect, config: StoreConfig) -> None:
        self._db = db
        self._dialect = dialect
        self._config = config
        retention = Retention.of(config.history)
        self.cells = PostgresCells(db, dialect, retention)
        self.branches = PostgresBranches(db, dialect, self.cells, retention)
        self.search = PostgresSearch(db, dialect, self.cells.lineages)
        self._sessions = PostgresSessions(db, dialect, retention)
        self.records = self.record_indexes = PostgresRecords(db, dialect)
        self.transport = PostgresTransport(db, dialect)
        self.events = PostgresEvents(db, dialect)

    async def pause(self, seconds: float = 0) -> None:
        """See Facets."""
        await self._db.runtime.sleep(seconds)

    async def offload(self, work: Callable[[], T]) -> T:
        """See Backend."""
        return await self._db.runtime.offload(work)

    def session(self, order: Order) -> OpenSession:
        """See Facets."""
        return SqlSession(self, self._sessions, order)

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """See Facets."""
        return self.cells, self._db.listen((cells.LOG, namespace))

    def follow_records(self, namespace: str) -> tuple[RecordLog, Listener]:
        """See Facets."""
        return self.records, self._db.listen((records.LOG, namespace))

    def follow_transport(self, namespace: str) -> Listener:
        """See Facets."""
        return self._db.listen((transport.LOG, namespace))

    def follow_events(self, namespace: str) -> tuple[EventLog, Listener]:
        """See Facets."""
        return self.events, self._db.listen((events.LOG, namespace))

    async def begin(self, limit: float) -> OpenTransaction:
        """See Backend."""
        scope = await PostgresTransaction.begin(self._db, limit)
        return PostgresOpenTransaction(scope, self._dialect, self._config)

    async def join(self, connection: object) -> OpenTransaction:
        """See Backend."""
        self._db.check()
        blocking = isinstance(self._db.runtime, BlockingRuntime)
        raw = await driver_connection(connection, blocking=blocking)
        wrapped: PgConnection
        if isinstance(raw, psycopg.Connection):
            wrapped = BlockingConnection(raw, self._db.where)
        else:
            wrapped = AsyncConnection(raw, self._db.where)
        scope = JoinedTransaction(self._db, wrapped, autocommit=raw.autocommit)
        return PostgresOpenTransaction(scope, self._dialect, self._config)

    async def ping(self) -> None:
        """See Backend."""
        await self._db.fetch("SELECT 1", {})

    async def list_namespaces(self) -> list[str]:
        """See Backend."""
        return await list_namespaces(self._db, self._dialect)

    async def now_us(self) -> int:
        """See Backend."""
        ((now,),) = await self._db.fetch(self._dialect.spell("SELECT hf.now_us()"), {})
        return int(now)

    async def move_clock(self, by_us: int) -> None:
        """See Backend."""
        # In two steps, so that repeating the second after a lost connection is harmless.
        ((offset,),) = await self._db.fetch(
            self._dialect.spell("SELECT clock_offset_us FROM hf.store_state"), {}
        )
        await self._db.fetch(
            self._dialect.spell("UPDATE hf.store_state SET clock_offset_us = :to RETURNING id"),
            {"to": offset + by_us},
        )

    async def backup(self, path: str, progress: Progress | None) -> None:
        """See Backend. Never called: pg_dump is the tool for it, and the capability is missing."""
        raise NotImplementedError(path, progress)

    async def close(self) -> None:
        """See Backend."""
        await self._db.close()


class PostgresOpenTransaction:
    """See OpenTransaction."""

    engine = "postgres"
    capabilities = CAPABILITIES

    def __init__(
        self,
        scope: PostgresTransaction | JoinedTransaction,
        dialect: Dialect,
        config: StoreConfig,
    ) -> None:
        self._scope = scope
        self.cells = PostgresCells(scope, dialect, Retention.of(config.history))
        self.search = PostgresSearch(scope, dialect, self.cells.lineages, inside=True)
        self.records = self.record_indexes = PostgresRecords(scope, dialect, inside=True)
        self.transport = PostgresTransport(scope, dialect)
        self.events = PostgresEvents(scope, dialect)
        self.execute = scope.execute
        self.commit = scope.commit
        self.rollback = scope.rollback

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """See Facets."""
        del namespace
        raise no_watch("transaction")

    def follow_records(self, namespace: str) -> tuple[RecordLog, Listener]:
        """See Facets."""
        del namespace
        raise no_watch("transaction")

    def follow_transport(self, namespace: str) -> Listener:
        """See Facets."""
        del namespace
        raise no_watch("transaction")

    def follow_events(self, namespace: str) -> tuple[EventLog, Listener]:
        """See Facets."""
        del namespace
        raise no_watch("transaction")

    async def pause(self, seconds: float = 0) -> None:
        """See Facets."""
        await self._scope.of.runtime.sleep(seconds)

    def session(self, order: Order) -> OpenSession:
        """See Facets."""
        raise no_session_here(order, "transaction")

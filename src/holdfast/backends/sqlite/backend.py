"""A store on SQLite, put together."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.backends.sql.namespaces import list_namespaces
from holdfast.backends.sql.queries import SQLITE
from holdfast.backends.sql.sessions import SqlSession
from holdfast.backends.sqlite.branches import SqliteBranches
from holdfast.backends.sqlite.cells import SqliteCells
from holdfast.backends.sqlite.clock import READ_OFFSET, MoveClock
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.backends.sqlite.events import SqliteEvents
from holdfast.backends.sqlite.files import prepare, refusal
from holdfast.backends.sqlite.migrate import migrate
from holdfast.backends.sqlite.records import SqliteRecords
from holdfast.backends.sqlite.search import SqliteSearch
from holdfast.backends.sqlite.sessions import SqliteSessions
from holdfast.backends.sqlite.transaction import SqliteTransaction
from holdfast.backends.sqlite.transport import SqliteTransport
from holdfast.clock import machine_us
from holdfast.config import StoreConfig
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
from holdfast.url import MEMORY

T = TypeVar("T")
FILE_CAPABILITIES = frozenset(Capability) - {Capability.REMOTE, Capability.JOIN}
MEMORY_CAPABILITIES = FILE_CAPABILITIES - {Capability.SHARED}


async def open_backend(path: str, config: StoreConfig, runtime: Runtime) -> Backend:
    """The open store; a missing file is created, readable by its owner only."""
    folder = None
    if path == MEMORY:
        # A private temporary file without syncs: SQLite's own in-memory databases
        # refuse write-ahead logging, and a writer there waits for every reader.
        folder = _temporary_folder()
        path = str(Path(folder) / "memory.db")
        config = msgspec.structs.replace(config, durability="cache")
    try:
        if config.vfs is None:
            path = prepare(path, create=config.migrate)
        db = SqliteDb(path, config, runtime, folder=folder)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    capabilities = set(FILE_CAPABILITIES if folder is None else MEMORY_CAPABILITIES)
    if config.locking == "exclusive":
        # One connection for everything: what others read would be the open transaction's, and
        # a snapshot would keep the writer.
        capabilities -= {Capability.SHARED, Capability.TRANSACTIONS, Capability.SESSIONS}
    try:
        await migrate(db, allowed=config.migrate)
        return SqliteBackend(db, frozenset(capabilities))
    except BaseException:
        await db.close()
        raise


class SqliteBackend:
    """See Backend."""

    engine = "sqlite"

    def __init__(self, db: SqliteDb, capabilities: frozenset[Capability]) -> None:
        self._db = db
        self.capabilities = capabilities
        retention = Retention.of(db.config.history)
        self.cells = SqliteCells(db, retention)
        self.branches = SqliteBranches(db, self.cells, retention)
        self.search = SqliteSearch(db, self.cells.lineages)
        self._sessions = SqliteSessions(db, retention)
        self.records = self.record_indexes = SqliteRecords(db)
        self.transport = SqliteTransport(db)
        self.events = SqliteEvents(db)

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
        return SqliteOpenTransaction(
            await SqliteTransaction.begin(self._db, limit), self.capabilities
        )

    async def join(self, connection: object) -> OpenTransaction:
        """See Backend. Never called: the capability is missing."""
        raise NotImplementedError(connection)

    async def ping(self) -> None:
        """See Backend."""
        await self._db.fetch("SELECT 1", {})

    async def list_namespaces(self) -> list[str]:
        """See Backend."""
        return await list_namespaces(self._db, SQLITE)

    async def now_us(self) -> int:
        """See Backend."""
        ((offset,),) = await self._db.fetch(READ_OFFSET, {})
        return machine_us() + int(offset)

    async def move_clock(self, by_us: int) -> None:
        """See Backend."""
        await self._db.write(MoveClock(), [by_us])

    async def backup(self, path: str, progress: Progress | None) -> None:
        """See Backend."""
        self._db.check()
        given_up = threading.Event()
        try:
            await self._db.runtime.offload(lambda: self._db.copier.copy(path, progress, given_up))
        finally:
            given_up.set()  # a cancelled task leaves the thread behind, which then stops too

    async def close(self) -> None:
        """See Backend."""
        await self._db.close()


class SqliteOpenTransaction:
    """See OpenTransaction."""

    engine = "sqlite"

    def __init__(self, scope: SqliteTransaction, capabilities: frozenset[Capability]) -> None:
        self._scope = scope
        self.capabilities = capabilities
        self.cells = SqliteCells(scope, Retention.of(scope.of.config.history))
        self.search = SqliteSearch(scope, self.cells.lineages, inside=True)
        self.records = self.record_indexes = SqliteRecords(scope)
        self.transport = SqliteTransport(scope, inside=True)
        self.events = SqliteEvents(scope)
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


def _temporary_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix="holdfast-")
    except OSError as exc:
        raise refusal(exc, f"SQLite {MEMORY!r}: a temporary folder") from exc

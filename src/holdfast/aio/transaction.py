"""Transactions: what is done inside commits together or not at all.

    async with store.transaction() as tx:
        await tx.cells.set("balance", 90)
        await tx.execute("INSERT INTO payments (amount) VALUES (10)")

On SQLite a transaction holds the one writer, so keep it short; the caller's tables live in the
same file. An error of the engine ends a transaction, also one that is caught inside.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from holdfast.aio.cells import AsyncCells
from holdfast.aio.events import AsyncEvents
from holdfast.aio.records import AsyncRecords
from holdfast.aio.tasks import AsyncTasks
from holdfast.aio.transport import AsyncTransport
from holdfast.config import StoreConfig
from holdfast.errors import InvalidState
from holdfast.facets.backend import Backend, Capability, OpenTransaction, Params
from holdfast.facets.names import check_name
from holdfast.facets.snapshot_cache import SnapshotCache, TransactionCache


class AsyncTransaction:
    """The facets of the store, inside one transaction."""

    def __init__(
        self,
        opened: OpenTransaction,
        namespace: str,
        config: StoreConfig,
        cache: TransactionCache | None = None,
    ) -> None:
        self._opened = opened
        self._cache = TransactionCache() if cache is None else cache
        self._namespace = check_name(namespace, what="namespace")
        self._config = config
        self.cells = AsyncCells(opened, namespace, config)
        self.records = AsyncRecords(opened, namespace, config)
        self.transport = AsyncTransport(opened, namespace, config)
        self.events = AsyncEvents(opened, namespace, config, cache=self._cache)

    @property
    def tasks(self) -> AsyncTasks:
        """The tasks of this namespace: what is done to them commits with the rest."""
        return AsyncTasks(self, None)

    @property
    def engine(self) -> str:
        """The engine's name: sqlite or postgres."""
        return self._opened.engine

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the engine can do."""
        return self._opened.capabilities

    def namespace(self, name: str) -> AsyncTransaction:
        """The same transaction on another namespace."""
        return AsyncTransaction(self._opened, name, self._config, self._cache)

    async def execute(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement on the caller's own tables.

        Parameters are written as the engine's driver has them: `?` or `:name` on SQLite, `%s`
        or `%(name)s` on PostgreSQL.
        """
        return await self._opened.execute(sql, params)


class AsyncTransactionScope:
    """A transaction from `async with` to its end: committed, or rolled back by an exception."""

    def __init__(
        self,
        backend: Backend,
        namespace: str,
        config: StoreConfig,
        limit: float,
        cache: SnapshotCache,
    ) -> None:
        self._backend = backend
        self._namespace = namespace
        self._config = config
        self._limit = limit
        self._cache = TransactionCache(cache)
        self._opened: OpenTransaction | None = None

    async def __aenter__(self) -> AsyncTransaction:
        if self._opened is not None:
            raise InvalidState("this transaction was entered before: call store.transaction()")
        self._opened = await self._backend.begin(self._limit)
        return AsyncTransaction(self._opened, self._namespace, self._config, self._cache)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is None:
            return
        if error is None:
            try:
                await self._opened.commit()
            finally:
                self._cache.committed()
        else:
            await self._opened.rollback()

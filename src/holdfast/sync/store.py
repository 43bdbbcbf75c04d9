# GENERATED from holdfast/aio/store.py by tools/generate_sync.py: change that file instead.
"""The store: one connection pool, one namespace, all facets.

with holdfast.open("sqlite:///app.db") as store:
    store.cells.set("greeting", "hello")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from holdfast.clock import MICROSECONDS, Duration, duration_us, to_datetime
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument
from holdfast.facets.backend import Backend, Capability, Progress, require
from holdfast.facets.names import check_name
from holdfast.facets.projecting_store import EngineViews
from holdfast.facets.snapshot_cache import SnapshotCache
from holdfast.runtime.blocking import run
from holdfast.sync.branches import Branches
from holdfast.sync.cells import Cells
from holdfast.sync.events_files import StoreEvents
from holdfast.sync.records import Records
from holdfast.sync.retry import repeated
from holdfast.sync.tasks import Tasks
from holdfast.sync.transaction import Transaction, TransactionScope
from holdfast.sync.transport import Transport

T = TypeVar("T")
_LONGEST = 24 * 24 * 3600.0  # of a transaction: what engines and timers can count to


class Store:
    """An open store, or a view of it on another namespace; made by `holdfast.open(url)`."""

    def __init__(
        self,
        backend: Backend,
        namespace: str,
        config: StoreConfig,
        *,
        owner: bool = True,
        cache: SnapshotCache | None = None,
    ) -> None:
        self._backend = backend
        self._namespace = check_name(namespace, what="namespace")
        self._config = config
        self._owner = owner
        self.cells = Cells(backend, namespace, config)
        self.branches = Branches(backend, namespace)
        self.records = Records(backend, namespace, config)
        self.transport = Transport(backend, namespace, config)
        self._cache = SnapshotCache() if cache is None else cache
        self.events = StoreEvents(
            backend, namespace, config, begin=backend.begin, cache=self._cache
        )

    def namespace(self, name: str) -> Store:
        """A view on the same connections whose data is apart from every other namespace's."""
        return Store(self._backend, name, self._config, owner=False, cache=self._cache)

    def namespaces(self) -> list[str]:
        """The namespaces that have cells, records, messages, groups or events, in byte order.

        One that has become empty may be told for a while, on NATS for good.
        """
        require(self._backend, Capability.NAMESPACES)
        return run(self._backend.list_namespaces())

    def transaction(self, timeout: Duration = 5) -> TransactionScope:
        """A transaction over all facets, for `with`; it may take `timeout` seconds in all.

        Inside, use what `with` gives you: a write through the store is refused.
        """
        require(self._backend, Capability.TRANSACTIONS)
        limit = min(duration_us(timeout, name="timeout") / MICROSECONDS, _LONGEST)
        if limit <= 0:
            raise InvalidArgument(f"timeout: must be above 0, found {timeout!r}")
        return TransactionScope(self._backend, self._namespace, self._config, limit, self._cache)

    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        timeout: Duration = 5,
        attempts: int = 10,
    ) -> T:
        """The work's result, done in a transaction, again when it meets a retryable Conflict.

        The work is called once for each attempt, so it must have no effect outside.
        """

        def attempt() -> T:
            with self.transaction(timeout) as tx:
                return work(tx)

        return repeated(attempt, attempts, self._backend)

    def join(self, connection: object) -> Transaction:
        """The store inside a transaction that the caller began on PostgreSQL, and will end.

        Takes a psycopg connection, or a SQLAlchemy session or connection on psycopg, of this
        store's database.
        """
        require(self._backend, Capability.JOIN)
        opened = run(self._backend.join(connection))
        return Transaction(opened, self._namespace, self._config)

    def _view_store(self) -> EngineViews:
        """What a projector of this namespace works on."""
        return EngineViews(self._backend, self._namespace, self._config.payload_max_bytes)

    @property
    def tasks(self) -> Tasks:
        """The tasks of this namespace."""
        # Made anew: a forgotten store must not hang in a ring.
        begin = self.transaction if Capability.TRANSACTIONS in self.capabilities else None
        return Tasks(self, begin)

    @property
    def engine(self) -> str:
        """The engine's name: sqlite, postgres, redis or nats."""
        return self._backend.engine

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the engine can do; anything else raises Unsupported."""
        return self._backend.capabilities

    def pause(self, seconds: float) -> None:
        """Wait so long, in this store's colour."""
        run(self._backend.pause(seconds))

    def offload(self, work: Callable[[], T]) -> T:
        """The result of blocking work that has nothing to do with the store, such as files.

        It is done on another thread, so that the loop goes on.
        """
        return run(self._backend.offload(work))

    def ping(self) -> None:
        """Return when the store answers; raise what stands in the way."""
        run(self._backend.ping())

    def now(self) -> datetime:
        """The store's clock, which leases and expiry go by; not this machine's."""
        return to_datetime(run(self._backend.now_us()))

    def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Write a consistent copy, as of now, to a new file while the store stays in use.

        `progress` is called with the pages done and the pages in all. Closing the store ends
        a backup with StoreClosed; one that ends early leaves no file.
        """
        require(self._backend, Capability.BACKUP)
        run(self._backend.backup(_absolute(path), progress))

    def close(self) -> None:
        """Finish what is in flight and free everything; further calls wait for the first.

        A view closes nothing: the store it came from owns the connections.
        """
        if self._owner:
            self._cache.close()
            run(self._backend.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._backend.engine} namespace={self._namespace!r}>"


def _absolute(path: str | os.PathLike[str]) -> str:
    # Now: a backup takes its time, and the process may change its folder meanwhile.
    try:
        return str(Path(os.fsdecode(path)).absolute())
    except TypeError:
        raise InvalidArgument(
            f"backup path: wanted text or a path, found {type(path).__name__}"
        ) from None
    except OSError as exc:
        raise InvalidArgument(f"backup path: the current folder is gone: {exc.strerror}") from exc

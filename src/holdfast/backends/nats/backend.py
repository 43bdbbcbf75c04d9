"""A store on NATS JetStream, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakMethod

from holdfast.backends.nats.cells import NatsCells
from holdfast.backends.nats.change import Writer
from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.events import NatsEvents
from holdfast.backends.nats.events_feed import NatsEventLog
from holdfast.backends.nats.hints import Hints
from holdfast.backends.nats.messages import SHAPE as MESSAGES
from holdfast.backends.nats.names import Names
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.backends.nats.records import NatsRecords
from holdfast.backends.nats.runs import SHAPE as EVENTS
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import namespace_token
from holdfast.backends.nats.transport import NatsTransport
from holdfast.backends.nats.wakes import Wakes
from holdfast.backends.nats.watch import NatsRecordLog
from holdfast.config import StoreConfig, seconds
from holdfast.facets.backend import (
    Backend,
    Capability,
    OpenSession,
    OpenTransaction,
    Progress,
    missing,
)
from holdfast.facets.cells import CellLog
from holdfast.facets.events import EventLog
from holdfast.facets.records import RecordLog
from holdfast.facets.sessions import Order
from holdfast.facets.watch import Listener
from holdfast.runtime import Runtime

T = TypeVar("T")
CAPABILITIES = frozenset(
    {
        Capability.SHARED,
        Capability.REMOTE,
        Capability.MOVABLE_CLOCK,
        Capability.CELLS,
        Capability.CELLS_ATOMIC,
        Capability.RECORDS,
        Capability.RECORDS_WATCH,
        Capability.TRANSPORT,
        Capability.EVENTS,
        Capability.NAMESPACES,
    }
)
"""Of a store on a server from 2.12 on; on an older one `set_many` and the transport are missing."""


async def open_backend(url: str, config: StoreConfig, runtime: Runtime) -> Backend:
    """The open store; its stream is made if there is none."""
    connection = Connection(url, config)
    backend = NatsBackend(NatsDb(connection, runtime), config)
    try:
        await backend.open()
    except BaseException:
        await backend.close()
        raise
    return backend


class NatsBackend:
    """See Backend."""

    engine = "nats"

    def __init__(self, db: NatsDb, config: StoreConfig) -> None:
        self._db = db
        self._config = config
        self._stream = Stream(db.connection, config)
        self._clock = NatsClock(db.connection, self._stream)
        self._messages = Stream(db.connection, config, MESSAGES)
        self._events = Stream(db.connection, config, EVENTS)
        self._wakes = Wakes(db, self._stream, seconds(config.poll_interval), "wake")
        self._appended = Wakes(db, self._stream, seconds(config.poll_interval), "appended")
        self._hints = Hints(db, self._stream, seconds(config.poll_interval))
        self._namespaces = Namespaces(self._stream)
        writer, names = Writer(self._stream, self._clock), Names(self._stream)
        self.records = NatsRecords(
            db, self._stream, self._clock, writer, names, namespaces=self._namespaces
        )
        self.cells = NatsCells(db, self._stream, writer, names, namespaces=self._namespaces)
        self.capabilities = CAPABILITIES
        self.branches = missing()
        self.search = missing()
        self.record_indexes = missing()
        self.transport = NatsTransport(
            db, self._stream, self._messages, self._clock, self._wakes, namespaces=self._namespaces
        )
        self.events = NatsEvents(
            db, self._stream, self._events, self._clock, self._appended, namespaces=self._namespaces
        )
        db.on_close = self._wake_all  # so that who waits finds the store closed
        reconnected = WeakMethod(self._reconnected)  # see Connection.hear

        def tell() -> None:
            if (call := reconnected()) is not None:
                call()

        db.connection.on_reconnect = tell

    async def open(self) -> None:
        """Connect, and find or make the stream."""
        await self._db.run(self._open())
        if not self._stream.atomic:
            self.capabilities -= {Capability.CELLS_ATOMIC, Capability.TRANSPORT}

    async def pause(self, seconds: float = 0) -> None:
        """See Facets."""
        await self._db.runtime.sleep(seconds)

    async def offload(self, work: Callable[[], T]) -> T:
        """See Backend."""
        return await self._db.runtime.offload(work)

    def follow_records(self, namespace: str) -> tuple[RecordLog, Listener]:
        """See Facets."""
        listener = self._hints.listen(self._db, namespace_token(namespace))
        log = NatsRecordLog(self._db, self._stream, self._clock, self.records, self._hints)
        return log, listener

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """See Facets. Never called: the capability is missing, as for sessions and what follows."""
        raise NotImplementedError(namespace)

    def follow_events(self, namespace: str) -> tuple[EventLog, Listener]:
        """See EventFacets."""
        return NatsEventLog(self._db, self._events), self._appended.listen(self._db, namespace)

    def follow_transport(self, namespace: str) -> Listener:
        """See Facets."""
        return self._wakes.listen(self._db, namespace)

    def session(self, order: Order) -> OpenSession:
        """See Facets."""
        raise NotImplementedError(order)

    async def begin(self, limit: float) -> OpenTransaction:
        """See Backend."""
        raise NotImplementedError(limit)

    async def join(self, connection: object) -> OpenTransaction:
        """See Backend."""
        raise NotImplementedError(connection)

    async def list_namespaces(self) -> list[str]:
        """See Backend. Also those in which there is nothing any more."""
        return await self._db.run(self._list_namespaces())

    async def backup(self, path: str, progress: Progress | None) -> None:
        """See Backend. Never called: `nats stream backup` is the tool for it."""
        raise NotImplementedError(path, progress)

    async def ping(self) -> None:
        """See Backend."""
        await self._db.run(self._ping())

    async def now_us(self) -> int:
        """See Backend."""
        return await self._db.run(self._now_us())

    async def move_clock(self, by_us: int) -> None:
        """See Backend."""
        await self._db.run(self._move_clock(by_us))

    async def close(self) -> None:
        """See Backend."""
        await self._db.close()

    async def _open(self) -> None:
        await self._db.connection.open()
        await self._stream.prepare(create=self._config.migrate)
        await self._messages.prepare(create=self._config.migrate)
        await self._events.prepare(create=self._config.migrate)
        await self._clock.start(self._stream.deadline())

    async def _ping(self) -> None:
        await self._stream.info(self._stream.deadline())

    async def _list_namespaces(self) -> list[str]:
        return await self._namespaces.listed(self._stream.deadline())

    async def _now_us(self) -> int:
        return await self._clock.now_us(self._stream.deadline())

    async def _move_clock(self, by_us: int) -> None:
        await self._clock.move(by_us, self._stream.deadline())

    def _reconnected(self) -> None:
        self._clock.doubt()
        self._hints.lost()
        self._wakes.hub.tell_all()
        self._appended.hub.tell_all()

    def _wake_all(self) -> None:
        self._hints.hub.tell_all()
        self._wakes.hub.tell_all()
        self._appended.hub.tell_all()

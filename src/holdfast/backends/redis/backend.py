"""A store on Redis or Valkey, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar
from urllib.parse import unquote

from holdfast.backends.redis.cells import RedisCells
from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.events import RedisEventLog, RedisEvents
from holdfast.backends.redis.hints import Hints
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.namespaces import RedisNamespaces
from holdfast.backends.redis.pipeline import Frame
from holdfast.backends.redis.protocol import Command
from holdfast.backends.redis.records import RedisRecords
from holdfast.backends.redis.records_index import RedisRecordIndexes
from holdfast.backends.redis.records_watch import RedisRecordLog
from holdfast.backends.redis.script import Script
from holdfast.backends.redis.servers import Servers
from holdfast.backends.redis.transport import RedisTransport
from holdfast.backends.redis.watch import Subscriber
from holdfast.config import StoreConfig, seconds
from holdfast.errors import StoreError
from holdfast.facets import events, records, transport
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
from holdfast.runtime import Runtime, Topic

_log = logging.getLogger("holdfast.redis")

T = TypeVar("T")
CAPABILITIES = frozenset(
    {
        Capability.SHARED,
        Capability.REMOTE,
        Capability.MOVABLE_CLOCK,
        Capability.CELLS,
        Capability.CELLS_ATOMIC,
        Capability.RECORDS,
        Capability.RECORDS_INDEX,
        Capability.RECORDS_WATCH,
        Capability.TRANSPORT,
        Capability.EVENTS,
        Capability.NAMESPACES,
    }
)
CLUSTER_CAPABILITIES = CAPABILITIES - {Capability.MOVABLE_CLOCK}
"""A script of a cluster sees its own hash slot only, and the clock's offset is the store's."""

_MICROSECONDS = 1_000_000


async def open_backend(url: str, config: StoreConfig, runtime: Runtime) -> Backend:
    """The open store; there is no schema to make, so it is only looked at."""
    servers = Servers(url, config, runtime)
    keys = Keys(config.prefix, cluster=servers.cluster)
    subscriber = Subscriber(
        lambda: servers.settings.open_blocking(servers.where, None),
        runtime,
        keys.channel,
        _topic,
        seconds(config.poll_interval),
    )
    publish = lru_cache(maxsize=1000)(partial(_publish, keys))
    frame = Frame(keys.read_clock, Hints(publish))
    db = RedisDb(servers, runtime, subscriber, frame, config.wait_replicas)
    try:
        await servers.find()
        backend = RedisBackend(db, keys, cluster=servers.cluster)
        await backend.ping()
        await db.count_listeners()
        if config.durability == "always":
            await _warn_of_settings(db, servers.where)
    except BaseException:
        await db.close()
        raise
    return backend


class RedisBackend:
    """See Backend."""

    engine = "redis"

    def __init__(self, db: RedisDb, keys: Keys, *, cluster: bool) -> None:
        self._db = db
        self._keys = keys
        self.capabilities = CLUSTER_CAPABILITIES if cluster else CAPABILITIES
        self._namespaces = RedisNamespaces(db, keys)
        self.cells = RedisCells(db, keys, self._namespaces)
        self.records = RedisRecords(db, keys, self._namespaces)
        self.record_indexes = RedisRecordIndexes(db, keys, self.records)
        self.branches = missing()
        self.search = missing()
        self.events = RedisEvents(db, keys, self._namespaces)
        self.transport = RedisTransport(db, keys, self._namespaces)

    async def pause(self, seconds: float = 0) -> None:
        """See Engine."""
        await self._db.runtime.sleep(seconds)

    async def offload(self, work: Callable[[], T]) -> T:
        """See Backend."""
        return await self._db.runtime.offload(work)

    def follow_records(self, namespace: str) -> tuple[RecordLog, Listener]:
        """See RecordFacets."""
        listener = self._db.listen((records.LOG, namespace))
        return RedisRecordLog(self._db, self._keys, self.records, namespace), listener

    def follow_transport(self, namespace: str) -> Listener:
        """See TransportFacets."""
        return self._db.listen((transport.LOG, namespace))

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """See CellFacets. Never called, like what else has no capability here."""
        raise NotImplementedError(namespace)

    def follow_events(self, namespace: str) -> tuple[EventLog, Listener]:
        """See EventFacets."""
        log = RedisEventLog(self._db, self._keys, namespace)
        return log, self._db.listen((events.LOG, namespace))

    def session(self, order: Order) -> OpenSession:
        """See CellFacets."""
        raise NotImplementedError(order)

    async def begin(self, limit: float) -> OpenTransaction:
        """See Backend."""
        raise NotImplementedError(limit)

    async def join(self, connection: object) -> OpenTransaction:
        """See Backend."""
        raise NotImplementedError(connection)

    async def list_namespaces(self) -> list[str]:
        """See Backend."""
        return await self._namespaces.filled()

    async def backup(self, path: str, progress: Progress | None) -> None:
        """See Backend."""
        raise NotImplementedError(path, progress)

    async def ping(self) -> None:
        """See Backend."""
        await self._db.ask([(b"PING",)], b"")

    async def now_us(self) -> int:
        """See Backend."""
        clock = self._keys.clock(b"")
        commands: list[Command] = [(b"TIME",), (b"GET", clock)]
        (whole, micros), offset = await self._db.ask(commands, clock)
        return int(whole) * _MICROSECONDS + int(micros) + int(offset or 0)

    async def move_clock(self, by_us: int) -> None:
        """See Backend."""
        # In steps, so that repeating the second after a lost connection is harmless.
        clock = self._keys.clock(b"")
        (offset,) = await self._db.ask([(b"GET", clock)], clock)
        await self._db.ask([(b"SET", clock, b"%d" % (int(offset or 0) + by_us))], clock)
        # Listed afterwards: whose first write comes later than that finds the offset by itself.
        bases = [self._keys.base(name) for name in await self._namespaces.listed()]
        await self._db.ask([Script("heed_clock").call(bases, [])], clock)

    async def close(self) -> None:
        """See Backend."""
        await self._db.close()


async def _warn_of_settings(db: RedisDb, where: str) -> None:
    """Say what the server does with acknowledged writes, if it is not what was asked for."""
    names = (b"appendonly", b"appendfsync", b"maxmemory-policy")
    try:
        (found,) = await db.ask([(b"CONFIG", b"GET", *names)], b"")
    except StoreError:
        return  # many servers keep their settings to themselves
    settings = dict(zip(found[::2], found[1::2], strict=True))
    if settings.get(b"appendonly") == b"no" or settings.get(b"appendfsync") != b"always":
        _log.warning(
            "%s: durability=always, but the server does not have appendonly yes and appendfsync "
            "always: what it acknowledged last may be lost when it goes down",
            where,
        )
    if settings.get(b"maxmemory-policy", b"noeviction") != b"noeviction":
        _log.warning("%s: maxmemory-policy is not noeviction: it may drop what is kept", where)


def _publish(keys: Keys, topic: Topic) -> Command:
    log, namespace = topic
    return (b"PUBLISH", keys.channel, b"%b %b" % (log.encode(), keys.base(namespace)))


def _topic(hint: bytes) -> Topic:
    """What the hint is about."""
    log, _, base = hint.partition(b" ")
    return log.decode(), unquote(base.partition(b"{")[2][:-1].decode())

"""The PostgreSQL leaf: one round trip per operation, one flush in flight per kind of operation.

Calls that arrive while a flush is under way form the next one. A flush is one
statement in autocommit. After a lost connection it is repeated once, with the
operation ids looked up; when that fails too, nobody knows the outcome and the
error says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from holdfast.backends.batching import Answer, Batch, Item, NotBegun, apply_grouped, settle
from holdfast.backends.pool import Lease, Pool
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.watch import Exchange
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.inside import refuse_inside
from holdfast.backends.sql.snapshot import Snapshot
from holdfast.errors import StoreClosed, StoreError, Unavailable
from holdfast.runtime import Coalescer, Runtime, Topic, Unit
from holdfast.runtime.hub import Listener

_HARDLY_WAIT = 20  # milliseconds


class PostgresDb:
    """The connections of one open store."""

    _made = _open = False  # until there is something to close

    def __init__(self, pool: Pool[PgConnection], runtime: Runtime, exchange: Exchange) -> None:
        self._pool = pool
        self.exchange = exchange
        self.runtime = runtime
        self.check = runtime.check  # raises where the store must not be used; see close
        self.transactions: set[int] = set()  # the ids of those that are open
        self.snapshots: WeakSet[Snapshot] = WeakSet()
        self._finish = runtime.once(self._drain_and_free)
        self._coalescers: dict[Batch[Any, Any], Coalescer] = {}
        self._alone: WeakSet[Coalescer] = WeakSet()  # who flushes is held by its flush
        self._made = self._open = True

    def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Awaitable[Sequence[Answer]]:
        """See Db."""
        self.check()
        if self.transactions:
            refuse_inside(self)
        coalescer = self._coalescers.get(batch) or self._new_coalescer(batch)
        return coalescer.submit(Unit(batch, items, size, topic))

    def read(
        self, batch: Batch[Item, Answer], items: Sequence[Item]
    ) -> Awaitable[Sequence[Answer]]:
        """Like `write`: a read has a round trip to save as well, so it is coalesced too."""
        self.check()
        coalescer = self._coalescers.get(batch) or self._new_coalescer(batch)
        return coalescer.submit(Unit(batch, items))

    async def write_alone(
        self, batch: Batch[Item, Answer], items: Sequence[Item], size: int, topic: Topic
    ) -> Sequence[Answer]:
        """Like `write`, beside whatever else is under way: for what may wait for locks."""
        self.check()
        if self.transactions:
            refuse_inside(self)
        unit = Unit(batch, items, size, topic)
        # Its own, for what it does besides gathering: a cancelled caller ends no flush.
        coalescer = self.runtime.coalescer(self._flush)
        self._alone.add(coalescer)
        return await coalescer.submit(unit)

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        self.check()
        try:
            return await self._fetch(query, params)
        except Unavailable:
            return await self._fetch(query, params)

    def listen(self, topic: Topic) -> Listener:
        """One who hears of commits about the topic, in this process or another."""
        self.check()
        return self.exchange.listen(topic)

    async def take(self) -> Lease[PgConnection]:
        """A connection for a transaction."""
        self.check()
        refuse_inside(self)
        return await self._pool.take()

    @property
    def where(self) -> str:
        """The server, for people."""
        return self._pool.where

    async def close(self) -> None:
        """Finish the queues, then free everything; in a forked child, leave the parent's alone."""
        if self.runtime.at_home:
            self.runtime.check()
            self._open = False
            self.check = self._refuse
            self.exchange.hub.tell_all()  # so that who waits finds the store closed
            await self._finish()

    def _refuse(self) -> None:
        self.runtime.check()
        raise StoreClosed(f"the store on {self._pool.where} is closed")

    async def _drain_and_free(self) -> None:
        try:
            for snapshot in list(self.snapshots):
                await snapshot.close()
            for coalescer in [*self._coalescers.values(), *self._alone]:
                await coalescer.drain()
        finally:  # also when the loop ends
            await self.runtime.offload(self.exchange.stop)
            await self._pool.close()

    def __del__(self) -> None:
        if self._made and self.runtime.at_home:
            self.exchange.end()  # its thread; connections go with who has them
            if self._open:
                warnings.warn(f"unclosed store on {self.where}", ResourceWarning, stacklevel=2)

    async def _fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        async with await self._pool.take() as connection:
            return await connection.fetch(query, params)

    def _new_coalescer(self, batch: Batch[Any, Any]) -> Coalescer:
        # setdefault: two threads may come here first at once, and must share one.
        return self._coalescers.setdefault(batch, self.runtime.lanes(self._flush, self._pool.size))

    async def _flush(self, units: list[Unit]) -> None:
        """The first attempt on a connection that is there: nearly always that is all there is."""
        lease = self._pool.at_hand()
        if lease is None:
            await settle(units, self._attempt)
            return
        try:
            await apply_grouped(units, lease.connection, repeat=False)
        except BaseException as exc:
            await lease.end(exc)
            if not isinstance(exc, StoreError):
                raise
            failed = exc
        else:
            if not lease.give_back():
                await lease.end(None)
            self._answered(units)
            return
        await settle(units, self._attempt, failed=failed)

    async def _attempt(self, units: list[Unit], *, repeat: bool, patient: bool) -> None:
        """All units in one statement: they share a batch, so it is one group."""
        try:
            lease = await self._pool.take()
        except StoreError as exc:
            raise NotBegun(exc) from exc
        async with lease as connection:
            try:
                if not patient:
                    await connection.limit_lock_wait(_HARDLY_WAIT)
                await apply_grouped(units, connection, repeat=repeat)
            finally:
                if not patient and connection.usable:
                    await connection.limit_lock_wait(None)
        self._answered(units)

    def _answered(self, units: list[Unit]) -> None:
        for unit in units:
            unit.settled = True
        self.exchange.tell({unit.topic for unit in units})

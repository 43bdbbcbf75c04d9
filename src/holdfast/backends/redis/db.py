"""The Redis leaf: everything that is queued goes out as one pipeline, in one round trip.

Calls that arrive while a pipeline is under way form the next one; reads and writes have one
each, for every server. An operation is one command, nearly always a script, so it is atomic by
itself, and an error answers it alone. After a lost connection what has no answer is sent once
more, as a repeat: scripts then look operation ids up.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from holdfast.backends.batching import NotBegun, settle
from holdfast.backends.redis.errors import translate
from holdfast.backends.redis.pipeline import Frame, Operation, Pipeline, call_unknown
from holdfast.backends.redis.protocol import Command, Refusal, Reply
from holdfast.backends.redis.servers import Address, Servers
from holdfast.backends.redis.watch import Subscriber
from holdfast.errors import StoreClosed, StoreError, Unavailable
from holdfast.runtime import Coalescer, Runtime, Topic, Unit
from holdfast.runtime.hub import Listener

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class RedisDb:
    """The connections of one open store."""

    _made, _closed = False, True  # until there is something to close

    def __init__(
        self,
        servers: Servers,
        runtime: Runtime,
        subscriber: Subscriber,
        frame: Frame,
        wait_replicas: int,
    ) -> None:
        self._servers = servers
        self.runtime = runtime
        self.subscriber = subscriber
        self._frame = frame
        self._wait = wait_replicas
        self._finish = runtime.once(self._drain_and_free)
        self._coalescers: dict[tuple[Address, bool], Coalescer] = {}
        self._made, self._closed = True, False

    def do(
        self,
        operation: Operation[Item, Answer],
        items: Sequence[Item],
        key: bytes,
        *,
        size: int = 0,
        topic: Topic | None = None,
    ) -> Awaitable[Sequence[Answer]]:
        """One answer per item, in order. All items are on the server of the key.

        `size` is what the payloads add up to: a pipeline takes so much, no more. Who listens
        to the topic hears of it when it is done.
        """
        self.runtime.check()
        if self._closed:
            self.check()
        unit = Unit(operation, items, size, topic)
        servers = self._servers
        kind = (servers.address(key) if servers.cluster else servers.seed, operation.writes)
        coalescer = self._coalescers.get(kind) or self._new_coalescer(kind)
        return coalescer.submit(unit)

    async def ask(self, commands: Sequence[Command], key: bytes) -> list[Reply]:
        """The answers to commands that may be done twice; raises the first error."""
        self.check()
        try:
            return await self._ask(commands, key)
        except Unavailable:
            await self._servers.look_again()
            return await self._ask(commands, key)

    def listen(self, topic: Topic) -> Listener:
        """One who hears of changes about the topic, in this process or another."""
        self.check()
        return self.subscriber.listen(topic)

    async def tell(self, topic: Topic) -> None:
        """Wake those who listen to it, in this process or another."""
        self.subscriber.tell([topic])
        await self.ask([self._frame.hints.command(topic)], b"")

    async def count_listeners(self) -> None:
        """Find out whether the server knows of all who listen: see hints.py."""
        hints = self._frame.hints
        if self._servers.cluster:
            return  # never
        try:
            ((role, _, replicas),) = await self.ask([(b"ROLE",)], b"")
            hints.counted = role == b"master" and not replicas
        except (StoreError, ValueError):  # it keeps that to itself, or is a replica
            hints.counted = False

    def check(self) -> None:
        """Raise when the store is closed or used where it must not be."""
        self.runtime.check()
        if self._closed:
            raise StoreClosed(f"the store on {self._servers.where} is closed")

    async def close(self) -> None:
        """Finish the queues, then free everything; in a forked child, leave the parent's alone."""
        if self.runtime.at_home:
            self.runtime.check()
            self._closed = True
            self.subscriber.hub.tell_all()  # so that who waits finds the store closed
            await self._finish()

    async def _drain_and_free(self) -> None:
        try:
            for coalescer in list(self._coalescers.values()):
                await coalescer.drain()
        finally:  # also when the loop ends
            await self.runtime.offload(self.subscriber.stop)
            await self._servers.close()

    def __del__(self) -> None:
        if self._made and self.runtime.at_home:
            self.subscriber.end()  # its thread; connections go with who has them
            if not self._closed:
                where = self._servers.where
                warnings.warn(f"unclosed store on {where}", ResourceWarning, stacklevel=2)

    def _new_coalescer(self, kind: tuple[Address, bool]) -> Coalescer:
        address, writes = kind
        wait = self._wait if writes else 0

        def new_pipeline() -> Pipeline:
            return Pipeline(self._servers, address, self._frame, wait_replicas=wait)

        # One of a cluster is used up: it may end at another node than it began with.
        only = None if self._servers.cluster else new_pipeline()

        async def flush(units: list[Unit]) -> None:
            pipeline = only or new_pipeline()
            try:
                await pipeline(units, repeat=False, patient=True)
            except (NotBegun, StoreError) as exc:  # seldom, so nobody pays for `settle` before
                await settle(units, pipeline, failed=exc)
            if self.subscriber.hub.topics:
                self.subscriber.tell(unit.topic for unit in units)

        # setdefault: two threads may come here first at once, and must share one.
        return self._coalescers.setdefault(kind, self.runtime.lanes(flush, self._servers.pool_size))

    async def _ask(self, commands: Sequence[Command], key: bytes) -> list[Reply]:
        pool = self._servers.pool(self._servers.address(key))
        replies: list[Reply] = []
        try:
            async with await pool.take() as connection:
                if await connection.exchange(commands, replies):
                    await call_unknown(connection, commands, replies)
        except StoreError as exc:
            exc.outcome_unknown = False
            raise
        await self._servers.follow(commands, replies)
        for reply in replies:
            if isinstance(reply, Refusal):
                raise translate(reply, pool.where) from reply
        return replies

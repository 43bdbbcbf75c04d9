"""The connection of an event loop: see connection.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis import exceptions

from holdfast.backends.redis.connection import CHUNK, CLOSED, Settle, is_replica
from holdfast.backends.redis.errors import translate_loss
from holdfast.backends.redis.protocol import Command, Reader, Reply, pack
from holdfast.runtime.aio import resume


class AsyncConnection(asyncio.BufferedProtocol):
    """Awaits the event loop. What arrives is read at once, with no stream and no task between."""

    def __init__(self, raw: Any, where: str, call_timeout: float) -> None:  # noqa: ANN401 - as above
        self._raw = raw
        self._transport: asyncio.WriteTransport = raw._writer.transport  # noqa: SLF001 - see protocol.py for why
        self._loop = asyncio.get_running_loop()
        # What loop.create_future() does, without a frame of Python for each exchange.
        self._future: Callable[[], asyncio.Future[bool]] = partial(asyncio.Future, loop=self._loop)
        self._where = where
        self._call_timeout = call_timeout
        self._buffer = memoryview(bytearray(CHUNK))
        self._reader = Reader()
        self._replies: list[Reply] = []
        self._wanted = 0
        self._settle: Settle | None = None
        self._refusals = 0  # that the reader had met before
        self._answered: asyncio.Future[bool] | None = None  # of the exchange that is under way
        self._deadline = 0.0  # of that exchange
        self._timer: asyncio.TimerHandle | None = None  # due at the deadline, or before
        self._due = 0.0
        self._lost: OSError | None = None
        self._early = b""  # what a server said that did not wait to be asked
        self.usable = True

    async def take_over(self) -> None:
        """Begin with what redis-py has read since it connected, and whether that was all."""
        reader: asyncio.StreamReader = self._raw._reader  # noqa: SLF001
        ended = reader.at_eof() or self._transport.is_closing()
        self._transport.set_protocol(self)
        reader.feed_eof()  # so that reading ends with what is there
        try:
            self._early = await reader.read()
        except OSError as exc:
            self._lost = exc
        if ended or self._early:
            self._lost = ConnectionResetError(CLOSED)

    def exchange(
        self,
        commands: Sequence[Command],
        replies: list[Reply],
        *,
        more_secs: float = 0,
        settle: Settle | None = None,
    ) -> asyncio.Future[bool]:
        """See RedisConnection. What is awaited is the last answer, with no coroutine between."""
        self.usable = False
        self._settle = settle
        self._replies = replies
        self._wanted = len(replies) + len(commands)
        self._refusals = self._reader.refusals
        self._answered = answered = self._future()
        if self._lost is not None:
            self._reader.feed(self._early, replies)
            self._early = b""
            if len(replies) < self._wanted:
                self._fail(self._lost)
            else:
                answered.set_result(True)  # who was left so early looks at each answer
        elif commands:
            self._deadline = self._loop.time() + self._call_timeout + more_secs
            if self._timer is None or self._due > self._deadline:
                self._watch()
            self._transport.write(pack(commands))
        else:
            self._finish(answered)
        return answered

    async def abandon(self) -> None:
        """Free the connection at once.

        Who is cancelled was reading, or the loop ends: a pipeline goes on without its callers.
        """
        await self.close()

    async def close(self) -> None:
        """See RedisConnection."""
        self.usable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with contextlib.suppress(exceptions.RedisError, OSError):
            await self._raw.disconnect(nowait=True)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop."""
        answered = self._answered
        if answered is None or answered.done():
            self._transport.abort()  # nobody asked
            return
        try:
            self._reader.feed(self._buffer[:nbytes], self._replies)
            if len(self._replies) < self._wanted:
                return
            if self._settle is not None and self._reader.refusals == self._refusals:
                resume(self._settle())  # a turn of the loop sooner than who awaits the exchange
            self._finish(answered)
        except Exception as exc:  # noqa: BLE001 - raised where it is waited for
            self._fail(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._lost = exc if isinstance(exc, OSError) else ConnectionResetError(CLOSED)
        self._fail(self._lost)

    def _finish(self, answered: asyncio.Future[bool]) -> None:
        """Say that all answers are there."""
        self._answered = None
        refused = self._reader.refusals > self._refusals
        self.usable = not (refused and any(map(is_replica, self._replies)))
        answered.set_result(refused)

    def _watch(self) -> None:
        """Let the exchange fail at its deadline.

        A timer for each would cost more than the rest: one that is due looks when it is due again.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._deadline
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._answered is None:
            return
        if self._loop.time() < self._deadline:
            self._watch()
        else:
            self._fail(TimeoutError())

    def _fail(self, exc: Exception) -> None:
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            if isinstance(exc, OSError):
                error = translate_loss(exc, self._where)
                error.__cause__ = exc
                exc = error
            answered.set_exception(exc)

"""One connection behind `exchange`, in both colours: commands go out at once, then all answers.

redis-py makes the connection: it knows how to log in, TLS, and what a URL may say.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import redis.asyncio.connection as aio
import redis.connection as blocking
from redis import exceptions

from holdfast.backends.redis.errors import translate_connect, translate_loss
from holdfast.backends.redis.protocol import Command, Reader, Refusal, Reply, pack

_CHUNK = 256 * 1024
_GRACE = 2.0  # seconds
_CLOSED = "the server has closed it"


class RedisConnection(Protocol):
    """A connection of either colour."""

    async def exchange(
        self, commands: Sequence[Command], replies: list[Reply], *, more_secs: float = 0
    ) -> None:
        """Send all commands, and add the answer to each to `replies` as it comes.

        The server may take so much longer than a call's time. Raised is what broke the
        connection, and then `replies` has what was answered before.
        """

    async def abandon(self) -> None:
        """Free the connection of a caller that gave up in the middle."""

    async def close(self) -> None:
        """Free the connection."""

    @property
    def usable(self) -> bool:
        """True until it breaks, is left in the middle of an exchange, or leads to a replica."""


class Settings:
    """What it takes to connect: the URL, and how patient to be."""

    def __init__(self, url: str, *, connect_timeout: float, call_timeout: float) -> None:
        self.call_timeout = call_timeout
        parsed: dict[str, Any] = dict(blocking.parse_url(url))  # type: ignore[no-untyped-call]
        self._tls = parsed.pop("connection_class", None) is not None
        self.options = {
            **parsed,
            "socket_timeout": connect_timeout,
            "socket_connect_timeout": connect_timeout,
            "protocol": 2,
            "driver_info": None,  # saves a round trip for each connection
        }
        # Not connected yet: it raises TypeError for an option that is none of redis-py's.
        (blocking.SSLConnection if self._tls else blocking.Connection)(**self.options)

    def open_blocking(self, where: str, address: tuple[str, int] | None) -> Any:  # noqa: ANN401 - redis-py types its own loosely
        """redis-py's connection, for a thread."""
        kind = blocking.SSLConnection if self._tls else blocking.Connection
        raw: Any = kind(**self._options_for(address))
        try:
            raw.connect()
        except (exceptions.RedisError, OSError) as exc:
            raise translate_connect(exc, where) from exc
        return raw

    async def open_async(self, where: str, address: tuple[str, int] | None) -> Any:  # noqa: ANN401 - as above
        """redis-py's connection, for an event loop."""
        kind = aio.SSLConnection if self._tls else aio.Connection
        raw: Any = kind(**self._options_for(address))
        try:
            await raw.connect()
        except (exceptions.RedisError, OSError) as exc:
            raise translate_connect(exc, where) from exc
        except BaseException:
            await raw.disconnect(nowait=True)
            raise
        return raw

    def _options_for(self, address: tuple[str, int] | None) -> dict[str, Any]:
        if address is None:
            return self.options
        return {**self.options, "host": address[0], "port": address[1]}


class BlockingConnection:
    """Blocks the calling thread."""

    def __init__(self, raw: Any, where: str, call_timeout: float) -> None:  # noqa: ANN401 - as above
        self._raw = raw
        self._socket = raw._sock  # noqa: SLF001 - see protocol.py for why
        self._where = where
        self._call_timeout = call_timeout
        self._reader = Reader()
        self.usable = True

    async def exchange(
        self, commands: Sequence[Command], replies: list[Reply], *, more_secs: float = 0
    ) -> None:
        """See RedisConnection."""
        self.usable = False
        wanted = len(replies) + len(commands)
        try:
            self._socket.settimeout(self._call_timeout + more_secs)
            self._socket.sendall(pack(commands))
            while len(replies) < wanted:
                self._reader.feed(_checked(self._socket.recv(_CHUNK)), replies)
        except OSError as exc:
            raise translate_loss(exc, self._where) from exc
        self.usable = not any(map(_is_replica, replies))

    async def abandon(self) -> None:
        """Free the connection, once what was sent is done.

        An interrupted thread may go on and write again, and that must come second. A server
        that does not answer is not waited for long.
        """
        with contextlib.suppress(OSError):
            self._socket.settimeout(_GRACE)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(_CHUNK):
                pass
        await self.close()

    async def close(self) -> None:
        """See RedisConnection."""
        self.usable = False
        self._raw.disconnect()


class AsyncConnection(asyncio.Protocol):
    """Awaits the event loop. What arrives is read at once, with no stream and no task between."""

    def __init__(self, raw: Any, where: str, call_timeout: float) -> None:  # noqa: ANN401 - as above
        self._raw = raw
        self._transport: asyncio.WriteTransport = raw._writer.transport  # noqa: SLF001 - see protocol.py for why
        self._loop = asyncio.get_running_loop()
        self._where = where
        self._call_timeout = call_timeout
        self._reader = Reader()
        self._replies: list[Reply] = []
        self._wanted = 0
        self._answered: asyncio.Future[None] | None = None  # of the exchange that is under way
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
            self._lost = ConnectionResetError(_CLOSED)

    async def exchange(
        self, commands: Sequence[Command], replies: list[Reply], *, more_secs: float = 0
    ) -> None:
        """See RedisConnection."""
        self.usable = False
        self._replies = replies
        self._wanted = len(replies) + len(commands)
        try:
            if self._lost is not None:
                self._reader.feed(self._early, replies)
                self._early = b""
                if len(replies) < self._wanted:
                    raise self._lost
                return
            self._answered = self._loop.create_future()
            self._watch(self._loop.time() + self._call_timeout + more_secs)
            if commands:
                self._transport.write(pack(commands))
                await self._answered
        except OSError as exc:
            raise translate_loss(exc, self._where) from exc
        finally:
            self._answered = None
        self.usable = not any(map(_is_replica, replies))

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

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        answered = self._answered
        if answered is None or answered.done():
            self._transport.abort()  # nobody asked
            return
        try:
            self._reader.feed(data, self._replies)
        except Exception as exc:  # noqa: BLE001 - raised where it is waited for
            self._fail(exc)
            return
        if len(self._replies) >= self._wanted:
            answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._lost = exc if isinstance(exc, OSError) else ConnectionResetError(_CLOSED)
        self._fail(self._lost)

    def _watch(self, deadline: float) -> None:
        """Let the exchange fail at that time.

        A timer for each would cost more than the rest: one that is due looks when it is due again.
        """
        self._deadline = deadline
        if self._timer is not None and self._due <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._answered is None:
            return
        if self._loop.time() < self._deadline:
            self._watch(self._deadline)
        else:
            self._fail(TimeoutError())

    def _fail(self, exc: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc)


def _is_replica(reply: Reply) -> bool:
    """True if the server was the primary once: the address may lead to another one by now."""
    if isinstance(reply, list) and reply:
        reply = reply[0]  # a script for several writes, each of them refused
    return isinstance(reply, Refusal) and reply.code == "READONLY"


def _checked(data: bytes) -> bytes:
    if not data:
        raise ConnectionResetError(_CLOSED)
    return data

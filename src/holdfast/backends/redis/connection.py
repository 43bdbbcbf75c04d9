"""One connection behind `exchange`: commands go out at once, then all answers come.

redis-py makes the connection: it knows how to log in, TLS, and what a URL may say. Here is the one
of a thread; that of an event loop is in connection_async.py.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import redis.asyncio.connection as aio
import redis.connection as blocking
from redis import exceptions

# By name: where there is hiredis redis-py reads ahead with it, and what it has read is not ours.
from redis._parsers import _AsyncRESP2Parser, _RESP2Parser

from holdfast.backends.redis.errors import translate_connect, translate_loss
from holdfast.backends.redis.protocol import Command, Reader, Refusal, Reply, pack
from holdfast.runtime import Unit

CHUNK = 64 * 1024
"""How many bytes are read at a time. Memory for 256 KiB comes from the system: 20 µs each time."""

_GRACE = 2.0  # seconds
Settle = Callable[[], list[Unit]]
"""Makes outcomes of answers; who waits for these units may go on then."""

CLOSED = "the server has closed it"
"""Why a connection is lost, when nobody says more."""


class RedisConnection(Protocol):
    """A connection of either colour."""

    def exchange(
        self,
        commands: Sequence[Command],
        replies: list[Reply],
        *,
        more_secs: float = 0,
        settle: Settle | None = None,
    ) -> Awaitable[bool]:
        """Send all commands, and add the answer to each to `replies` as it comes.

        True if a Refusal is among them, or in a list of theirs. The server may take so much
        longer than a call's time. Raised is what broke the connection, and then `replies` has
        what was answered before. If no Refusal is among them, an event loop's connection calls
        `settle` where it reads the last answer.
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
        raw: Any = kind(**self._options_for(address), parser_class=_RESP2Parser)
        try:
            raw.connect()
        except (exceptions.RedisError, OSError) as exc:
            raise translate_connect(exc, where) from exc
        return raw

    async def open_async(self, where: str, address: tuple[str, int] | None) -> Any:  # noqa: ANN401 - as above
        """redis-py's connection, for an event loop."""
        kind = aio.SSLConnection if self._tls else aio.Connection
        raw: Any = kind(**self._options_for(address), parser_class=_AsyncRESP2Parser)
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
        self,
        commands: Sequence[Command],
        replies: list[Reply],
        *,
        more_secs: float = 0,
        settle: Settle | None = None,
    ) -> bool:
        """See RedisConnection."""
        del settle  # nobody would be woken sooner
        self.usable = False
        wanted = len(replies) + len(commands)
        before = self._reader.refusals
        try:
            self._socket.settimeout(self._call_timeout + more_secs)
            self._socket.sendall(pack(commands))
            while len(replies) < wanted:
                self._reader.feed(_checked(self._socket.recv(CHUNK)), replies)
        except OSError as exc:
            raise translate_loss(exc, self._where) from exc
        refused = self._reader.refusals > before
        self.usable = not (refused and any(map(is_replica, replies)))
        return refused

    async def abandon(self) -> None:
        """Free the connection, once what was sent is done.

        An interrupted thread may go on and write again, and that must come second. A server
        that does not answer is not waited for long.
        """
        with contextlib.suppress(OSError):
            self._socket.settimeout(_GRACE)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(CHUNK):
                pass
        await self.close()

    async def close(self) -> None:
        """See RedisConnection."""
        self.usable = False
        self._raw.disconnect()


def is_replica(reply: Reply) -> bool:
    """True if the server was the primary once: the address may lead to another one by now."""
    if isinstance(reply, list) and reply:
        reply = reply[0]  # a script for several writes, each of them refused
    return isinstance(reply, Refusal) and reply.code == "READONLY"


def _checked(data: bytes) -> bytes:
    if not data:
        raise ConnectionResetError(CLOSED)
    return data

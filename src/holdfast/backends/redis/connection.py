"""One redis-py connection behind `exchange`, in both colours.

Only redis-py's connections are used, which know the protocol, TLS and how to log in. What is
sent on them, and when, is decided here: a list of commands at once, then all answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import redis.asyncio.connection as aio
import redis.connection as blocking
from redis import exceptions

from holdfast.backends.redis.errors import is_answer, translate_connect, translate_loss

Command = Sequence[bytes]
Reply = Any
"""What redis-py makes of an answer: bytes, numbers, lists, None; or an exception, not raised."""

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)


class RedisConnection(Protocol):
    """A connection of either colour."""

    async def exchange(self, commands: Sequence[Command], replies: list[Reply]) -> None:
        """Send all commands, and add the answer to each to `replies` as it comes.

        An answer that is an error is added too, not raised. Raised is what broke the connection,
        and then `replies` has what was answered before.
        """

    async def close(self) -> None:
        """Free the connection."""

    @property
    def usable(self) -> bool:
        """True until it breaks, or is left in the middle of an exchange."""


class Settings:
    """What redis-py needs to know to connect: the URL, and how patient to be."""

    def __init__(self, url: str, *, connect_timeout: float, call_timeout: float) -> None:
        self.call_timeout = call_timeout
        self._tls = url.startswith("rediss")
        parsed: dict[str, Any] = dict(blocking.parse_url(url))  # type: ignore[no-untyped-call]
        parsed.pop("connection_class", None)
        self._unix = "path" in parsed
        self.options = {
            **parsed,
            "socket_timeout": connect_timeout,
            "socket_connect_timeout": connect_timeout,
            "protocol": 2,
            "driver_info": None,  # saves a round trip for each connection
        }

    async def connect_blocking(self, where: str, address: tuple[str, int] | None) -> Blocking:
        """A connection that blocks its thread."""
        return self.connect_aside(where, address)

    def connect_aside(self, where: str, address: tuple[str, int] | None = None) -> Blocking:
        """The same, for a thread of ours."""
        kind: Any = blocking.SSLConnection if self._tls else blocking.Connection
        if self._unix:
            kind = blocking.UnixDomainSocketConnection
        raw = kind(**self._options_for(address))
        try:
            raw.connect()
        except (exceptions.RedisError, OSError) as exc:
            raise translate_connect(exc, where) from exc
        raw.socket_timeout = self.call_timeout
        raw._sock.settimeout(self.call_timeout)  # noqa: SLF001 - it has no other way
        return Blocking(raw, where)

    async def connect_async(self, where: str, address: tuple[str, int] | None) -> Awaiting:
        """A connection that awaits the event loop."""
        kind: Any = aio.SSLConnection if self._tls else aio.Connection
        if self._unix:
            kind = aio.UnixDomainSocketConnection
        raw = kind(**self._options_for(address))
        try:
            await raw.connect()
        except (exceptions.RedisError, OSError) as exc:
            raise translate_connect(exc, where) from exc
        except BaseException:
            await raw.disconnect(nowait=True)
            raise
        raw.socket_timeout = None  # an exchange has one limit, not each answer
        return Awaiting(raw, where, self.call_timeout)

    def _options_for(self, address: tuple[str, int] | None) -> dict[str, Any]:
        if address is None:
            return self.options
        return {**self.options, "host": address[0], "port": address[1]}


class Blocking:
    """Blocks the calling thread."""

    def __init__(self, raw: Any, where: str) -> None:  # noqa: ANN401 - redis-py types it loosely
        self.raw = raw
        self._where = where
        self.usable = True

    async def exchange(self, commands: Sequence[Command], replies: list[Reply]) -> None:
        """See RedisConnection."""
        self.usable = False
        try:
            self.raw.send_packed_command(pack(commands), check_health=False)
            wanted = len(replies) + len(commands)
            while len(replies) < wanted:
                replies.append(self._read())
        except _LOST as exc:
            raise translate_loss(exc, self._where) from exc
        self.usable = True

    def _read(self) -> Reply:
        try:
            return self.raw.read_response(disable_decoding=True, disconnect_on_error=False)
        except exceptions.RedisError as exc:
            if is_answer(exc):
                return exc
            raise

    async def close(self) -> None:
        """See RedisConnection."""
        self.usable = False
        self.raw.disconnect()


class Awaiting:
    """Awaits the event loop."""

    def __init__(self, raw: Any, where: str, call_timeout: float) -> None:  # noqa: ANN401 - as above
        self.raw = raw
        self._where = where
        self._call_timeout = call_timeout
        self.usable = True

    async def exchange(self, commands: Sequence[Command], replies: list[Reply]) -> None:
        """See RedisConnection."""
        self.usable = False
        try:
            async with asyncio.timeout(self._call_timeout):
                await self.raw.send_packed_command(pack(commands), check_health=False)
                wanted = len(replies) + len(commands)
                while len(replies) < wanted:
                    replies.append(await self._read())
        except _LOST as exc:
            raise translate_loss(exc, self._where) from exc
        self.usable = True

    async def _read(self) -> Reply:
        try:
            return await self.raw.read_response(disable_decoding=True, disconnect_on_error=False)
        except exceptions.RedisError as exc:
            if is_answer(exc):
                return exc
            raise

    async def close(self) -> None:
        """See RedisConnection."""
        self.usable = False
        with contextlib.suppress(*_LOST):
            await self.raw.disconnect(nowait=True)


def pack(commands: Sequence[Command]) -> list[bytes]:
    """The commands as the protocol has them, in one piece."""
    parts = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        parts.extend([b"$%d\r\n%b\r\n" % (len(word), word) for word in command])
    return [b"".join(parts)]

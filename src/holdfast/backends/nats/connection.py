"""A connection to NATS on one event loop: questions and their answers.

nats-py reconnects by itself. What it does not do is done here: who waits for an answer when the
connection goes is told at once, nothing is sent while there is none, and a client that was
closed for good by an error of the server is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from weakref import WeakMethod

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import (
    ConnectionClosedError,
    Error,
    MaxPayloadError,
    OutboundBufferLimitError,
)

from holdfast.backends.nats.client import SafeClient, connect_options
from holdfast.backends.nats.errors import NoAnswer, NotSent, connect_error, refused, too_large
from holdfast.backends.nats.waiter import STATUS, Waiter
from holdfast.config import StoreConfig, seconds
from holdfast.errors import StoreError, Unauthorized
from holdfast.url import redacted

_log = logging.getLogger("holdfast.nats")
_NO_RESPONDERS = "503"
_RECONNECT_WAIT = 0.1  # seconds between two tries at the same server
_FIRST_TRIES = 3  # at each server: a refusal may be lost to the reset that follows it
_PING_INTERVAL = 5.0  # after three of them without an answer the server counts as gone
_HEADERS_ROOM = 1024  # bytes of a message beside its payload

Hear = Callable[[Msg], Awaitable[None]]


class Connection:
    """Everything but `close` is for the loop that called `open`."""

    def __init__(self, address: str, config: StoreConfig) -> None:
        self.where = redacted(address)
        self._options = connect_options(address)
        self._timeout = seconds(config.connect_timeout)
        self._client: Client | None = None
        self._inbox = ""
        self._numbers = count(1)
        self._waiting: dict[str, Waiter] = {}
        self._heard: dict[str, Hear] = {}
        self._up = asyncio.Event()
        self._closing = False
        self._reviver: asyncio.Task[None] | None = None
        self._last_error: BaseException | None = None
        self.on_reconnect: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Connect; raises what stands in the way."""
        await self._connect()

    @property
    def max_payload(self) -> int:
        """The largest value that the server takes, in bytes."""
        return (self._client.max_payload if self._client else 0) - _HEADERS_ROOM

    @property
    def version(self) -> tuple[int, int]:
        """The server's."""
        if self._client is None:
            return (0, 0)
        found = self._client.connected_server_version
        return (found.major, found.minor)

    async def hear(self, subject: str, method: Hear) -> None:
        """Call that for each message on the subject, also after a reconnect.

        As long as its object lives: the loop, which holds this, is not to hold a forgotten store.
        """
        heard = WeakMethod(method)

        async def callback(message: Msg) -> None:
            if (call := heard()) is not None:
                await call(message)

        new = subject not in self._heard
        self._heard[subject] = callback
        if new and self._client is not None:
            await self._subscribe(self._client, subject, callback)

    async def ready(self, deadline: float) -> None:
        """Return while there is a connection; raise why there is none when time is up."""
        if self._up.is_set():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._up.wait()
        except TimeoutError:
            raise connect_error(self._last_error, self.where) from self._last_error

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float,
    ) -> Msg:
        """The answer; raises NotSent or NoAnswer."""
        (message,) = await self._ask(subject, payload, headers, patience, Waiter(subject))
        return message

    async def ask_many(self, subject: str, payload: bytes, *, patience: float) -> list[Msg]:
        """All answers up to the one with a status; `patience` is for each of them."""
        return await self._ask(subject, payload, None, patience, Waiter(subject, many=True))

    async def tell(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """Send it; raises NotSent."""
        await self._send(subject, payload, headers, "")

    async def close(self) -> None:
        """End it; who still waits gets NoAnswer."""
        self._closing = True
        if self._reviver is not None:
            self._reviver.cancel()
        if self._client is not None:
            await self._client.close()
        self._fail_waiting("the store was closed")

    async def _ask(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None,
        patience: float,
        waiter: Waiter,
    ) -> list[Msg]:
        token = str(next(self._numbers))
        self._waiting[token] = waiter
        waiter.start(patience)
        try:
            await self._send(subject, payload, headers, f"{self._inbox}.{token}")
            messages = await waiter.future
        finally:
            waiter.stop()
            self._waiting.pop(token, None)
        first = messages[0].headers or {}
        if first.get(STATUS) == _NO_RESPONDERS:
            raise NotSent(f"{subject}: JetStream is off there, or has no leader now")
        return messages

    async def _send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, reply: str
    ) -> None:
        client = self._client
        if client is None or not self._up.is_set():
            raise NotSent("there is no connection")
        if len(payload) > self.max_payload:
            raise too_large(
                f"{self.where}: {len(payload)} bytes, and the server takes {self.max_payload}"
            )
        try:
            await client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except OutboundBufferLimitError:
            raise NotSent("the connection was lost") from None
        except MaxPayloadError as exc:
            raise too_large(f"{self.where}: {exc}") from exc
        except (Error, OSError) as exc:
            raise NotSent(str(exc)) from exc

    async def _connect(self) -> None:
        client = SafeClient()

        async def disconnected() -> None:
            if self._client is client:
                self._up.clear()
                self._last_error = None
                self._fail_waiting("the connection was lost")

        async def reconnected() -> None:
            if self._client is client:
                self._up.set()
                self.on_reconnect()

        async def closed() -> None:
            if self._client is client and not self._closing and self._reviver is None:
                self._up.clear()
                self._reviver = asyncio.get_running_loop().create_task(self._revive())

        self._last_error = None
        try:
            async with asyncio.timeout(self._timeout):
                await client.connect(
                    **self._options,
                    name="holdfast",
                    connect_timeout=max(1, int(self._timeout)),
                    max_reconnect_attempts=_FIRST_TRIES,
                    reconnect_time_wait=_RECONNECT_WAIT,  # type: ignore[arg-type] # a float will do
                    ping_interval=_PING_INTERVAL,  # type: ignore[arg-type]
                    pending_size=0,  # what cannot be sent now is ours to keep
                    error_cb=self._failed,
                    disconnected_cb=disconnected,
                    reconnected_cb=reconnected,
                    closed_cb=closed,
                )
        except BaseException as exc:
            await client.close()
            if isinstance(exc, Error | OSError):
                cause = self._last_error or exc
                raise connect_error(cause, self.where) from cause
            raise
        await self._set_up(client)

    async def _failed(self, exc: Exception) -> None:
        _log.debug("%s: %s", self.where, exc)
        # After a refusal the server resets the connection, and that is what other tries meet.
        self._last_error = self._last_error if refused(self._last_error) else exc
        if refused(exc):
            self._refuse(str(exc).lower())

    async def _set_up(self, client: SafeClient) -> None:
        # The first connection is soon given up, a lost one never.
        client.options["max_reconnect_attempts"] = -1
        self._inbox = client.new_inbox()
        self._client = client  # from here on a loss is heard of
        client.take = self._take
        await self._subscribe(client, f"{self._inbox}.*", self._answered)
        for subject, callback in self._heard.items():
            await self._subscribe(client, subject, callback)
        if client.is_connected:
            self._up.set()

    async def _revive(self) -> None:
        """Connect anew, until that works."""
        try:
            while True:
                try:
                    await self._connect()
                except StoreError as exc:
                    self._last_error = exc.__cause__ or exc
                else:
                    self.on_reconnect()
                    return
                await asyncio.sleep(_RECONNECT_WAIT)
        finally:
            self._reviver = None

    @staticmethod
    async def _subscribe(client: Client, subject: str, callback: Hear) -> None:
        # Without limits: what comes was asked for, and pages are small.
        with contextlib.suppress(ConnectionClosedError):  # the next client does it again
            await client.subscribe(
                subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0
            )

    def _take(self, message: Msg) -> bool:
        """True if it is an answer; who waits for it is told."""
        inbox, _, token = message.subject.rpartition(".")
        if inbox != self._inbox:
            return False
        waiter = self._waiting.get(token)
        if waiter is not None:
            waiter.take(message)
        return True

    async def _answered(self, message: Msg) -> None:
        """For the subscription: `_take` is faster, and leaves nothing to do."""
        self._take(message)

    def _refuse(self, words: str) -> None:
        """Tell who sent what the server did not permit: it answers nothing else to that."""
        for waiter in self._waiting.values():
            if f'"{waiter.subject.lower()}"' in words:
                waiter.fail(Unauthorized(f"{self.where}: {words}"))

    def _fail_waiting(self, why: str) -> None:
        for waiter in self._waiting.values():
            waiter.fail(NoAnswer(why))

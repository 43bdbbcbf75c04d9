"""Questions to JetStream about one stream, asked again while nobody answers.

Reads and management only: they may be repeated. A write is asked once, and change.py finds out
what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg

from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.errors import NoAnswer, NotSent, api_error, gave_up
from holdfast.backends.nats.waiter import STATUS
from holdfast.config import StoreConfig, seconds
from holdfast.errors import Database, NotFound

T = TypeVar("T")
PAUSE = 0.02
"""Seconds before a question is asked again."""

# How long one try waits for its answer. A leader that died tells nobody.
_ATTEMPT = 2.0
_API = "$JS.API."
_END, _NOTHING = "204", "404"  # of several answers, or instead of one


class Questions:
    """Every question has a deadline by the loop's clock, and raises typed errors after it."""

    def __init__(self, connection: Connection, config: StoreConfig, stream: str) -> None:
        self.connection = connection
        self.where = f"NATS stream {stream!r}"
        self._direct = f"{_API}DIRECT.GET.{stream}"
        self._timeout = seconds(config.call_timeout)
        self.found = False
        """True once the stream was there: while leaders change, a server may not know of it."""

    def deadline(self) -> float:
        """When a call that begins now must have ended."""
        return asyncio.get_running_loop().time() + self._timeout

    def patience(self, deadline: float) -> float:
        """How long the next try may wait for its answer; 0 or less when time is up."""
        return min(_ATTEMPT, deadline - asyncio.get_running_loop().time())

    async def api(
        self, name: str, question: Mapping[str, Any], deadline: float, *, long: bool = False
    ) -> dict[str, Any]:
        """What the leader answers; a `long` answer may take half of the time that there is."""
        asked = msgspec.json.encode(question)

        async def attempt(patience: float) -> dict[str, Any]:
            answer = await self.connection.ask(f"{_API}{name}", asked, patience=patience)
            return self.checked(answer)

        return await self._repeated(attempt, deadline, long=long)

    async def direct(self, question: Mapping[str, Any], deadline: float) -> Msg | None:
        """The message that is asked for, from whoever has it; None if there is none."""
        asked = msgspec.json.encode(question)

        async def attempt(patience: float) -> Msg:
            return await self.connection.ask(self._direct, asked, patience=patience)

        answer = await self._repeated(attempt, deadline)
        return None if self._status(answer) == _NOTHING else answer

    async def direct_batch(
        self, question: Mapping[str, Any], deadline: float
    ) -> tuple[list[Msg], Mapping[str, str]]:
        """The messages that are asked for, and what is said at their end, if there are any."""
        asked = msgspec.json.encode(question)

        async def attempt(patience: float) -> list[Msg]:
            return await self.connection.ask_many(self._direct, asked, patience=patience)

        *messages, last = await self._repeated(attempt, deadline)
        return messages, last.headers or {} if self._status(last) == _END else {}

    def checked(self, answer: Msg) -> dict[str, Any]:
        """The answer, unless it is an error."""
        found: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in found:
            raise api_error(found["error"], self.where)
        return found

    def _status(self, answer: Msg) -> str | None:
        headers = answer.headers or {}
        status = headers.get(STATUS)
        if status not in {None, _END, _NOTHING}:
            raise Database(f"{self.where}: {status} {headers.get('Description', '')}")
        return status

    async def _repeated(
        self, attempt: Callable[[float], Awaitable[T]], deadline: float, *, long: bool = False
    ) -> T:
        last: Exception | None = None
        while True:
            await self.connection.ready(deadline)
            patience = self.patience(deadline)
            if patience <= 0:
                if isinstance(last, NotFound):
                    raise last
                raise gave_up(last, self.where, write=False) from last
            if long:
                patience = max(patience, (deadline - asyncio.get_running_loop().time()) / 2)
            try:
                return await attempt(patience)
            except NotFound as exc:
                if not self.found:
                    raise
                last = exc
            except NotSent as exc:
                last = exc
            except NoAnswer as exc:
                last = last or exc  # that nobody takes it says more
            await asyncio.sleep(PAUSE)

"""Who waits for an answer."""

from __future__ import annotations

import asyncio

from nats.aio.msg import Msg

from holdfast.backends.nats.errors import NoAnswer

STATUS = "Status"
"""The header of an answer that is no message."""


class Waiter:
    """Who waits for one answer, or for many up to the one with a status."""

    __slots__ = (
        "_heard",
        "_loop",
        "_many",
        "_messages",
        "_patience",
        "_timer",
        "future",
        "subject",
    )

    def __init__(self, subject: str, *, many: bool = False) -> None:
        self.subject = subject
        self._many = many
        self._messages: list[Msg] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.future: asyncio.Future[list[Msg]] = self._loop.create_future()

    def start(self, patience: float) -> None:
        """Give up after so long without an answer."""
        self._patience = patience
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(patience, self._late)

    def stop(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():
            self.future.cancel()

    def take(self, message: Msg) -> None:
        """Here is an answer."""
        if self.future.done():
            return
        self._heard = self._loop.time()
        self._messages.append(message)
        if not self._many or STATUS in (message.headers or {}):
            self.future.set_result(self._messages)

    def fail(self, error: Exception) -> None:
        """There will be none."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # who waited may have left

    def _late(self) -> None:
        left = self._heard + self._patience - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._late)
        else:
            self.fail(NoAnswer("no answer in time"))

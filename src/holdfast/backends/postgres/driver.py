"""psycopg's connections, with a limit on how long an answer may take.

The server enforces `statement_timeout`. A server that has vanished enforces
nothing, so the client waits a little longer than that and then gives the
connection up.

psycopg's own `wait` asks the server to cancel the statement of whoever is
cancelled or interrupted, 10 s long when it does not answer. What we do instead is
`abandon`.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from weakref import ref

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.waiting import READY_R, READY_W, WAIT_R, WAIT_W

RV = TypeVar("RV")


class BlockingDriver(psycopg.Connection[Any]):
    """Blocks the calling thread."""

    answer_timeout: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """See above."""
        timeout = timeout or self.answer_timeout
        return waiting.wait(gen, self.pgconn.socket, interval=interval, timeout=timeout)

    def __del__(self, *_: object) -> None:
        """Go without psycopg's warning: after an interrupt nobody may be left to close it."""


class AsyncDriver(psycopg.AsyncConnection[Any]):
    """Awaits the event loop.

    psycopg's own way makes a timer for every answer and cancels it when it is there. Here one
    timer looks at whatever answer is awaited when it goes off, and begins anew if that one has
    time left: an answer costs no timer at all.
    """

    answer_timeout: float | None = None
    _answer: asyncio.Future[Any] | None = None
    _due_at = 0.0
    _timer: asyncio.TimerHandle | None = None

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's signature
    ) -> RV:
        """See above."""
        del interval  # a cancelled task is woken by its cancellation
        timeout = timeout or self.answer_timeout
        loop = asyncio.get_running_loop()
        try:
            wanted = next(gen)
            while True:
                self._answer = answer = loop.create_future()
                if timeout is not None:
                    self._due_at = loop.time() + timeout
                    if self._timer is None:
                        self._timer = loop.call_at(self._due_at, _look, ref(self), loop)
                wanted = gen.send(await self._ready(loop, answer, wanted))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except OSError as exc:
            raise psycopg.OperationalError("the connection's socket is closed") from exc

    async def _ready(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], wanted: int
    ) -> Any:  # noqa: ANN401 - psycopg's
        socket = self.pgconn.socket
        if wanted & WAIT_R:
            loop.add_reader(socket, _note, answer, READY_R)
        if wanted & WAIT_W:
            loop.add_writer(socket, _note, answer, READY_W)
        try:
            return await answer
        finally:
            if wanted & WAIT_R:
                loop.remove_reader(socket)
            if wanted & WAIT_W:
                loop.remove_writer(socket)

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give up the answer that is overdue, or look again when it will be."""
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if loop.time() < self._due_at:
            self._timer = loop.call_at(self._due_at, _look, ref(self), loop)
        else:
            self._answer.set_exception(_WaitTimeout("no answer in time"))


def _note(answer: asyncio.Future[Any], ready: object) -> None:
    if not answer.done():
        answer.set_result(ready)


def _look(driver: ref[AsyncDriver], loop: asyncio.AbstractEventLoop) -> None:
    found = driver()
    if found is not None:
        found.look(loop)

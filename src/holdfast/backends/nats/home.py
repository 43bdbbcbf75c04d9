"""The loop that a connection lives on, as callers reach it.

nats-py needs an event loop. Under asyncio that is the caller's. A blocking store has a thread
of its own with a private loop: a call is handed to it, and the caller's thread waits. Calls of
many threads are under way there together.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_FAREWELL = 5.0  # seconds that the last work of a forgotten store may take

Farewell = Callable[[], Coroutine[Any, Any, None]]
"""The last work on a loop, made when it is begun: nobody awaits what never is."""


class Home(Protocol):
    """See above."""

    def start(self, work: Coroutine[Any, Any, T]) -> Any:  # noqa: ANN401 - its own handle
        """Begin the work."""

    async def result(self, waiting: Any) -> Any:  # noqa: ANN401 - whatever the work gives
        """What the work came to."""

    def post(self, call: Callable[[], None]) -> None:
        """Call that on the loop."""

    async def end(self) -> None:
        """Free the loop."""

    def abandon(self, farewell: Farewell) -> None:
        """Free the loop after that work, without waiting for it; from any thread."""


class CallersLoop:
    """The loop that is running when it is made; it ends by itself."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """See Home."""
        return work

    async def result(self, waiting: Coroutine[Any, Any, T]) -> T:
        """See Home."""
        return await waiting

    def post(self, call: Callable[[], None]) -> None:
        """See Home."""
        call()

    async def end(self) -> None:
        """See Home."""

    def abandon(self, farewell: Farewell) -> None:
        """See Home."""
        _call(self._loop, lambda: self._leave(farewell))

    def _leave(self, farewell: Farewell) -> None:
        self._last = self._loop.create_task(farewell(), name="holdfast farewell")


class OwnThread:
    """A thread with a private loop. It must know nothing of the store, or it keeps it alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast nats", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Any:  # noqa: ANN401 - see Home
        """See Home."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def result(self, waiting: Any) -> Any:  # noqa: ANN401 - see Home
        """See Home."""
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()  # the caller was interrupted (Ctrl-C): nobody waits any more
            raise

    def post(self, call: Callable[[], None]) -> None:
        """See Home."""
        self._loop.call_soon_threadsafe(call)

    async def end(self) -> None:
        """See Home."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def abandon(self, farewell: Farewell) -> None:
        """See Home. The thread ends by itself: who collects garbage may be that very thread."""
        _call(self._loop, lambda: self._leave(farewell))

    def _leave(self, farewell: Farewell) -> None:
        self._last = self._loop.create_task(self._end_after(farewell), name="holdfast farewell")

    async def _end_after(self, farewell: Farewell) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await farewell()
        finally:
            self._loop.stop()


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and so is what lived on it
        loop.call_soon_threadsafe(call)

"""The leaf: where the calls of a store run.

nats-py needs an event loop. Under asyncio that is the caller's. A blocking store has a thread
of its own with a private loop: a call is handed to it, and the caller's thread waits. Calls of
many threads are under way there together.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from holdfast.backends.nats.connection import Connection
from holdfast.errors import StoreClosed
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime

T = TypeVar("T")


class NatsDb:
    """One connection, and the loop that it lives on."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self.connection = connection
        self.runtime = runtime
        self._home: _Home = _OwnThread() if isinstance(runtime, BlockingRuntime) else _CallersLoop()
        self._lock = threading.Lock()
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._finish = runtime.once(self._drain_and_free)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_close: Callable[[], None] = lambda: None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, done on the connection's loop."""
        try:
            self.runtime.check()
            with self._lock:  # after `close` has begun nothing may reach the loop any more
                self._check_open()
                waiting = self._home.start(self._counted(work))
        except BaseException:
            work.close()
            raise
        result: T = await self._home.result(waiting)
        return result

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let the work go on beside the calls, until it ends or the store is closed."""
        try:
            self.runtime.check()
            with self._lock:
                self._check_open()
                self._home.post(lambda: self._keep(work))
        except BaseException:
            work.close()
            raise

    async def close(self) -> None:
        """Finish the calls under way, then free everything; not what is the parent's after fork."""
        if not self.runtime.at_home:
            return
        self.runtime.check()
        with self._lock:
            self._closed = True
        self.on_close()
        await self._finish()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store on {self.connection.where} is closed")

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _counted(self, work: Coroutine[Any, Any, T]) -> T:
        self._under_way += 1
        try:
            return await work
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def _drain_and_free(self) -> None:
        await self._home.result(self._home.start(self._free()))
        await self._home.end()

    async def _free(self) -> None:
        try:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.connection.close()


class _Home(Protocol):
    """The loop, as callers reach it."""

    def start(self, work: Coroutine[Any, Any, T]) -> Any:  # noqa: ANN401 - its own handle
        """Begin the work."""

    async def result(self, waiting: Any) -> Any:  # noqa: ANN401 - whatever the work gives
        """What the work came to."""

    def post(self, call: Callable[[], None]) -> None:
        """Call that on the loop."""

    async def end(self) -> None:
        """Free the loop."""


class _CallersLoop:
    def start(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work

    async def result(self, waiting: Coroutine[Any, Any, T]) -> T:
        return await waiting

    def post(self, call: Callable[[], None]) -> None:
        call()

    async def end(self) -> None:
        pass


class _OwnThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast nats", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Any:  # noqa: ANN401 - see _Home
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def result(self, waiting: Any) -> Any:  # noqa: ANN401 - see _Home
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()  # the caller was interrupted (Ctrl-C): nobody waits any more
            raise

    def post(self, call: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(call)

    async def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

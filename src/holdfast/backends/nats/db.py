"""The leaf: where the calls of a store run, until it is closed or nobody holds it any more.

Everything of a store holds its NatsDb, and nothing on the loop does, but for calls that are
under way: what is begun beside them must not. So it is collected when nobody holds anything of
the store any more, and then its connection and its thread end (see home.py).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.home import CallersLoop, Home, OwnThread
from holdfast.errors import StoreClosed
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime

T = TypeVar("T")


class NatsDb:
    """One connection, and the loop that it lives on."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self.connection = connection
        self.runtime = runtime
        self._freed = True  # until there is something to free
        self._home: Home = OwnThread() if isinstance(runtime, BlockingRuntime) else CallersLoop()
        self._lock = threading.Lock()
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._finish = runtime.once(self._drain_and_free)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_close: Callable[[], None] = lambda: None
        self._freed = False

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
        """Let the work go on beside the calls, until it ends or the store does."""
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
        self._freed = True

    async def _free(self) -> None:
        try:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
        finally:
            await _disconnect(self.connection, self._tasks)

    def __del__(self) -> None:
        if self._freed or not self.runtime.at_home:
            return
        self._freed = True
        # At its end a program's threads stand still, and the system frees what they have.
        if not sys.is_finalizing():
            self._home.abandon(partial(_disconnect, self.connection, self._tasks))
        warnings.warn(f"unclosed store on {self.connection.where}", ResourceWarning, stacklevel=2)


async def _disconnect(connection: Connection, tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await connection.close()

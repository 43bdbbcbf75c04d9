"""The blocking colour: coroutines stepped to their end on the caller's thread.

A caller that finds the writer idle runs its batch on its own thread; one that
finds it busy joins the waiting batch and sleeps. Who finishes a flush hands the
lead to the first of those waiting, so nobody works for others after its own
answer is there. Measured: a writer thread instead costs a single caller 7 to 23 %.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from holdfast.errors import InvalidState, StoreClosed
from holdfast.runtime.contract import Coalescer, Flush, HomeProcess, Limiter, Unit, take_batch

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result; it must not suspend, and with a blocking leaf it never does."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise InvalidState("a coroutine of the blocking store suspended: its leaf awaited a loop")


class BlockingRuntime(HomeProcess):
    """Blocks the calling thread; safe to use from many threads."""

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)  # noqa: ASYNC251 - this colour blocks

    async def offload(self, work: Callable[[], T], on: Executor | None = None) -> T:
        """Run the work right here: the caller chose to block."""
        del on
        return work()

    def coalescer(self, flush: Flush) -> Coalescer:
        """A coalescer for threads."""
        return ThreadCoalescer(flush)

    def limiter(self, places: int) -> Limiter:
        """A limiter for threads."""
        return _ThreadLimiter(places)


class ThreadCoalescer:
    """Leader and followers: one thread flushes, the others' units gather meanwhile."""

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: list[Unit] = []
        self._leader: Unit | None = None
        self._draining = False

    async def submit(self, unit: Unit) -> None:
        """Flush on this thread when nobody does, else wait to be answered or to lead."""
        try:
            with self._lock:
                self._waiting.append(unit)
                if self._leader is None:
                    self._leader = unit
                else:
                    unit.waiter = threading.Lock()
                    unit.waiter.acquire()
            if unit.waiter is not None:
                unit.waiter.acquire()
            if self._leader is unit:
                await self._lead()
        finally:
            if self._leader is unit or unit in self._waiting:
                self._leave(unit)

    async def drain(self) -> None:
        """Wait until nobody leads and nobody waits."""
        with self._lock:
            self._draining = True
            while self._leader is not None:
                self._idle.wait()

    async def _lead(self) -> None:
        with self._lock:
            batch = take_batch(self._waiting)
        try:
            await self._flush(batch)
        except BaseException as exc:
            for unit in batch:
                unit.fail(_aborted(exc, own=unit is self._leader))
            raise
        finally:
            for unit in batch:
                if unit is not self._leader:
                    unit.waiter.release()

    def _leave(self, unit: Unit) -> None:
        """Hand the lead on, also when this thread was interrupted while it waited.

        A unit whose thread is gone must neither stay in the queue nor keep the lead,
        or everybody else would wait for ever.
        """
        with self._lock:
            if unit in self._waiting:
                self._waiting.remove(unit)
            if self._leader is not unit:
                return
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.waiter.release()
            elif self._draining:
                self._idle.notify_all()


def _aborted(exc: BaseException, *, own: bool) -> BaseException:
    if own or not isinstance(exc, KeyboardInterrupt | SystemExit | GeneratorExit):
        return exc
    return StoreClosed(
        "the thread that was writing this batch was interrupted",
        retryable=True,
        outcome_unknown=True,
    )


class _ThreadLimiter:
    """A queue of places: in C, where threading.Semaphore is several µs of Python."""

    def __init__(self, places: int) -> None:
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(places):
            self._places.put(None)

    async def acquire(self, patience: float) -> bool:
        try:
            self._places.get(timeout=patience)
        except queue.Empty:
            return False
        return True

    def release(self) -> None:
        self._places.put(None)

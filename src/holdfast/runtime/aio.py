"""The asyncio colour: everything queued in one turn of the loop is one flush.

A task exists only while there is work. After a flush it lets the loop turn once,
so the callers it answered can queue their next calls: with 100 busy callers
every flush carries 100. The flush itself is a task of its own kind: a cancelled
caller leaves its unit behind, and the others never notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, TypeVar

from holdfast.errors import InvalidState
from holdfast.runtime.agenda import Agenda
from holdfast.runtime.contract import (
    HOLD,
    Coalescer,
    Flush,
    HomeProcess,
    Limiter,
    OneLane,
    Place,
    Signal,
    Unit,
    Work,
    take_batch,
)

T = TypeVar("T")
_MOMENT = 0.001
_WHILE = 0.01
_MANY = 16  # callers; then the next lane is used too


class AsyncioRuntime(HomeProcess):
    """Belongs to the event loop that is running when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._runs = self._loop.is_running
        self._thread = get_ident()

    def check(self) -> None:
        """Raise InvalidState in a forked child or under another loop."""
        if self.forks != self._forks:
            super().check()
        # A thread runs one loop at a time. To ask asyncio which one is a call of the system.
        if get_ident() != self._thread or not self._runs():
            if asyncio.get_running_loop() is not self._loop:
                raise InvalidState(
                    "store opened under one event loop used under another: "
                    "open a store of its own in each loop"
                )
            self._thread = get_ident()  # the loop has moved to another thread

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        await asyncio.sleep(seconds)

    async def offload(self, work: Callable[[], T], on: Executor | None = None) -> T:
        """Run the work on that executor, or on the loop's own."""
        return await self._loop.run_in_executor(on, work)

    def coalescer(self, flush: Flush, *, inline: bool = False) -> OneLane:
        """A coalescer for the tasks of this loop."""
        return LoopCoalescer(self._loop, flush, inline=inline)

    def lanes(self, flush: Flush, most: int) -> Coalescer:
        """Two coalescers for the tasks of this loop."""
        first = LoopCoalescer(self._loop, flush)
        return first if most == 1 else _TwoLanes(first, LoopCoalescer(self._loop, flush))

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call that from the loop."""
        return self._loop.call_later(seconds, call).cancel

    def limiter(self, places: int) -> Limiter:
        """A limiter for the tasks of this loop."""
        return _LoopLimiter(places)

    def signal(self) -> Signal:
        """A signal to a task of this loop."""
        return _LoopSignal(self._loop)

    def once(self, work: Work) -> Work:
        """The work in a task of its own, so that no caller's end is its end."""
        return _LoopOnce(self._loop, work)


class LoopCoalescer:
    """Queues units and flushes them from one task."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, flush: Flush, *, inline: bool = False
    ) -> None:
        self._loop = loop
        # What loop.create_future() does, without a frame of Python for each call.
        self._future: Callable[[], asyncio.Future[None]] = partial(asyncio.Future, loop=loop)
        self._flush = flush
        self._inline = inline
        self.waiting: list[Unit] = []
        self.batch: list[Unit] = []
        """What is being flushed."""
        self.taken = 0
        """How many the last flush took, while the next one may follow."""
        self._task: asyncio.Task[None] | None = None
        self._leading = False
        self._agenda = Agenda(loop)
        self._ready = self._agenda.ready
        self._look_by = 0.0  # until then a lone caller goes on, if there is nothing to be run
        self._turn_by = 0.0  # and until then, if nothing has come from outside

    @property
    def load(self) -> int:
        """How many callers it has, without those who are just going on."""
        batch = self.batch
        if batch and not batch[0].settled:
            return len(self.waiting) + len(batch)
        return len(self.waiting)

    async def submit(self, unit: Unit) -> Sequence[Any]:  # noqa: C901 - a frame for each part costs
        """Queue the unit and wait for its outcome.

        Where a flush does not let go of the loop, the first one leads: it flushes, in its own
        task, what the loop's tasks queue in this turn. That saves a task and a future, which are
        a tenth of what a lone caller waits for. After a turn in which nobody else came, the next
        callers do not wait for another one as long as nothing else is to be run.
        """
        if not self._inline or self._leading or self._task is not None:
            unit.waiter = waiter = self._future()
            self.waiting.append(unit)
            if not self._leading and (self._task is None or self._task.done()):
                self._start()
            await waiter
            if unit.error is None and unit.settled:  # what result() does, without another frame
                return unit.answers
            return unit.result()
        self._leading = True
        batch = [unit]
        try:
            if self._ready or monotonic() >= self._look_by:
                await self._look_around()
            elif self._ready is None:
                self._look_by = 0.0  # with every second call
            if self.waiting:
                self.waiting.insert(0, unit)
                batch = [
                    one for one in take_batch(self.waiting) if one is unit or not one.waiter.done()
                ]
            rest = self._flush(batch)
            if rest is not None:
                await rest
        finally:
            self._leading = False
            if len(batch) > 1:
                self._leave(batch[1:])
            if self.waiting:
                self._start()
        if unit.error is None and unit.settled:
            return unit.answers
        return unit.result()

    async def _look_around(self) -> None:
        """Let the loop turn if it has anything else to run, or nobody knows yet that it has not."""
        if self._ready or monotonic() >= self._turn_by or self._agenda.has_news():
            await _turn()
            self._turn_by = 0.0 if self.waiting else monotonic() + _WHILE
        self._look_by = 0.0 if self.waiting else monotonic() + _MOMENT

    async def hold(self, patience: float) -> _LoopHold | None:
        """Stop the flushing task when it comes to this, until released."""
        unit = Unit(HOLD, ())
        unit.waiter = self._loop.create_future()
        hold = _LoopHold(self._loop)
        unit.answers = [hold]
        self.waiting.append(unit)
        if not self._leading:
            self._start()
        try:
            async with asyncio.timeout(patience):
                await unit.waiter
        except BaseException as exc:
            unit.waiter.cancel()
            hold.release()
            if isinstance(exc, TimeoutError):
                return None
            raise
        return hold

    def _start(self) -> None:
        """Have a flushing task. One that somebody cancelled before its first step is done too."""
        if self._task is None or self._task.done():
            task = self._loop.create_task(self._run(), name="holdfast flush")
            self._task = None if task.done() else task  # an eager one may be done already

    async def drain(self) -> None:
        """Wait until nothing is left to do."""
        while self.waiting or self._leading or self._task is not None:
            if self._leading:
                await asyncio.sleep(_MOMENT)
                continue
            self._start()
            if self._task is not None:
                await asyncio.wait([self._task])

    def _leave(self, others: list[Unit]) -> None:
        resume([one for one in others if one.settled])
        # Whoever led was cancelled while another process held the file.
        self.waiting[:0] = [one for one in others if not one.settled]

    async def _run(self) -> None:
        batch: list[Unit] = []
        try:
            while self.waiting:
                if self.waiting[0].batch is HOLD:
                    holder = self.waiting.pop(0)
                    resume([holder])
                    await holder.answers[0].over
                    continue
                # A caller that gave up before its flush began is simply not written.
                batch = [unit for unit in take_batch(self.waiting) if not unit.waiter.done()]
                if batch:
                    self.batch = batch
                    self.taken = len(batch)
                    rest = self._flush(batch)
                    if rest is not None:
                        await rest
                    self.batch = []
                    # Whoever read the answer may have let them go on: their next calls wait then.
                    gone_on = batch[0].waiter.done()
                    resume(batch)
                    if not gone_on:
                        await _turn()
        except BaseException as exc:
            # Only the loop's own end (cancellation) or a defect comes here.
            for unit in batch + self.waiting:
                unit.fail(exc)
            resume(batch + self.waiting)
            self.waiting.clear()
            raise
        finally:
            self.batch = []
            self.taken = 0
            self._task = None


@types.coroutine
def _turn() -> Generator[None]:
    """Let the loop turn once: `asyncio.sleep(0)` in half the steps."""
    yield


class _TwoLanes:
    """Coalescers side by side. Few callers share one: a flush costs more than a caller in it.

    Of many each has its share, by what the last flushes took: a lane whose callers are just
    being told is not empty, they come back.
    """

    def __init__(self, first: LoopCoalescer, second: LoopCoalescer) -> None:
        self._first = first
        self._second = second

    def submit(self, unit: Unit) -> Coroutine[Any, Any, Sequence[Any]]:
        """Queue the unit where the fewest are, and wait for its outcome."""
        first, second = self._first, self._second
        load = first.load
        if load < _MANY or load < (first.taken + second.taken) // 2:
            return first.submit(unit)
        other = second.load
        if other < _MANY or other < load or other < (first.taken + second.taken) // 2:
            return second.submit(unit)
        return first.submit(unit)

    async def drain(self) -> None:
        """Wait until nothing is left to do in either of them."""
        await self._first.drain()
        await self._second.drain()


class _LoopHold:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.over: asyncio.Future[None] = loop.create_future()

    def release(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


def resume(batch: list[Unit]) -> None:
    """Let the callers go on whose units these are, unless they do already."""
    for unit in batch:
        waiter = unit.waiter
        if not waiter.done():
            waiter.set_result(None)


class _LoopLimiter:
    """A semaphore whose places can be had without a coroutine."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    def at_once(self) -> Place | None:
        if not self._free:
            return None
        self._free -= 1
        return _LoopPlace(self)

    async def acquire(self, patience: float) -> Place | None:
        place = self.at_once()
        if place is not None:  # as nearly always: no timer for that
            return place
        handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(handed)
        try:
            async with asyncio.timeout(patience):
                await handed
        except BaseException as exc:
            if handed.done() and not handed.cancelled():
                self.free()  # it came too late
            if isinstance(exc, TimeoutError):
                return None
            raise
        return _LoopPlace(self)

    def free(self) -> None:
        """Hand one place on to who has waited longest."""
        while self._waiting:
            handed = self._waiting.popleft()
            if not handed.done():
                handed.set_result(None)
                return
        self._free += 1


class _LoopPlace:
    def __init__(self, limiter: _LoopLimiter) -> None:
        self._limiter: _LoopLimiter | None = limiter

    def release(self) -> None:
        if self._limiter is not None:
            self._limiter.free()
            self._limiter = None


class _LoopSignal:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._event = asyncio.Event()

    def set(self) -> None:
        if get_ident() == self._thread:
            self._event.set()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class _LoopOnce:
    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._work(), name="holdfast once")
        await asyncio.shield(self._task)

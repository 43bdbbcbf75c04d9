"""The blocking colour: coroutines stepped to their end on the caller's thread.

A caller that finds the writer idle runs its batch on its own thread; one that
finds it busy joins the waiting batch and sleeps. Who finishes a flush hands the
lead to the first of those waiting, so nobody works for others after its own
answer is there. Measured: a writer thread instead costs a single caller 7 to 23 %.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from holdfast.errors import InvalidState, StoreError, Unavailable
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
    batch_length,
)
from holdfast.runtime.watchdog import Watchdog

T = TypeVar("T")
_watchdog = Watchdog()
_MOST_INTERRUPTS = 100  # of one thread while it leaves; more are a fault of their own


def run(work: Awaitable[T]) -> T:
    """What the coroutine returns; it must not suspend, and with a blocking leaf it never does.

    What a write returns is done already (see ThreadCoalescer), and needs no steps.
    """
    if isinstance(work, Unit):
        return work.result()
    coroutine: Coroutine[Any, Any, T] = work  # type: ignore[assignment]
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

    def coalescer(self, flush: Flush, *, inline: bool = False) -> OneLane:
        """A coalescer for threads."""
        del inline  # it always is
        return ThreadCoalescer(flush)

    def lanes(self, flush: Flush, most: int) -> Coalescer:
        """One lane: threads prepare their calls while it is under way, each for itself."""
        del most
        return ThreadCoalescer(flush)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call that on the watchdog's thread."""
        return _watchdog.add(seconds, call)

    def limiter(self, places: int) -> Limiter:
        """A limiter for threads."""
        return _ThreadLimiter(places)

    def signal(self) -> Signal:
        """A signal to a thread."""
        return _ThreadSignal()

    def once(self, work: Work) -> Work:
        """The work on the first thread that comes; the others wait for it."""
        return _ThreadOnce(work)


class ThreadCoalescer:
    """Leader and followers: one thread flushes, the others' units gather meanwhile.

    An interrupt (Ctrl-C) can hit a thread between any two lines. Whatever it cut short, the
    thread still leaves in order: `_leave` may run several times, and does everything once.
    """

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: list[Unit] = []
        self._batch: list[Unit] = []  # what the leader took, until it has left
        self._leader: Unit | None = None
        self._draining = False

    def submit(self, unit: Unit) -> Unit:
        """Flush on this thread when nobody does, else wait to be answered or to lead.

        Returns the unit itself, with its outcome: a coroutine would cost more than the rest.
        """
        _room_to_leave()
        try:
            with self._lock:
                if self._leader is None:  # then nobody waits either
                    self._batch = [unit]
                    self._leader = unit
                else:
                    unit.waiter = threading.Lock()
                    unit.waiter.acquire()
                    self._waiting.append(unit)
            if self._leader is not unit:
                self._wait(unit)
            if not unit.settled:
                if not self._batch:
                    self._gather()
                try:
                    rest = self._flush(self._batch)
                    if rest is not None:
                        run(rest)
                except (RecursionError, MemoryError):
                    raise  # this thread's trouble: the others hear that it was interrupted
                except Exception as defect:
                    for other in self._batch:
                        other.fail(defect)
                    raise
        finally:
            try:
                self._leave(unit)
            except BaseException:
                self._leave_at_last(unit)
                raise
        return unit

    async def hold(self, patience: float) -> _ThreadHold | None:
        """Lead without a flush, until released."""
        _room_to_leave()
        unit = Unit(HOLD, ())
        deadline = time.monotonic() + patience
        try:
            with self._lock:
                if self._leader is None:
                    self._batch = []
                    self._leader = unit
                else:
                    unit.waiter = threading.Lock()
                    unit.waiter.acquire()
                    self._waiting.append(unit)
            while self._leader is not unit:
                in_time = unit.waiter.acquire(timeout=max(0.0, deadline - time.monotonic()))
                with self._lock:
                    if not in_time and self._leader is not unit:
                        self._waiting.remove(unit)
                        return None
            with self._lock:
                if unit in self._waiting:
                    self._waiting.remove(unit)
            return _ThreadHold(self, unit)
        except BaseException:
            self.end(unit)
            raise

    def end(self, unit: Unit) -> None:
        """Let the unit's thread leave, whatever interrupts it."""
        unit.settled = True
        try:
            self._leave(unit)
        except BaseException:
            self._leave_at_last(unit)
            raise

    async def drain(self) -> None:
        """Wait until nobody leads and nobody waits."""
        with self._lock:
            self._draining = True
            while self._leader is not None:
                self._idle.wait()

    def _wait(self, unit: Unit) -> None:
        """Return when the unit leads or has its outcome."""
        while self._leader is not unit and not unit.settled:
            unit.waiter.acquire()
            if not unit.settled:
                with self._lock:  # who hands us the lead has finished leaving
                    pass

    def _gather(self) -> None:
        with self._lock:
            self._batch = self._waiting[: batch_length(self._waiting)]
            del self._waiting[: len(self._batch)]

    def _leave(self, unit: Unit) -> None:
        """Hand the lead on, also when this thread was interrupted while it led or waited.

        A unit whose thread is gone must neither stay in the queue nor keep the lead,
        or everybody else would wait for ever. The lead passes last: until then a repeat
        finds everything as it was.
        """
        answered = True
        if self._leader is unit:
            # Not under the lock, where they would queue up at once for their next call.
            answered = unit.settled if len(self._batch) == 1 else _wake_answered(self._batch)
        elif unit.settled:
            return
        with self._lock:
            if unit in self._waiting:
                self._waiting.remove(unit)
            if self._leader is not unit:
                return
            if not answered:
                self._break_off()
            following = self._waiting[0] if self._waiting else None
            if following is not None:
                _wake(following)
            elif self._draining:
                self._idle.notify_all()
            self._batch = []
            self._leader = following

    def _leave_at_last(self, unit: Unit) -> None:
        """Leave after all, also when the interrupts do not stop."""
        for _ in range(_MOST_INTERRUPTS):
            with contextlib.suppress(BaseException):  # the first one is raised
                self._leave(unit)
                return
        self._leave(unit)

    def _break_off(self) -> None:
        """Tell those of the batch who have no answer that the leader was interrupted."""
        for other in self._batch:
            other.fail(_interrupted())
        # An interrupt between the two lines of `_gather` leaves units in both lists.
        self._waiting = [other for other in self._waiting if not other.settled]
        _wake_answered(self._batch)


def _nested(frames: int) -> Callable[[], None]:
    """A function that needs so many frames and does nothing with them."""
    if frames == 1:
        return lambda: None
    inner = _nested(frames - 1)
    return lambda: inner()  # noqa: PLW0108 - the frame is what it is for


# Raises RecursionError now, while nobody counts on this thread, rather than in `_leave`.
_room_to_leave = _nested(8)


class _ThreadHold:
    def __init__(self, coalescer: ThreadCoalescer, unit: Unit) -> None:
        self._coalescer = coalescer
        self._unit = unit

    def release(self) -> None:
        self._coalescer.end(self._unit)


def _wake_answered(batch: list[Unit]) -> bool:
    """True when that is all of them."""
    answered = True
    for unit in batch:
        if not unit.settled:
            answered = False
        elif unit.waiter is not None:  # who led from the start waits for nothing
            _wake(unit)
    return answered


def _wake(unit: Unit) -> None:
    if unit.waiter.locked():
        unit.waiter.release()


def _interrupted() -> StoreError:
    return Unavailable(
        "the thread that was writing this batch was interrupted", outcome_unknown=True
    )


class _ThreadLimiter:
    """A queue of tokens: in C, where threading.Semaphore is several µs of Python."""

    def __init__(self, places: int) -> None:
        self.free: queue.SimpleQueue[_Token] = queue.SimpleQueue()
        for _ in range(places):
            self.free.put(_Token(self))

    async def acquire(self, patience: float) -> Place | None:
        try:
            return _ThreadPlace(self.free, [self.free.get(timeout=patience)])
        except queue.Empty:
            return None


class _Token:
    """Who holds the object holds the place, and when it dies the place is free.

    An interrupt (Ctrl-C) can hit a thread between any two steps, also before it could note
    that it has the token. Nobody is left then to give it back, and nobody has to.
    """

    __slots__ = ("_limiter",)

    def __init__(self, limiter: _ThreadLimiter) -> None:
        # Weak, or limiter and tokens were a ring whose finalizers keep it alive for ever.
        self._limiter = weakref.ref(limiter)

    def __del__(self) -> None:
        limiter = self._limiter()
        if limiter is not None:
            limiter.free.put(_Token(limiter))


class _ThreadPlace:
    """Holds the token in a list: `pop` takes it out once, and leaves no name that keeps it."""

    __slots__ = ("_free", "_token")

    def __init__(self, free: queue.SimpleQueue[_Token], token: list[_Token]) -> None:
        self._free = free
        self._token = token

    def release(self) -> None:
        if self._token:
            self._free.put(self._token.pop())


class _ThreadSignal:
    """A queue, not an Event: a Ctrl-C inside an Event's `set` leaves it locked."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._queue.get(timeout=seconds)


class _ThreadOnce:
    """What an interrupt (Ctrl-C) cut short is begun again by the next caller."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._lock = threading.RLock()  # a signal handler may call it in the middle of the work
        self._done = False

    async def __call__(self) -> None:
        with self._lock:
            if not self._done:
                await self._work()
                self._done = True

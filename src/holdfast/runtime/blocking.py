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
_LOOK_AGAIN = 0.1  # seconds; only after a Ctrl-C is there anything to see
_MOMENT = 0.001
_MOST_INTERRUPTS = 100  # of one thread while it leaves; more are a fault of their own


def run(work: Awaitable[T]) -> T:
    """What the coroutine returns; it must not suspend, and with a blocking leaf it never does.

    What a write returns is done already (see ThreadCoalescer), and needs no steps.
    """
    if isinstance(work, Unit):
        if work.settled and work.error is None:  # what result() does, without another frame
            return work.answers
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

    The lead is the one entry of a dict: `setdefault` takes it and `del` frees it, each in one
    step that no other thread can see half done. So a caller that finds nobody takes no lock.

    An interrupt (Ctrl-C) can hit a thread between any two calls. Whatever it cut short, the
    thread still leaves in order: `_leave` may run several times, and does everything once.
    """

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self._lead: dict[None, Unit] = {}  # whose thread flushes or holds
        self._lock = threading.Lock()  # of the queue, and of who hands the lead on
        self._waiting: list[Unit] = []
        self._batch: list[Unit] = []  # what the leader took out of the queue, until it has left

    def submit(self, unit: Unit) -> Unit:  # noqa: C901 - what leaves must stand here, see below
        """Flush on this thread when nobody does, else wait to be answered or to lead.

        Returns the unit itself, with its outcome: a coroutine would cost more than the rest.
        """
        lead = self._lead
        batch = [unit]
        try:
            if lead.setdefault(None, unit) is not unit:
                batch = self._queue(unit)
            if batch:
                rest = self._flush(batch)
                if rest is not None:
                    run(rest)
        except (RecursionError, MemoryError):
            raise  # this thread's trouble: the others hear that it was interrupted
        except Exception as defect:
            for other in batch:
                other.fail(defect)
            raise
        finally:
            if unit.waiter is None and None in lead and lead[None] is unit:
                # It never waited. No call: nothing to interrupt, and no frame that may be missing.
                del lead[None]
                if self._waiting:  # who is not told looks again by itself
                    self._hand_on()
            else:
                try:  # here, and twice: an interrupt also strikes where a function begins
                    self._leave(unit)
                except BaseException:
                    try:
                        self._leave(unit)
                    except BaseException:  # noqa: BLE001 - the first one is raised
                        self._leave_at_last(unit)
                    raise
        return unit

    async def hold(self, patience: float) -> _ThreadHold | None:
        """Lead without a flush, until released."""
        _room_to_leave()
        unit = Unit(HOLD, ())
        try:
            if self._lead.setdefault(None, unit) is unit or self._wait(unit, patience):
                return _ThreadHold(self, unit)
        except BaseException:
            self.end(unit)
            raise
        return None

    def end(self, unit: Unit) -> None:
        """Let the unit's thread leave, whatever interrupts it."""
        try:
            self._leave(unit)
        except BaseException:
            self._leave_at_last(unit)
            raise

    async def drain(self) -> None:
        """Wait until nobody leads and nobody waits."""
        while self._lead or self._waiting:
            time.sleep(_MOMENT)  # noqa: ASYNC251 - this colour blocks, and holds nothing meanwhile

    def _queue(self, unit: Unit) -> list[Unit]:
        """What the unit's thread is to flush when the lead has come to it; [] if it is answered."""
        _room_to_leave()
        self._wait(unit)
        if unit.settled:
            return []
        with self._lock:
            self._batch = self._waiting[: batch_length(self._waiting)]
            del self._waiting[: len(self._batch)]
        return self._batch

    def _wait(self, unit: Unit, patience: float | None = None) -> bool:
        """True when the unit leads or has its outcome; False, and out of the queue, if too late.

        A unit that holds leaves the queue with the lead, others with their batch.
        """
        deadline = None if patience is None else time.monotonic() + patience
        unit.waiter = threading.Lock()
        unit.waiter.acquire()
        with self._lock:
            self._waiting.append(unit)
            unseen = not self._lead
        if unseen:  # who led has left before he could see us
            self._hand_on()
        while self._lead.get(None) is not unit and not unit.settled:
            left = _LOOK_AGAIN if deadline is None else deadline - time.monotonic()
            if unit.waiter.acquire(timeout=max(min(left, _LOOK_AGAIN), 0.0)):
                continue
            self._hand_on()
            late = deadline is not None and left <= _LOOK_AGAIN
            with self._lock:
                if late and self._lead.get(None) is not unit:
                    self._waiting.remove(unit)
                    return False
        if unit.batch is HOLD:
            with self._lock:
                self._waiting.remove(unit)
        return True

    def _hand_on(self) -> None:
        """Give the lead, if nobody has it, to who has waited longest."""
        with self._lock:
            if self._waiting and self._lead.setdefault(None, self._waiting[0]) is self._waiting[0]:
                _wake(self._waiting[0])

    def _leave_at_last(self, unit: Unit) -> None:
        """Leave after all, also when the interrupts do not stop: the first one is raised."""
        for _ in range(_MOST_INTERRUPTS):
            with contextlib.suppress(BaseException):
                self._leave(unit)
                return
        self._leave(unit)

    def _leave(self, unit: Unit) -> None:
        """Hand the lead on, also when this thread was interrupted while it led or waited.

        A unit whose thread is gone must neither stay in the queue nor keep the lead,
        or everybody else would wait for ever. The lead passes last: until then a repeat
        finds everything as it was, and who leads then but is not woken looks again by itself.
        """
        answered = True
        if self._lead.get(None) is unit:
            # Not under the lock, where they would queue up at once for their next call.
            answered = _wake_answered(self._batch)
        elif unit.settled:
            return
        with self._lock:
            if unit in self._waiting:
                self._waiting.remove(unit)
            if self._lead.get(None) is not unit:
                return
            if not answered:
                self._break_off()
            self._batch = []
            if self._waiting:
                self._lead[None] = following = self._waiting[0]
                _wake(following)
            else:
                del self._lead[None]

    def _break_off(self) -> None:
        """Tell those of the batch who have no answer that the leader was interrupted."""
        # First, so that a repeat finds it done: an interrupt between the two lines of `_queue`
        # leaves units in both lists.
        self._waiting = [other for other in self._waiting if other not in self._batch]
        for other in self._batch:
            other.fail(_interrupted())
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
        if unit.settled:
            _wake(unit)
        else:
            answered = False
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

    def at_once(self) -> Place | None:
        try:
            return _ThreadPlace(self.free, [self.free.get_nowait()])
        except queue.Empty:
            return None

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

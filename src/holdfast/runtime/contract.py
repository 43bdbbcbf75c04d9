"""What a runtime offers to a backend, and the unit of work that a coalescer gathers."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from holdfast.errors import InvalidState, StoreError

T = TypeVar("T")

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""What the payloads of one flush add up to at most, unless a single unit is larger."""

MAX_BATCH_ITEMS = 1000
"""What one flush takes at most: 1,000 cell writes hold SQLite's writer for about 20 ms."""


HOLD = object()
"""In place of a batch: this unit wants no flush, but to hold the lead."""


Topic = tuple[str, str]
"""What a change is about: a log of the store and a namespace, such as ("cells", "default")."""


class Unit(msgspec.Struct, eq=False):
    """What one caller asked for: items of one batch operation, answered or failed as one."""

    batch: Any  # see Db.write
    items: Sequence[Any]
    size: int = 0  # of the payloads, in bytes or thereabouts
    topic: Topic | None = None  # who listens to it hears of the commit
    answers: Sequence[Any] = ()  # nobody's until the transaction is durable
    error: BaseException | None = None
    settled: bool = False  # True when there is an outcome
    waiter: Any = None  # the coalescer's own: a future or a lock

    def result(self) -> Sequence[Any]:
        """The answers in the order of the items, or the error raised."""
        if self.error is not None:
            raise self.error
        if not self.settled:
            raise InvalidState("the batch ended without an answer for this call")
        return self.answers

    def __await__(self) -> Generator[Any, None, Sequence[Any]]:
        """The result of a unit that has its outcome, for who awaits it: nothing is waited for."""
        return self.result()
        yield  # which makes it a generator

    def fail(self, error: BaseException) -> None:
        """Remember the error, unless there is an outcome already.

        Callers that share a batch each get their own copy: a traceback belongs to one raise.
        """
        if not self.settled:
            self.error = error
            self.settled = True


Flush = Callable[[list[Unit]], Awaitable[None] | None]
"""Runs the units and gives each an outcome; raises only for what no unit caused.

What is left to wait for is returned; None when nothing is.
"""


class Hold(Protocol):
    """The lead of a coalescer, lent to somebody: nothing is flushed until it is given back."""

    def release(self) -> None:
        """Give it back; a second time does nothing. From any thread."""


class Coalescer(Protocol):
    """Gathers the calls that arrive during a flush into the next one; no timers."""

    def submit(self, unit: Unit) -> Awaitable[Sequence[Any]]:
        """The unit's result, once it has its outcome."""

    async def drain(self) -> None:
        """Return once nothing is waiting or in flight."""


class OneLane(Coalescer, Protocol):
    """Has one flush under way at a time."""

    async def hold(self, patience: float) -> Hold | None:
        """The lead, in turn with the units that wait for a flush; None if not in time."""


class Place(Protocol):
    """One caller's right to be in."""

    def release(self) -> None:
        """Give the place back; the second time nothing happens."""


class Limiter(Protocol):
    """Lets so many callers in at a time."""

    async def acquire(self, patience: float) -> Place | None:
        """A place, or None when none was free in time."""


class Signal(Protocol):
    """Says that there may be something new. Set while nobody waits, it is not lost."""

    def set(self) -> None:
        """Wake who waits, or the next one who does. From any thread."""

    async def wait(self, seconds: float) -> None:
        """Return once it is set, or after so long."""


Work = Callable[[], Coroutine[Any, Any, None]]
"""Something to await, made when it is called."""


class Runtime(Protocol):
    """The primitives that differ between blocking code and asyncio."""

    @property
    def at_home(self) -> bool:
        """True in the process that opened the store, False in a forked child."""

    def check(self) -> None:
        """Raise InvalidState when called from a forked child or another event loop."""

    async def sleep(self, seconds: float) -> None:
        """Wait; in asyncio the loop goes on."""

    async def offload(self, work: Callable[[], T], on: Executor | None = None) -> T:
        """The result of long blocking work; in asyncio it runs on another thread."""

    def coalescer(self, flush: Flush, *, inline: bool = False) -> OneLane:
        """A coalescer of this colour; `inline` when a flush does not let go of the loop."""

    def lanes(self, flush: Flush, most: int) -> Coalescer:
        """A coalescer that may have several flushes under way, `most` of them, for many callers.

        For a server: it works on one while this process prepares the other.
        """

    def limiter(self, places: int) -> Limiter:
        """A limiter of this colour."""

    def signal(self) -> Signal:
        """A signal to one waiter of this colour."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call that after so long, on whatever thread; returns what calls it off."""

    def once(self, work: Work) -> Work:
        """The work, to be called by many: it runs once, and all return when it is done.

        In asyncio a cancelled caller returns at once, and the work goes on.
        """


class HomeProcess:
    """Remembers where a store was opened: connections do not survive fork()."""

    forks: ClassVar[int] = 0  # that led to this process: asking the system on each call would cost

    def __init__(self) -> None:
        self._forks = self.forks
        self._pid = os.getpid()

    @property
    def at_home(self) -> bool:
        """True in the process that opened the store, False in a forked child."""
        return self.forks == self._forks

    def check(self) -> None:
        """Raise InvalidState in a forked child."""
        if self.forks != self._forks:
            raise InvalidState(
                f"store opened in process {self._pid} used after fork() in process {os.getpid()}: "
                "open a store of its own in each process",
                opened_in=self._pid,
            )


def _forked() -> None:
    HomeProcess.forks += 1


if sys.platform != "win32":  # which has no fork
    os.register_at_fork(after_in_child=_forked)


def batch_length(waiting: list[Unit]) -> int:
    """How many of the units, oldest first, the next flush takes within its limits."""
    items = size = 0
    for count, unit in enumerate(waiting):
        items += len(unit.items)
        size += unit.size
        if items > MAX_BATCH_ITEMS or size > MAX_BATCH_BYTES or unit.batch is HOLD:
            return count if unit.batch is HOLD else max(count, 1)
    return len(waiting)


def take_batch(waiting: list[Unit]) -> list[Unit]:
    """Remove and return the units of the next flush."""
    count = batch_length(waiting)
    batch = waiting[:count]
    del waiting[:count]
    return batch


def error_for(unit_error: StoreError, count: int) -> list[StoreError]:
    """`count` errors alike, so that each caller raises its own."""
    copies = [unit_error]
    for _ in range(count - 1):
        copy = type(unit_error)(
            str(unit_error),
            retryable=unit_error.retryable,
            outcome_unknown=unit_error.outcome_unknown,
            **unit_error.facts,
        )
        copy.__cause__ = unit_error.__cause__
        copies.append(copy)
    return copies

"""A snapshot as a Db that only reads: it has one connection, and an end.

It ends when it is closed, when a read fails, when nobody holds it any more, and
when its time is up: then from the watchdog's thread or the loop's timer, between
two reads. Each end frees the connection, and only the first one does.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar
from weakref import WeakSet, ref

from holdfast.backends.batching import Answer, Batch, Item
from holdfast.backends.sql.db import Row
from holdfast.errors import InvalidState, StoreError, Timeout
from holdfast.runtime import Runtime, Topic

T = TypeVar("T")
OVER = "it was committed or rolled back"


class Home(Protocol):
    """The store's connections that a snapshot belongs to."""

    @property
    def runtime(self) -> Runtime:
        """The colour."""

    @property
    def check(self) -> Callable[[], None]:
        """Raises when the store is closed or used where it must not be."""

    @property
    def snapshots(self) -> WeakSet[Snapshot]:
        """Those that are in use: a store that is closed closes them too."""


class Snapshot(ABC):
    """See Db. It does one thing at a time: its session sees to that."""

    _why: str | None = "it never began"

    def __init__(self, of: Home, limit: float) -> None:
        self.of = of
        self._limit = limit
        self._due = time.monotonic() + limit
        # Who takes it out may end the snapshot; a read has it meanwhile. Not a lock: a thread that
        # is interrupted (Ctrl-C) would leave it locked, and the timer's thread would wait for ever.
        self._right = [True]
        self._call_off = of.runtime.later(limit, _Expiry(self))
        self._why = None  # or why it is over
        of.snapshots.add(self)

    @abstractmethod
    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""

    async def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Sequence[Answer]:
        """Refuse."""
        del items, size
        raise InvalidState(f"a snapshot is only read, not for {batch} about {topic}")

    def check(self) -> None:
        """Raise when it is over, or the store is closed."""
        self.of.check()
        if self._is_due():  # a loop that never turns never comes to its timer
            self.expire()
        if self._why == _TOO_LONG:
            raise self._too_old()
        if self._why is not None:
            raise InvalidState(f"the session is over: {self._why}")

    async def close(self) -> None:
        """End it in good order; if it is just being read, that read ends it."""
        if self._take():
            self._why = OVER
            self._call_off()
            await self._give_back()
        else:
            self._due = 0.0

    def expire(self) -> None:
        """End it, unless it is just being read: that read ends it."""
        if self._take():
            self._end(_TOO_LONG)

    async def _reading(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of reading with the connection, which nobody takes away meanwhile."""
        self.check()
        if not self._take():
            raise self._too_old() if self._is_due() else InvalidState("the session is over")
        try:
            return await work()
        except BaseException as exc:
            if isinstance(exc, StoreError):
                exc.outcome_unknown = False  # it only read
            self._end(f"it failed ({exc})")
            raise
        finally:
            if self._why is None:
                self._right.append(True)
                if self._is_due():
                    self.expire()

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due

    def _too_old(self) -> Timeout:
        return Timeout(f"the session's snapshot became older than {self._limit:g} s")

    def _take(self) -> bool:
        try:
            return self._right.pop()
        except IndexError:
            return False

    def _end(self, why: str) -> None:
        self._why = why
        self._call_off()
        self._drop()

    @abstractmethod
    async def _give_back(self) -> None:
        """End the read transaction and return the connection to its pool."""

    @abstractmethod
    def _drop(self) -> None:
        """Free the connection at once, on whatever thread."""

    def __del__(self) -> None:
        # Also without the right: nobody is left who could have it.
        if self._why is None and self.of.runtime.at_home:
            self._end("nobody held it any more")


class _Expiry:
    """A timer's call that does not keep a forgotten snapshot alive."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = ref(snapshot)

    def __call__(self) -> None:
        snapshot = self._snapshot()
        if snapshot is not None:
            snapshot.expire()


_TOO_LONG = "its time is up"

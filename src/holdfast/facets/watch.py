"""Watching: what is there, a marker, then every change as it comes.

Without a cursor the replay is the present: each item as it is now, read in
pages. Changes go on meanwhile, and what a page already showed is not told again:

    1. note where the log ends
    2. read the items page by page; keep in mind those that changed above that place
    3. the marker
    4. read the log from there, leaving out what 2 has shown

With a cursor the replay is the log above it, up to where it ends for now. While others go on
writing, the log ends nowhere; then the marker comes where it ended when that was first seen.
"""

from __future__ import annotations

import math
import time
from collections import deque
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.errors import InvalidState, Unavailable
from holdfast.facets.feed import Page, Position

T = TypeVar("T")

_FOREVER = 3600.0  # seconds: a listener returns sooner
# While an older transaction is open nobody tells when it ends: look again, ever less often.
_FIRST_LOOK = 0.005
_LONGEST_LOOK = 0.25
# A page is in memory as a whole, so it grows only while there is more and values are small:
# 300 cells of 1 MB in one page took 600 to 900 MB.
_FIRST_PAGE, _LARGEST_PAGE = 25, 500
_PAGE_SIZE = 4 * 1024 * 1024
_RECONNECT = (0.1, 1.0, 2.0, 4.0, 8.0)  # seconds between tries, then the watch raises


class CaughtUp(Enum):
    """The marker between replay and live changes; there is one, so that `is` tells it apart."""

    CAUGHT_UP = "caught up"

    def __repr__(self) -> str:
        return self.name


CAUGHT_UP: Final = CaughtUp.CAUGHT_UP


class Seen(NamedTuple, Generic[T]):
    """A change: what it is of, its number among those of the same key, and where it stands."""

    key: str
    number: int
    position: Position | None  # None: it is no change, but what is there
    change: T


class Present(NamedTuple, Generic[T]):
    """A page of what is there now."""

    items: list[Seen[T]]
    recent: dict[str, int]  # the numbers of those that changed above the place in the log
    after: str | None  # where the next page begins, None at the end


class Source(Protocol[T]):
    """What can be watched."""

    async def position(self) -> Position:
        """Where the log ends: whatever commits from now on lies above."""

    async def end(self) -> Position:
        """Whatever has been committed so far does not lie above this."""

    async def present(self, after: str | None, since: Position) -> Present[T]:
        """The next page of what is there now."""

    async def changes(self, after: Position) -> Page[Seen[T]]:
        """The next page of the log."""

    def cursor(self, position: Position) -> str:
        """The position as text that a later watch of the same can go on from."""


class Listener(Protocol):
    """Hears of changes."""

    async def wait(self, seconds: float) -> None:
        """Return when there may be something new, or after so long; at times for no reason."""

    def wake(self) -> None:
        """Let who waits look. From any thread."""


def next_page_size(limit: int, items: int, size: int, *, more: bool) -> int:
    """How many the next page takes, after one of `limit` with so many items of that size.

    A limit of 0 stands for no page so far.
    """
    if size > _PAGE_SIZE:
        return max(1, items * _PAGE_SIZE // size)
    return min(2 * limit, _LARGEST_PAGE) if more else limit or _FIRST_PAGE


class Watching(Generic[T]):
    """One watch, from its replay to its end."""

    def __init__(self, source: Source[T], listener: Listener, after: Position | None) -> None:
        self._source = source
        self._listener = listener
        self._ready: deque[Seen[T]] = deque()
        self._page: list[Seen[T]] = []  # where `_shown` may be passed
        self._listing = after is None
        self._list_after: str | None = None
        self._shown: dict[str, int] = {}
        self._read_upto = after
        self._position = after
        self._at_end = False
        self._goal: Position | None = None
        self._look = _FOREVER
        self._busy = False
        self.caught_up = False
        self.closed = False

    @property
    def cursor(self) -> str | None:
        """Where to go on after the last change handed out; None: only from the start."""
        listed = self._ready and self._ready[0].position is None
        if self._position is None or self._listing or listed or self._shown:
            return None
        return self._source.cursor(self._position)

    async def next(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the same in both colours
    ) -> Seen[T] | CaughtUp | None:
        """The next change, or the marker; None if it was closed or none came in time."""
        if self._busy:
            raise InvalidState("somebody else is waiting for this watch's next change")
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._busy = True
        try:
            while not self.closed:
                if self._ready:
                    return self._hand_out()
                if self._at_end and not self.caught_up:
                    self.caught_up = True
                    return CAUGHT_UP
                await self._read_patiently(deadline)
                marked = self.caught_up or not self._at_end
                if self.closed or self._ready or self._listing or not marked:
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                await self._listener.wait(min(left, self._look))
        finally:
            self._busy = False
        return None

    def close(self) -> None:
        """End it, also for who waits. From any thread."""
        self.closed = True
        self._listener.wake()

    def _hand_out(self) -> Seen[T]:
        seen = self._ready.popleft()
        # Behind the last one of a page lies what was looked at and is not for this watch.
        self._position = seen.position if self._ready else self._read_upto
        if not self._ready:
            self._forget_shown()
        return seen

    async def _read_patiently(self, deadline: float) -> None:
        """Read, again when the server is away; not when there is no time left for that."""
        for pause in (*_RECONNECT, math.inf):
            try:
                return await self._read()
            except Unavailable:
                if self.closed:
                    return None
                if time.monotonic() + pause > deadline or pause == math.inf:
                    raise
            await self._listener.wait(pause)
            if self.closed:
                return None
        return None

    async def _read(self) -> None:
        """Make the next page ready, if there is one."""
        if self._read_upto is None:
            self._read_upto = self._position = await self._source.position()
        if self._listing:
            await self._read_present(self._read_upto)
        else:
            await self._read_log(self._read_upto)

    async def _read_present(self, since: Position) -> None:
        page = await self._source.present(self._list_after, since)
        self._shown.update(page.recent)
        ready = deque(page.items)
        # No call from here on: an interrupt (Ctrl-C) comes before all of it or after.
        self._ready = ready
        self._list_after = page.after
        self._listing = page.after is not None
        self._at_end = not self._listing

    async def _read_log(self, after: Position) -> None:
        page = await self._source.changes(after)
        if not self._at_end and self._goal is None and (page.more or page.held_back):
            self._goal = await self._source.end()
        ready = deque(seen for seen in page.changes if not self._was_shown(seen))
        # No call between: an interrupt (Ctrl-C) comes before all of it or after.
        self._ready = ready
        self._read_upto = page.position
        self._page = page.changes if self._shown else []
        if not ready:
            self._position = page.position
            self._forget_shown()
        if page.more:
            self._look = 0.0
        elif page.held_back:
            before = 0.0 if self._look == _FOREVER else self._look
            self._look = min(max(2 * before, _FIRST_LOOK), _LONGEST_LOOK)
        else:
            self._look = _FOREVER
            self._at_end = True
        if self._goal is not None and page.position >= self._goal:
            self._at_end = True

    def _was_shown(self, seen: Seen[T]) -> bool:
        shown = self._shown.get(seen.key)
        return shown is not None and seen.number <= shown

    def _forget_shown(self) -> None:
        """Everything of the page is told: from here on one can go on without telling it again."""
        for seen in self._page:
            if seen.number >= self._shown.get(seen.key, math.inf):
                del self._shown[seen.key]

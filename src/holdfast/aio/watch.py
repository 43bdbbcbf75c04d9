"""A watch: what is there, then every change as it comes.

    async with store.cells.watch("config/") as watch:
        async for change in watch:
            print(change.name, change.cell)

Changes are read from a durable log, so a slow reader holds nobody up and loses nothing.
Keep `watch.cursor` with what you made of the changes: a later watch goes on from there.
"""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from holdfast.clock import MICROSECONDS, Duration, duration_us
from holdfast.errors import Corrupt, InvalidArgument
from holdfast.facets.watch import CAUGHT_UP, CaughtUp, Seen, Watching

Change_co = TypeVar("Change_co", covariant=True)
_log = logging.getLogger("holdfast.watch")


class Tell(Protocol[Change_co]):
    """Makes what a caller hears of."""

    def __call__(self, seen: Seen[Any], replay: bool, cursor: str | None) -> Change_co:  # noqa: FBT001 - the fields of a change, in their order
        """The change that was seen."""


class AsyncWatch(Generic[Change_co]):
    """Changes to iterate over; made by `cells.watch` and `records.watch`. For one reader."""

    def __init__(
        self,
        watching: Watching[Any],
        tell: Tell[Change_co],
        *,
        marker: bool,
        skip_corrupt: bool = False,
    ) -> None:
        self._watching = watching
        self._tell = tell
        self._marker = marker
        self._skip_corrupt = skip_corrupt
        self._skipped = 0

    @property
    def caught_up(self) -> bool:
        """True once everything that was there at the beginning has been told."""
        return self._watching.caught_up

    @property
    def cursor(self) -> str | None:
        """Where to go on after the last change; None as long as that is only from the start."""
        return self._watching.cursor

    @property
    def skipped(self) -> int:
        """How many entries could not be read and were passed over; see `events.feed`."""
        return self._skipped

    async def next(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109 - cancelling works as well
    ) -> Change_co | CaughtUp | None:
        """The next change, or the marker; None when none came within so many seconds.

        Unlike iteration it always tells of the marker, `holdfast.CAUGHT_UP`.
        """
        seconds = None
        if timeout is not None:
            seconds = duration_us(timeout, name="timeout") / MICROSECONDS
            if seconds < 0:
                raise InvalidArgument(f"timeout: must not be below 0, found {timeout!r}")
        due = None if seconds is None else time.monotonic() + seconds
        while True:
            found = await self._watching.next(seconds)
            if not isinstance(found, Seen):
                return found
            told = self._told(found)
            if told is not None:
                return told
            seconds = None if due is None else max(0.0, due - time.monotonic())

    def close(self) -> None:
        """End it, also for who waits for the next change, on whatever thread."""
        self._watching.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change_co:
        while True:
            found = await self._watching.next()
            if isinstance(found, Seen):
                told = self._told(found)
                if told is not None:
                    return told
                continue
            if found is None and self._watching.closed:
                raise StopAsyncIteration
            if found is CAUGHT_UP and self._marker:
                return cast("Change_co", CAUGHT_UP)  # see the overloads of `watch` and `feed`

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _told(self, seen: Seen[Any]) -> Change_co | None:
        """The change; None for one that was passed over."""
        try:
            return self._tell(seen, not self._watching.caught_up, self.cursor)
        except Corrupt as exc:
            if not self._skip_corrupt:
                raise
            self._skipped += 1
            _log.warning("passed over: %s", exc)
            return None

# GENERATED from holdfast/aio/watch.py by tools/generate_sync.py: change that file instead.
"""A watch: what is there, then every change as it comes.

    with store.cells.watch("config/") as watch:
        for change in watch:
            print(change.name, change.cell)

Changes are read from a durable log, so a slow reader holds nobody up and loses nothing.
Keep `watch.cursor` with what you made of the changes: a later watch goes on from there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from holdfast.clock import MICROSECONDS, Duration, duration_us
from holdfast.errors import InvalidArgument
from holdfast.facets.watch import CAUGHT_UP, CaughtUp, Seen, Watching
from holdfast.runtime.blocking import run

Change_co = TypeVar("Change_co", covariant=True)


class Tell(Protocol[Change_co]):
    """Makes what a caller hears of."""

    def __call__(self, seen: Seen[Any], replay: bool, cursor: str | None) -> Change_co:  # noqa: FBT001 - the fields of a change, in their order
        """The change that was seen."""


class Watch(Generic[Change_co]):
    """Changes to iterate over; made by `cells.watch` and `records.watch`. For one reader."""

    def __init__(self, watching: Watching[Any], tell: Tell[Change_co], *, marker: bool) -> None:
        self._watching = watching
        self._tell = tell
        self._marker = marker

    @property
    def caught_up(self) -> bool:
        """True once everything that was there at the beginning has been told."""
        return self._watching.caught_up

    @property
    def cursor(self) -> str | None:
        """Where to go on after the last change; None as long as that is only from the start."""
        return self._watching.cursor

    def next(
        self,
        timeout: Duration | None = None,
    ) -> Change_co | CaughtUp | None:
        """The next change, or the marker; None when none came within so many seconds.

        Unlike iteration it always tells of the marker, `holdfast.CAUGHT_UP`.
        """
        seconds = None
        if timeout is not None:
            seconds = duration_us(timeout, name="timeout") / MICROSECONDS
            if seconds < 0:
                raise InvalidArgument(f"timeout: must not be below 0, found {timeout!r}")
        found = run(self._watching.next(seconds))
        return self._told(found) if isinstance(found, Seen) else found

    def close(self) -> None:
        """End it, also for who waits for the next change, on whatever thread."""
        self._watching.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change_co:
        while True:
            found = run(self._watching.next())
            if isinstance(found, Seen):
                return self._told(found)
            if found is None and self._watching.closed:
                raise StopIteration
            if found is CAUGHT_UP and self._marker:
                return cast("Change_co", CAUGHT_UP)  # see the overloads of `watch` and `feed`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _told(self, seen: Seen[Any]) -> Change_co:
        return self._tell(seen, not self._watching.caught_up, self.cursor)

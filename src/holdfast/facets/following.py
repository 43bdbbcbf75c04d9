"""A follower: one view of one run in memory, its state and its watermark.

What is told is compared with the watermark, the number up to which the state is true:

    watermark 3, told 4            folded, watermark 4
    watermark 3, told 2            known: nothing to do
    watermark 3, told 6            4 and 5 are missing
    watermark 6, gap 4-5, told 5   late: what was taken for missing for good

Engines of this library number without gaps; the contract of events allows stores that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from holdfast.facets.events import Event
from holdfast.facets.views import Gap, Kept, Projection

S = TypeVar("S")


class Loaded(NamedTuple, Generic[S]):
    """A view as it is kept, and of which generation of the run."""

    generation: int
    kept: Kept[S]


class Trouble(StrEnum):
    """Why an event is not simply the next one."""

    KNOWN = "known"
    MISSING = "missing"
    LATE = "late"


class Follower(Generic[S]):
    """One view of one run, in memory."""

    def __init__(self, projection: Projection[S], loaded: Loaded[S]) -> None:
        self.projection = projection
        self.generation, self.kept = loaded
        self.waiting_since: datetime | None = None
        """When the first event was stored that is folded and not saved."""

    def take(self, events: Sequence[Event]) -> Trouble | None:
        """Fold what is next, up to the first event that is not; why that is so.

        One late event is enough for nothing to be folded.
        """
        if any(self.kept.has_gap_at(event.run_seq) for event in events):
            return Trouble.LATE
        trouble, following = None, []
        last = self.kept.last_seq
        for event in events:
            if event.run_seq == last + 1:
                following.append(event)
                last += 1
            elif event.run_seq > last:
                trouble = Trouble.MISSING
                break
            else:
                trouble = Trouble.KNOWN
        self._fold(following, self.kept.gaps)
        if following and self.waiting_since is None:
            self.waiting_since = following[0].persisted_at
        return trouble

    def replay(self, events: Sequence[Event]) -> list[Gap]:
        """Fold events that are all there is up to the last of them; the gaps between them."""
        last, gaps = self.kept.last_seq, []
        for event in events:
            if event.run_seq > last + 1:
                gaps.append((last + 1, event.run_seq - 1))
            last = event.run_seq
        self._fold(events, (*self.kept.gaps, *gaps))
        return gaps

    def _fold(self, events: Sequence[Event], gaps: tuple[Gap, ...]) -> None:
        if not events:
            return
        state = self.projection.advance(self.kept.state, events)
        self.kept = Kept(state, events[-1].run_seq, gaps)

"""The line of calls that append to one run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from holdfast.backends.nats.known_run import KnownRun
from holdfast.errors import StoreError
from holdfast.facets.events import Append, Appended, NewEvent, Refused

Outcome = Sequence[Appended] | Refused

_MOST_AT_ONCE = 1000  # events
_AROUND = 100  # bytes of a message beside its events, and of an event beside its texts
_LEAST = 50  # what a line takes itself, in events


class Unit:
    """A call, and what became of it."""

    __slots__ = ("call", "deadline", "lost", "outcome", "size", "wanted")

    def __init__(self, call: Append, deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.size = sum(map(_size, call.events))
        self.wanted = True
        self.lost: set[int] = set()  # its events that may have been stored, and nobody told
        self.outcome: Outcome | StoreError | None = None


class Line:
    """Calls of one run, in order, and what is known of the run."""

    __slots__ = ("counted", "last", "lock", "read", "run", "subject", "units", "wanted")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.lock = asyncio.Lock()
        self.units: deque[Unit] = deque()
        self.wanted = 0
        self.run = KnownRun()
        self.read = False  # `run` is as of now, or was when we last wrote to it
        self.last: Exception | None = None  # what became of the last try
        self.counted = 0

    def count(self) -> int:
        """How much more is kept in mind than when this was asked before, in events."""
        before, self.counted = self.counted, self.run.last + _LEAST
        return self.counted - before

    def take(self, room: int) -> list[Unit]:
        """The first calls, as many as one message holds, or one."""
        taken: list[Unit] = []
        size, events = _AROUND, 0
        while self.units:
            unit = self.units[0]
            if not unit.wanted:  # its caller was cancelled
                self.units.popleft()
                continue
            size += unit.size
            events += len(unit.call.events)
            if taken and (size > room or events > _MOST_AT_ONCE):
                break
            taken.append(self.units.popleft())
        return taken


def parts(new: Sequence[NewEvent], room: int) -> list[tuple[int, Sequence[NewEvent]]]:
    """The events, as many together as one message holds, each with the place of its first."""
    found: list[tuple[int, Sequence[NewEvent]]] = []
    begin, size = 0, _AROUND
    for at, event in enumerate(new):
        more = _size(event)
        if at > begin and size + more > room:
            found.append((begin, new[begin:at]))
            begin, size = at, _AROUND
        size += more
    found.append((begin, new[begin:]))
    return found


def _size(event: NewEvent) -> int:
    """The most bytes that it takes in a message."""
    texts = (event.key, event.event_type, event.data, event.more or "")
    return _AROUND + sum(len(text.encode()) for text in texts)

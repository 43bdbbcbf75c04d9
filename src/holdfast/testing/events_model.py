"""A model of events: what a store must answer, in a few lines of plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

ENDS = {"RunCompleted": "COMPLETED", "RunCancelled": "CANCELLED"}


class ModelEvent(NamedTuple):
    """An event; without an id the store gives it one that nobody else has."""

    key: str
    event_type: str
    data: Any
    event_id: str | None = None


class Answer(NamedTuple):
    """What an append says of an event."""

    run_seq: int
    idempotent: bool
    payload_mismatch: bool


class Refusal(NamedTuple):
    """Why nothing was appended: one or both of `event_id` and `expected_seq`."""

    reasons: frozenset[str]


Entry = tuple[str, int, str]
"""Of the feed: run, number, key."""


class ModelEvents:
    """The runs of one namespace."""

    def __init__(self) -> None:
        self.runs: dict[str, list[ModelEvent]] = {}
        self.log: list[Entry] = []
        """What the feed tells from its start."""

    def append(
        self, run: str, events: Sequence[ModelEvent], expected: int | None
    ) -> list[Answer] | Refusal:
        """Append all of them, or none."""
        kept = list(self.runs.get(run, ()))
        last = len(kept)
        answers = []
        reasons = set()
        for event in events:
            found = [seq for seq, old in enumerate(kept, 1) if old.key == event.key]
            if found:
                first = kept[found[0] - 1]
                same = (first.event_type, first.data) == (event.event_type, event.data)
                answers.append(Answer(found[0], idempotent=True, payload_mismatch=not same))
                continue
            if event.event_id is not None and event.event_id in {old.event_id for old in kept}:
                reasons.add("event_id")
            kept.append(event)
            answers.append(Answer(len(kept), idempotent=False, payload_mismatch=False))
        if len(kept) > last and expected not in (None, last):
            reasons.add("expected_seq")
        if reasons:
            return Refusal(frozenset(reasons))
        if len(kept) > last:
            self.runs[run] = kept
            self.log += [(run, seq, kept[seq - 1].key) for seq in range(last + 1, len(kept) + 1)]
        return answers

    def last_seq(self, run: str) -> int:
        """How many events the run has."""
        return len(self.runs.get(run, ()))

    def status(self, run: str) -> str:
        """What the run is after its events: the first end counts."""
        status = "PENDING"
        for event in self.runs[run]:
            if event.event_type in ENDS:
                return ENDS[event.event_type]
            if event.event_type == "RunStarted":
                status = "RUNNING"
        return status

    def delete(self, run: str) -> None:
        """Remove the run, and what the feed would tell of it."""
        del self.runs[run]
        self.log = [entry for entry in self.log if entry[0] != run]

    def fetch(self, run: str, after: int, limit: int) -> list[tuple[int, str, str, Any]]:
        """Number, key, type and data of the next events."""
        events = list(enumerate(self.runs.get(run, ()), 1))[after : after + limit]
        return [(seq, event.key, event.event_type, event.data) for seq, event in events]

"""What a writer knows of a run: its keys and ids, and where their events are.

Nothing on the server finds a message by the keys in it. So a process reads a run before it
appends to it for the first time, and from then on only what others have appended.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.nats.runs import Piece
from holdfast.facets.events import Append, NewEvent, Refused


class KnownRun:
    """See above. As of the message at `seq`; without a generation it has no event yet."""

    __slots__ = ("_begins", "_seqs", "generation", "ids", "last", "numbers", "seq")

    def __init__(self, generation: int = 0, seq: int = 0) -> None:
        self.generation = generation
        self.seq = seq
        self.last = 0
        self.numbers: dict[bytes, int] = {}
        self.ids: set[bytes] = set()
        self._begins, self._seqs = array("q"), array("q")

    def learn(self, piece: Piece) -> bool:
        """Go on to the run's next message; False if that is not what this one is."""
        if piece.seq <= self.seq:
            return True
        if (piece.generation, piece.begin) != (self.generation or piece.seq, self.last + 1):
            return False
        self.generation, self.seq = piece.generation, piece.seq
        self._begins.append(piece.begin)
        self._seqs.append(piece.seq)
        for self.last, event in enumerate(piece.events, piece.begin):
            self.numbers[digest(event[0])] = self.last
            self.ids.add(event[1])
        return True

    def seq_of(self, number: int) -> int:
        """Where the event with that number is."""
        return self._seqs[bisect_right(self._begins, number) - 1]


class Answered(NamedTuple):
    """The number of an event in its run, and whether its key was known before."""

    number: int
    known: bool


class Decided(NamedTuple):
    """What calls come to: the answers to each, and the events that are new."""

    outcomes: list[list[Answered] | Refused]
    new: list[NewEvent]


def decide(run: KnownRun, calls: Sequence[Append]) -> Decided:
    """What the calls come to, one after the other, by the rule of facets/events.py."""
    outcomes: list[list[Answered] | Refused] = []
    numbers: dict[bytes, int] = {}
    ids: set[bytes] = set()
    new: list[NewEvent] = []
    for call in calls:
        last = run.last + len(new)
        own: dict[bytes, int] = {}
        added: dict[bytes, NewEvent] = {}
        answers: list[Answered] = []
        refused: Refused | None = None
        for event in call.events:
            key = digest(event.key)
            number = run.numbers.get(key) or numbers.get(key) or own.get(key)
            if number is not None:
                answers.append(Answered(number, known=True))
                continue
            if event.event_id in run.ids or event.event_id in ids or event.event_id in added:
                refused = Refused(last, event.event_id)
                break
            added[event.event_id] = event
            own[key] = last + len(added)
            answers.append(Answered(own[key], known=False))
        if refused is None and added and call.expected_seq not in {None, last}:
            refused = Refused(last)
        if refused is None:
            numbers |= own
            ids.update(added)
            new += added.values()
        outcomes.append(answers if refused is None else refused)
    return Decided(outcomes, new)


def digest(key: str) -> bytes:
    """What stands for the key: short, and like no other's."""
    return hashlib.blake2b(key.encode(), digest_size=16).digest()

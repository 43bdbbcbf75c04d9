"""Appending: calls of one run that wait at the same time become one message.

The message is stored if the run's last message is still the one that was known; who loses reads
what came between, and decides anew. Keys tell what became of a message whose answer was lost:
while the run is where it was, it is sent again under the same condition, so that one of the two at
most is stored; and where the run is further, the lost one is part of it or can never be.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up, too_large
from holdfast.backends.nats.known_run import Decided, KnownRun, decide
from holdfast.backends.nats.questions import PAUSE
from holdfast.backends.nats.runs import READ_AT_ONCE, Body, Piece, Runs, piece_of
from holdfast.backends.nats.stream import Message
from holdfast.errors import StoreError
from holdfast.facets.events import Append, Appended, NewEvent, Refused
from holdfast.runtime.contract import error_for

Outcome = Sequence[Appended] | Refused

_MOST_KNOWN = 200_000  # events whose keys are kept in mind: some 50 MB
_MOST_AT_ONCE = 1000  # events
_AROUND = 100  # bytes of a message beside its events, and of an event beside its texts
_RETRY = 0.002

_encode = msgspec.msgpack.Encoder().encode


class Appending:
    """See above."""

    def __init__(self, runs: Runs, clock: NatsClock) -> None:
        self._runs = runs
        self._stream = runs.stream
        self._clock = clock
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._known = 0

    async def append(self, call: Append) -> Outcome:
        """What became of the call."""
        subject = self._runs.subject(call.run)
        line = self._lines.setdefault(subject, _Line(subject))
        self._lines.move_to_end(subject)
        unit = _Unit(call, self._stream.deadline())
        line.units.append(unit)
        line.wanted += 1
        try:
            while unit.outcome is None:
                async with line.lock:
                    if unit.outcome is None:
                        await self._settle(line)
        finally:
            unit.wanted = False
            line.wanted -= 1
            self._forget_some()
        if isinstance(unit.outcome, StoreError):
            raise unit.outcome
        return unit.outcome

    def _forget_some(self) -> None:
        for subject in list(self._lines) if self._known > _MOST_KNOWN else ():
            if not (line := self._lines[subject]).wanted:
                self._known -= line.counted
                del self._lines[subject]
            if self._known <= _MOST_KNOWN:
                return

    async def _settle(self, line: _Line) -> None:
        """Give the first calls in the line their outcomes."""
        units = line.take(self._stream.room)
        deadline = units[0].deadline
        try:
            outcomes = await self._attempts(line, units, deadline)
            for unit, outcome in zip(units, outcomes, strict=True):
                unit.outcome = outcome
        except StoreError as exc:
            now = asyncio.get_running_loop().time()
            # Who came later may have time left, if it was the time that ran out.
            failed = [unit for unit in units if now < deadline or unit.deadline <= now]
            for unit, error in zip(failed, error_for(exc, len(failed)), strict=True):
                error.outcome_unknown |= unit.lost
                unit.outcome = error
        finally:
            # Also if this task was cancelled: the next one in the line takes them on.
            line.units.extendleft(unit for unit in reversed(units) if unit.outcome is None)
            self._known += line.count()

    async def _attempts(
        self, line: _Line, units: Sequence[_Unit], deadline: float
    ) -> list[Outcome]:
        last: Exception | None = None
        fresh = False
        while True:
            if not line.read:
                await self._catch_up(line, deadline)
                fresh = True
            decided = decide(line.run, [unit.call for unit in units])
            if not decided.new and not fresh:
                line.read = False  # others may have deleted the run, or gone on with it
                continue
            outcomes = await self._outcomes(line.run, units, decided, deadline)
            if outcomes is None:
                line.run = KnownRun()
                line.read = False
                await asyncio.sleep(PAUSE)
                continue
            if not decided.new:
                return outcomes
            await self._stream.ready(deadline)
            if self._stream.patience(deadline) <= 0:
                raise gave_up(last, self._stream.where, write=True) from last
            line.read = False  # until it is known what became of it
            doubts = [unit.lost for unit in units]
            for unit in units:
                unit.lost = True
            try:
                await self._publish(line, decided.new, deadline)
            except NoAnswer as exc:
                last = exc
            except Exception as exc:  # it was not stored, only an earlier try may be
                for unit, doubt in zip(units, doubts, strict=True):
                    unit.lost = doubt
                if not isinstance(exc, WrongSequence | NotSent):
                    raise
                last = exc
                if isinstance(exc, NotSent):
                    await asyncio.sleep(_RETRY)
            else:
                line.read = True
                return outcomes

    async def _publish(self, line: _Line, new: Sequence[NewEvent], deadline: float) -> None:
        """Store the events, and learn them."""
        run = line.run
        persisted_at = await self._clock.now_us(deadline)
        bodies = [
            Body(run.generation, run.last + 1 + at, persisted_at, tuple(map(tuple, some)))  # type: ignore[arg-type]
            for at, some in _parts(new, self._stream.room)
        ]
        messages = [
            Message(line.subject, _encode(body), run.seq if at == 0 else None)
            for at, body in enumerate(bodies)
        ]
        for message in messages:
            if len(message.data) > self._stream.room:
                raise too_large(f"{self._stream.where}: an event of {len(message.data)} bytes")
        patience = self._stream.patience(deadline)
        if len(messages) == 1:
            seqs = [await self._stream.publish(messages[0], patience)]
        else:
            seqs = await self._stream.publish_all(messages, patience)
        for seq, body in zip(seqs, bodies, strict=True):
            run.learn(Piece(seq, body.generation or seq, body.begin, persisted_at, body.events))

    async def _catch_up(self, line: _Line, deadline: float) -> None:
        """Read what the run has become."""
        while True:
            (entries, left), entry = await asyncio.gather(
                self._stream.log(line.subject, line.run.seq, READ_AT_ONCE, deadline),
                self._stream.get(line.subject, deadline),
            )
            head = None if entry is None else piece_of(entry)
            if head is None or not head.events:
                line.run = KnownRun(seq=head.seq if head else 0)
                break
            if head.generation != line.run.generation:
                line.run = KnownRun(head.generation, head.generation - 1)
            known = all(line.run.learn(piece_of(one)) for one in entries)
            if line.run.seq >= head.seq:
                break
            if not known:
                line.run = KnownRun()  # it was deleted meanwhile
            if not known or not left:
                await asyncio.sleep(PAUSE)  # or a replica is behind
        line.read = True

    async def _outcomes(
        self, run: KnownRun, units: Sequence[_Unit], decided: Decided, deadline: float
    ) -> list[Outcome] | None:
        """The answers, with what was stored under known keys; None if that is gone."""
        seqs = {
            run.seq_of(answer.number)
            for outcome in decided.outcomes
            if not isinstance(outcome, Refused)
            for answer in outcome
            if answer.known and answer.number <= run.last
        }
        entries = await asyncio.gather(*(self._stream.at(seq, deadline) for seq in seqs))
        pieces = {entry.seq: piece_of(entry) for entry in entries if entry is not None}
        if len(pieces) < len(seqs):
            return None
        outcomes: list[Outcome] = []
        for unit, outcome in zip(units, decided.outcomes, strict=True):
            if isinstance(outcome, Refused):
                outcomes.append(outcome)
                continue
            own: set[int] = set()
            appended: list[Appended] = []
            for (number, known), event in zip(outcome, unit.call.events, strict=True):
                if not known:
                    appended.append(Appended(number))
                    continue
                if number > run.last:
                    first = decided.new[number - run.last - 1]
                    appended.append(Appended(number, (first.event_type, first.data)))
                    continue
                stored = pieces[run.seq_of(number)].event("", number)
                # What an earlier try of this very call has stored is new to the caller.
                ours = unit.lost and stored.event_id == event.event_id and number not in own
                own.add(number)
                appended.append(
                    Appended(number, None if ours else (stored.event_type, stored.data))
                )
            outcomes.append(appended)
        return outcomes


class _Unit:
    """A call, and what became of it."""

    __slots__ = ("call", "deadline", "lost", "outcome", "size", "wanted")

    def __init__(self, call: Append, deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.size = sum(map(_size, call.events))
        self.wanted = True
        self.lost = False  # it may have been stored, and nobody told
        self.outcome: Outcome | StoreError | None = None


class _Line:
    """Calls of one run, in order, and what is known of the run."""

    __slots__ = ("counted", "lock", "read", "run", "subject", "units", "wanted")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.lock = asyncio.Lock()
        self.units: deque[_Unit] = deque()
        self.wanted = 0
        self.run = KnownRun()
        self.read = False
        self.counted = 0

    def count(self) -> int:
        """How many more events are known than when this was asked before."""
        more = self.run.last - self.counted
        self.counted = self.run.last
        return more

    def take(self, room: int) -> list[_Unit]:
        """The first calls, as many as one message holds, or one."""
        taken: list[_Unit] = []
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


def _parts(new: Sequence[NewEvent], room: int) -> list[tuple[int, Sequence[NewEvent]]]:
    """The events, as many together as one message holds, each with the place of its first."""
    parts: list[tuple[int, Sequence[NewEvent]]] = []
    begin, size = 0, _AROUND
    for at, event in enumerate(new):
        more = _size(event)
        if at > begin and size + more > room:
            parts.append((begin, new[begin:at]))
            begin, size = at, _AROUND
        size += more
    parts.append((begin, new[begin:]))
    return parts


def _size(event: NewEvent) -> int:
    """The most bytes that it takes in a message."""
    texts = (event.key, event.event_type, event.data, event.more or "")
    return _AROUND + sum(len(text.encode()) for text in texts)

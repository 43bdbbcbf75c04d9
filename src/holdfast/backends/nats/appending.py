"""Appending: calls of one run that wait at the same time become one message.

The message is stored if the run's last message is still the one that was known; who loses reads
what came between, and decides anew. Keys tell what became of a message whose answer was lost:
while the run is where it was, it is sent again under the same condition, so that one of the two at
most is stored; and where the run is further, the lost one is part of it or can never be.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.backends.nats.append_line import Line, Outcome, Unit, parts
from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up, too_large
from holdfast.backends.nats.known_run import Answered, Decided, KnownRun, decide
from holdfast.backends.nats.questions import PAUSE
from holdfast.backends.nats.runs import READ_AT_ONCE, Body, Piece, Runs, piece_of, read_piece
from holdfast.errors import StoreError
from holdfast.facets.events import Append, Appended, NewEvent, Refused
from holdfast.runtime.contract import error_for

_MOST_KNOWN = 200_000  # events whose keys are kept in mind: some 50 MB
_RETRY = 0.002

_encode = msgspec.msgpack.Encoder().encode


class Appending:
    """See above."""

    def __init__(self, runs: Runs, clock: NatsClock) -> None:
        self._runs = runs
        self._stream = runs.stream
        self._clock = clock
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._known = 0

    async def append(self, call: Append) -> Outcome:
        """What became of the call."""
        subject = self._runs.subject(call.run)
        line = self._lines.get(subject) or self._lines.setdefault(subject, Line(subject))
        self._lines.move_to_end(subject)
        unit = Unit(call, self._stream.deadline())
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
        """Forget the runs that were not appended to for the longest time, never the last one."""
        while self._known > _MOST_KNOWN and len(self._lines) > 1:
            subject, line = next(iter(self._lines.items()))
            if line.wanted:
                return
            self._known -= line.counted
            del self._lines[subject]

    async def _settle(self, line: Line) -> None:
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
                error.outcome_unknown |= bool(unit.lost)
                unit.outcome = error
        finally:
            # Also if this task was cancelled: the next one in the line takes them on.
            line.units.extendleft(unit for unit in reversed(units) if unit.outcome is None)
            self._known += line.count()

    async def _attempts(self, line: Line, units: Sequence[Unit], deadline: float) -> list[Outcome]:
        fresh = False
        line.last = None
        while True:
            if not line.read:
                deadline = await self._catch_up(line, deadline)
                fresh = True
            decided = decide(line.run, [unit.call for unit in units])
            if decided.new or fresh:
                outcomes = await self._outcomes(line.run, units, decided, deadline)
                if outcomes is None:
                    line.run = KnownRun()
                    await asyncio.sleep(PAUSE)
                elif not decided.new or await self._stored(line, units, decided, deadline):
                    return outcomes
            line.read = False  # others may have gone on with the run, or deleted it

    async def _stored(
        self, line: Line, units: Sequence[Unit], decided: Decided, deadline: float
    ) -> bool:
        """True if the new events were stored; else look at the run again."""
        await self._stream.ready(deadline)
        if self._stream.patience(deadline) <= 0:
            raise gave_up(line.last, self._stream.where, write=True) from line.last
        doubts = [unit.lost for unit in units]
        for unit, outcome in zip(units, decided.outcomes, strict=True):
            unit.lost = unit.lost | _new(outcome)  # until the answer is there
        try:
            await self._publish(line, decided.new, deadline)
        except NoAnswer as exc:
            line.last = exc
        except Exception as exc:
            for unit, doubt in zip(units, doubts, strict=True):
                unit.lost = doubt  # this was not stored, but an earlier try may be
            if not isinstance(exc, WrongSequence | NotSent):
                raise
            line.last = exc
            if isinstance(exc, NotSent):
                await asyncio.sleep(_RETRY)
        else:
            return True
        return False

    async def _publish(self, line: Line, new: Sequence[NewEvent], deadline: float) -> None:
        """Store the events, and learn them."""
        run = line.run
        persisted_at = await self._clock.now_us(deadline)
        bodies = [
            Body(run.generation or -part, run.last + 1 + at, persisted_at, tuple(some))
            for part, (at, some) in enumerate(parts(new, self._stream.room))
        ]
        messages = [
            Message(line.subject, _encode(body), run.seq if at == 0 else None)
            for at, body in enumerate(bodies)
        ]
        largest = max(len(message.data) for message in messages)
        if largest > self._stream.room or (len(messages) > 1 and not self._stream.atomic):
            size = sum(len(message.data) for message in messages)
            raise too_large(f"{self._stream.where}: {size} bytes of events, the largest {largest}")
        patience = self._stream.patience(deadline)
        if len(messages) == 1:
            seqs = [await self._stream.publish(messages[0], patience)]
        else:
            seqs = await self._stream.publish_all(messages, patience)
        mark = 0 if run.generation else run.seq
        for seq, body in zip(seqs, bodies, strict=True):
            run.learn(read_piece(seq, body))
        if mark:
            # The run was deleted: who did that may have died before it was all removed.
            with contextlib.suppress(StoreError):
                await self._stream.purge(line.subject, mark + 1, deadline)

    async def _catch_up(self, line: Line, deadline: float) -> float:
        """Read what the run has become; a long one may take longer than a call otherwise."""
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
                await asyncio.sleep(_RETRY)  # or a replica is behind
            else:
                deadline = self._stream.deadline()
        line.read = True
        return deadline

    async def _outcomes(
        self, run: KnownRun, units: Sequence[Unit], decided: Decided, deadline: float
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
        return [
            outcome if isinstance(outcome, Refused) else _told(run, unit, outcome, decided, pieces)
            for unit, outcome in zip(units, decided.outcomes, strict=True)
        ]


def _new(outcome: Sequence[Answered] | Refused) -> set[int]:
    """Which events of a call are new."""
    if isinstance(outcome, Refused):
        return set()
    return {at for at, answer in enumerate(outcome) if not answer.known}


def _told(
    run: KnownRun,
    unit: Unit,
    answers: Sequence[Answered],
    decided: Decided,
    pieces: Mapping[int, Piece],
) -> list[Appended]:
    """The answers to one call."""
    told: list[Appended] = []
    for at, ((number, known), event) in enumerate(zip(answers, unit.call.events, strict=True)):
        if not known:
            told.append(Appended(number))
        elif number > run.last:
            first = decided.new[number - run.last - 1]
            told.append(Appended(number, first.said))
        else:
            stored = pieces[run.seq_of(number)].event("", number)
            # What an earlier try of this very call has stored is new to the caller.
            ours = at in unit.lost and stored.event_id == event.event_id
            told.append(Appended(number, None if ours else stored.said))
    return told

"""Writes: read what is there, decide, publish if nobody came between.

Writers of one subject in this process take turns, and each begins with what the last one left,
also if that was a while ago: one round trip less, as long as nobody else has written. Against
other processes the condition decides, and who loses looks again. Writes to different subjects
are under way together.

When an answer is lost, the write may have been stored or not, or may be still to come. What is
there then tells: it has the operation's id (done), it is what was there before (publish again,
under the same condition, so that one of the two at most is stored), or it was written on top
of what was there before (not done). Anything else cannot be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up
from holdfast.backends.nats.stream import Stream
from holdfast.errors import StoreError

Answer = TypeVar("Answer")
_PAUSE = 0.002
# What is remembered of what was written: 4 MB at most.
_MOST_LEFT, _LARGEST_LEFT = 1000, 4096


class Decided(NamedTuple, Generic[Answer]):
    """What a write comes to: the answer, and what to store, None if nothing."""

    answer: Answer
    data: bytes | None = None
    ttl_secs: int | None = None
    marker: bool = False  # it says that something is gone, no more


class Change(Protocol[Answer]):
    """One write to one subject."""

    @property
    def subject(self) -> str:
        """What it writes to."""

    def known(self, found: Entry | None) -> Decided[Answer] | None:
        """Its first answer, when what is there was left by this very operation."""

    def decide(self, found: Entry | None, now_us: int) -> Decided[Answer]:
        """What it makes of what is there."""

    def surely_undone(self, found: Entry | None, base: int | None) -> bool:
        """True if what is there proves that this was not stored: on top of `base`, or ever."""

    def uncertain(self) -> StoreError:
        """The error when nobody can tell."""


class Writer:
    """Carries changes out."""

    def __init__(self, stream: Stream, clock: NatsClock) -> None:
        self._stream = stream
        self._clock = clock
        self._turns: dict[str, _Turn] = {}
        self._left: dict[str, Entry] = {}  # by writers of subjects that nobody writes now

    async def write(self, change: Change[Answer], deadline: float) -> Answer:
        """The change's answer."""
        (answer,) = await self.write_all([change], deadline)
        return answer

    async def write_all(self, changes: Sequence[Change[Answer]], deadline: float) -> list[Answer]:
        """The answers of changes to different subjects, stored in one step or not at all."""
        if len(changes) == 1:
            subject = changes[0].subject
            async with self._turn(subject) as turn:
                return await self._attempts(changes, {subject: turn}, deadline)
        async with AsyncExitStack() as stack:
            # In order of the subjects, or two of these could wait for each other.
            ordered = sorted(changes, key=lambda change: change.subject)
            turns = {
                change.subject: await stack.enter_async_context(self._turn(change.subject))
                for change in ordered
            }
            return await self._attempts(changes, turns, deadline)

    async def _attempts(
        self, changes: Sequence[Change[Answer]], turns: dict[str, _Turn], deadline: float
    ) -> list[Answer]:
        bases: dict[str, int] = {}  # of a try whose answer was lost
        last: Exception | None = None
        try:
            while True:
                fresh = await self._read(turns, deadline)
                now_us = await self._clock.now_us(deadline)
                decided, bases = self._decide(changes, turns, bases, now_us)
                messages = _messages(changes, decided, turns)
                if not messages and bases:
                    raise changes[0].uncertain()  # the lost try may still come
                if messages:
                    try:
                        await self._publish(messages, turns, last, deadline)
                    except (WrongSequence, NotSent, NoAnswer) as exc:
                        last = exc
                        if isinstance(exc, NoAnswer):
                            bases = bases or {
                                one.subject: turns[one.subject].seq for one in messages
                            }
                        if isinstance(exc, NotSent):
                            await asyncio.sleep(_PAUSE)
                        _forget(turns)
                        continue
                elif not fresh:
                    _forget(turns)  # what another writer here left may be old by now
                    continue
                return [one.answer for one in decided]
        except StoreError as exc:
            exc.outcome_unknown |= bool(bases)
            raise

    def _decide(
        self,
        changes: Sequence[Change[Answer]],
        turns: dict[str, _Turn],
        bases: dict[str, int],
        now_us: int,
    ) -> tuple[list[Decided[Answer]], dict[str, int]]:
        """What each change comes to, and the doubts that are left."""
        known = [change.known(turns[change.subject].found) for change in changes]
        if any(known):
            bases = {}  # they are stored together, so all of them were
        decided = []
        for change, before in zip(changes, known, strict=True):
            turn = turns[change.subject]
            doubted = bases.get(change.subject, turn.seq) != turn.seq
            if doubted or (any(known) and before is None):
                if not change.surely_undone(turn.found, bases.get(change.subject)):
                    raise change.uncertain()
                bases = {}
            decided.append(before or change.decide(turn.found, now_us))
        return decided, bases

    async def _read(self, turns: dict[str, _Turn], deadline: float) -> bool:
        """Look at what is there, unless an earlier turn knows; False if it was only known."""
        unread = [subject for subject, turn in turns.items() if not turn.read]
        if len(unread) == 1:
            turns[unread[0]].leave(await self._stream.get(unread[0], deadline))
        elif unread:
            found = await self._stream.get_many(unread, deadline)
            for subject in unread:
                turns[subject].leave(found.get(subject))
        return len(unread) == len(turns)

    async def _publish(
        self,
        messages: Sequence[Message],
        turns: dict[str, _Turn],
        last: Exception | None,
        deadline: float,
    ) -> None:
        """Store them, and leave them to who comes next."""
        await self._stream.ready(deadline)
        patience = self._stream.patience(deadline)
        if patience <= 0:
            raise gave_up(last, self._stream.where, write=True) from last
        if len(messages) == 1:
            seqs = [await self._stream.publish(messages[0], patience)]
        else:
            seqs = await self._stream.publish_all(messages, patience)
        for message, seq in zip(messages, seqs, strict=True):
            turns[message.subject].leave(Entry(message.subject, seq, message.data))

    def _turn(self, subject: str) -> _Turn:
        """To be awaited with `async with`: then it is this writer's."""
        turn = self._turns.get(subject)
        if turn is None:
            found = self._left.pop(subject, None)
            turn = self._turns[subject] = _Turn(subject, found, self._done)
        return turn

    def _done(self, turn: _Turn) -> None:
        """Nobody writes to the subject now."""
        del self._turns[turn.subject]
        if turn.read and turn.found is not None and len(turn.found.data) <= _LARGEST_LEFT:
            self._left[turn.found.subject] = turn.found
            if len(self._left) > _MOST_LEFT:
                del self._left[next(iter(self._left))]  # the oldest


class _Turn:
    """The writers of one subject, one at a time, and what the last one left."""

    __slots__ = ("_done", "_lock", "_wanted", "found", "read", "subject")

    def __init__(self, subject: str, found: Entry | None, done: Callable[[_Turn], None]) -> None:
        self.subject = subject
        self._lock = asyncio.Lock()
        self._wanted = 0
        self._done = done
        self.read = found is not None
        self.found = found

    async def __aenter__(self) -> Self:
        self._wanted += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.read = False
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._wanted -= 1
        if not self._wanted:
            self._done(self)

    @property
    def seq(self) -> int:
        return self.found.seq if self.found else 0

    def leave(self, found: Entry | None) -> None:
        self.found = found
        self.read = True


def _messages(
    changes: Sequence[Change[Answer]],
    decided: Sequence[Decided[Answer]],
    turns: dict[str, _Turn],
) -> list[Message]:
    return [
        Message(change.subject, one.data, turns[change.subject].seq, *one[2:])
        for change, one in zip(changes, decided, strict=True)
        if one.data is not None
    ]


def _forget(turns: dict[str, _Turn]) -> None:
    for turn in turns.values():
        turn.read = False

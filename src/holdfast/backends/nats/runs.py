"""Runs: each is a subject, and its events are in the messages there.

    holdfast.events.<namespace>.<run>    [0, 1, 12:00, [[key, id, type, …], …]]       at 71
                                         [71, 3, 12:01, [[key, id, type, …]]]         at 80
                                         [71, 0, 12:05, []]                           at 93

A message holds what was appended together, so all of it is there or nothing. It knows the number
of its first event, and where the run's first message is (71), which tells the run from others
that had its id: its generation. A message without events says that the run was deleted.
What lies before it is out of sight from then on, and it goes last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.questions import PAUSE
from holdfast.backends.nats.shapes import Shape
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place
from holdfast.backends.nats.swap import swap
from holdfast.errors import Corrupt
from holdfast.facets.events import RunKey, StoredEvent

KIND = "events"
SHAPE = Shape("events", "Holdfast: events of runs", (f"{KIND}.>",), {})
READ_AT_ONCE = 256  # messages
_NEAR = 200  # events that are sooner read than searched
_MOST_PLACES = 1000
_SHORT_LIST, _LIST = 0x90, 0xDC  # in MessagePack

EventBody = tuple[str, bytes, str, int | None, str, str | None]
"""An event as it is stored: key, id, type, emitted_at if it is not persisted_at, data, more."""


class Body(msgspec.Struct, array_like=True, frozen=True):
    """A message of a run."""

    generation: int  # 0: it begins with this message; -1: with the one before; …
    begin: int
    persisted_at: int
    events: tuple[EventBody, ...]
    mark: bytes = b""  # that of a deletion is like no other


class Piece(NamedTuple):
    """A message of a run that was read."""

    seq: int
    generation: int
    begin: int
    persisted_at: int
    events: tuple[EventBody, ...]

    @property
    def last(self) -> int:
        """The number of its last event; 0 when the run was deleted."""
        return self.begin + len(self.events) - 1 if self.events else 0

    def event(self, run_id: str, number: int) -> StoredEvent:
        """The event with that number."""
        key, event_id, event_type, emitted_at, data, more = self.events[number - self.begin]
        happened_at = self.persisted_at if emitted_at is None else emitted_at
        return StoredEvent(
            run_id,
            number,
            key,
            event_id,
            event_type,
            happened_at,
            self.persisted_at,
            data,
            more,
        )


class Head(NamedTuple):
    """Where a run ends: its last message, without the events, of which there may be a thousand."""

    seq: int
    generation: int
    begin: int
    last: int  # the number of its last event; 0 when the run was deleted


class _Outline(msgspec.Struct, array_like=True, frozen=True):
    """A Body whose events are left as they are, read in a fraction of the time."""

    generation: int
    begin: int
    persisted_at: int
    events: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode
_decode_outline = msgspec.msgpack.Decoder(_Outline).decode


def piece_of(entry: Entry) -> Piece:
    """What the message says; Corrupt when it cannot be read."""
    try:
        return read_piece(entry.seq, _decode(entry.data))
    except msgspec.DecodeError as exc:
        raise _unreadable(entry, exc) from exc


def read_piece(seq: int, body: Body) -> Piece:
    """What that message says at that place."""
    generation = _generation(seq, body.generation)
    return Piece(seq, generation, body.begin, body.persisted_at, body.events)


def head_of(entry: Entry) -> Head:
    """The run's end, if that is its last message."""
    try:
        outline = _decode_outline(entry.data)
        count = _length(memoryview(outline.events))
    except (msgspec.DecodeError, ValueError, IndexError) as exc:
        raise _unreadable(entry, exc) from exc
    last = outline.begin + count - 1 if count else 0
    return Head(entry.seq, _generation(entry.seq, outline.generation), outline.begin, last)


def _unreadable(entry: Entry, exc: Exception) -> Corrupt:
    return Corrupt(
        f"NATS: message {entry.seq} of {entry.subject!r} is no event of a run: {exc}",
        stream_seq=entry.seq,
    )


def _generation(seq: int, said: int) -> int:
    return said if said > 0 else seq + said


def _length(packed: memoryview) -> int:
    """How long a list in MessagePack is: the first byte says it up to 15, else what follows."""
    first = packed[0]
    if first & 0xF0 == _SHORT_LIST:
        return first & 0x0F
    return int.from_bytes(packed[1 : 3 if first == _LIST else 5], "big")


class Runs:
    """Reads runs, and deletes them."""

    def __init__(self, stream: Stream, clock: NatsClock) -> None:
        self.stream = stream
        self._clock = clock
        self._places: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def place(self, namespace: str) -> Place:
        """Where the namespace's runs are."""
        return Place(self.stream.root, KIND, namespace)

    def subject(self, run: RunKey) -> str:
        """Where the run is."""
        namespace, run_id = run
        return self.place(namespace).subject(run_id)

    async def head(self, subject: str, deadline: float) -> Head | None:
        """Where the run ends; None when there is no such run."""
        entry = await self.stream.get(subject, deadline)
        head = None if entry is None else head_of(entry)
        return head if head is not None and head.last else None

    async def there(self, subjects: Sequence[str], deadline: float) -> set[str]:
        """Those with a run: one that is being deleted has a last message too."""
        if self.stream.replicas == 1:
            entries: Iterable[Entry | None] = (
                await self.stream.get_many(subjects, deadline)
            ).values()
        else:
            # Who is behind may be asked for many, and cannot tell that there is nothing.
            entries = [
                entry
                for at in range(0, len(subjects), READ_AT_ONCE)
                for entry in await asyncio.gather(
                    *(self.stream.get(one, deadline) for one in subjects[at : at + READ_AT_ONCE])
                )
            ]
        return {entry.subject for entry in entries if entry is not None and head_of(entry).last}

    async def fetch(
        self, run: RunKey, after: int, limit: int, generation: int | None
    ) -> list[StoredEvent]:
        """See EventsBackend."""
        deadline = self.stream.deadline()
        subject = self.subject(run)
        while True:
            head = await self.head(subject, deadline)
            if head is None or generation not in {None, head.generation} or after >= head.last:
                return []
            found = await self._read(run, head, after, limit, deadline)
            if found is not None:
                return found
            await asyncio.sleep(PAUSE)  # it was deleted meanwhile, or a replica is behind

    async def delete(
        self, run: RunKey, limit: int, generation: int, last_seq: int | None
    ) -> bool | None:
        """Put that run out of sight, then remove its messages, so many at a time.

        None if it is not at `last_seq`.
        """
        subject = self.subject(run)
        while True:
            deadline = self.stream.deadline()
            entry = await self.stream.get(subject, deadline)
            if entry is None or (head := head_of(entry)).generation != generation:
                return True
            if not head.last:
                break
            if last_seq not in {None, head.last}:
                return None
            now_us = await self._clock.now_us(deadline)
            mark = Body(generation, 0, now_us, (), uuid4().bytes)
            seq = await swap(self.stream, [Message(subject, _encode(mark), head.seq)], deadline)
            if seq is not None:
                head = head._replace(seq=seq)
                break
        await self._clear(subject, head.seq, limit)
        await self.stream.remove(head.seq, self.stream.deadline())
        return True

    async def _clear(self, subject: str, end: int, limit: int) -> None:
        """Remove what was there before that message."""
        after, left = 0, 1
        while left and after < end:
            deadline = self.stream.deadline()
            entries, left = await self.stream.log(subject, after, limit, deadline)
            after = min(entries[-1].seq, end) if entries else end
            await self.stream.purge(subject, after, deadline)
        # A replica that is behind may have told of less than there is.
        await self.stream.purge(subject, end, self.stream.deadline())

    async def _read(
        self, run: RunKey, head: Head, after: int, limit: int, deadline: float
    ) -> list[StoredEvent] | None:
        """The events up to the head, None if they are not all there."""
        subject = self.subject(run)
        place = await self._seek(subject, head, after, deadline)
        found: list[StoredEvent] = []
        wanted = after + 1
        while place is not None:
            count = min(limit - len(found), READ_AT_ONCE)
            entries, left = await self.stream.log(subject, place, count, deadline)
            for piece in map(piece_of, entries):
                if piece.generation != head.generation or piece.begin > wanted:
                    return None
                upto = min(piece.last, after + limit)
                found += [piece.event(run[1], number) for number in range(wanted, upto + 1)]
                wanted = max(wanted, upto + 1)
                place = piece.seq if piece.last < wanted else piece.seq - 1
                if len(found) == limit or wanted > head.last:
                    self._remember((subject, head.generation, wanted - 1), place)
                    return found
            if not left:
                return None
        return None

    async def _seek(self, subject: str, head: Head, after: int, deadline: float) -> int | None:
        """A place in the stream not far below that of the next event; None if it is unknown."""
        kept = self._places.get((subject, head.generation, after))
        if kept is not None:
            return kept
        if after >= head.begin - 1:
            return head.seq - 1
        # Numbers rise with places: up to `low_seq` lie those up to `low`, from `high_seq` on
        # those from `high` on.
        low, low_seq = 0, head.generation - 1
        high, high_seq = head.begin, head.seq
        halve = False
        while after - low > _NEAR and high_seq - low_seq > 1:
            share = (1, 2) if halve else (after - low, high - low)
            halve = not halve  # or a run that grew unevenly would take long
            guess = low_seq + (high_seq - low_seq) * share[0] // share[1]
            entry = await self.stream.next(subject, guess, deadline)
            if entry is None:
                return None
            piece = piece_of(entry)
            if piece.generation != head.generation:
                return None
            if piece.begin > after:
                high, high_seq = piece.begin, guess
            else:
                low, low_seq = min(piece.last, after), piece.seq - (piece.last > after)
        return low_seq

    def _remember(self, key: tuple[str, int, int], place: int) -> None:
        """Where a page ended, the next one begins."""
        self._places[key] = place
        self._places.move_to_end(key)
        if len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)

"""The log of messages: a stream of its own, whose sequence numbers are their places.

    holdfast.messages.<namespace>.<subject>      [message id, published_at, trace id, payload]
    holdfast.published.<namespace>.<message id>  published_at, for two minutes

The second comes first, under the condition that there is none, or one that is too old to count;
then the message, which the server stores once for that entry. Whoever publishes the same id
again, after a lost answer or a crash between the two, finds the entry and ends up with the same
message. (An atomic batch of both would do, but takes 20 times as long on a single server.)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up
from holdfast.backends.nats.shapes import Shape
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place, cover
from holdfast.clock import MICROSECONDS
from holdfast.errors import StoreError
from holdfast.facets.transport import DEDUPE_US, Publish, StoredMessage, pattern_regex

KIND = "messages"
_IDS = "published"
_REMEMBER_SECS = DEDUPE_US // MICROSECONDS + 2  # the server's clock decides when it goes
_KNOWN_NS = (_REMEMBER_SECS + 60) * 1_000_000_000
SHAPE = Shape(
    "messages",
    "Holdfast: messages of the transport",
    (f"{KIND}.>", f"{_IDS}.>"),
    # Longer than the entry of the id, or who found that at its end would store a second message.
    {"duplicate_window": _KNOWN_NS},
)
_LOOK_AT = 50  # messages at least, when some of them may not be for the group
_COUNT_AT_ONCE = 500
_PAUSE = 0.002


class Body(msgspec.Struct, array_like=True, frozen=True):
    """A message in the stream."""

    message_id: str
    published_at: int
    trace_id: str | None
    payload: str


_encode = msgspec.msgpack.Encoder().encode
decode_body = msgspec.msgpack.Decoder(Body).decode


class Placed(NamedTuple):
    """A message and its sequence number."""

    seq: int
    message: StoredMessage


class Look(NamedTuple):
    """Messages for a group, and up to where nothing else is."""

    messages: list[Placed]
    upto: int


class Wanted:
    """What a group asks for."""

    def __init__(self, root: str, namespace: str, patterns: Sequence[str]) -> None:
        self.place = Place(root, KIND, namespace)
        self.filter = self.place.matching(cover(patterns))
        self.exact = len(patterns) == 1  # then the filter finds nothing else
        self._regexes = [re.compile(pattern_regex(pattern)) for pattern in patterns]

    def matches(self, subject: str) -> bool:
        """True for the subject, as it is in the stream, of a message that is wanted."""
        if not subject.startswith(self.place.root):
            return False
        name = self.place.name(subject)
        return any(regex.match(name) for regex in self._regexes)

    def placed(self, entries: Iterable[Entry]) -> list[Placed]:
        """Those that are wanted."""
        return [
            Placed(entry.seq, self.message(entry))
            for entry in entries
            if self.exact or self.matches(entry.subject)
        ]

    def message(self, entry: Entry) -> StoredMessage:
        """The message, wanted or not."""
        message_id, *rest = msgspec.structs.astuple(decode_body(entry.data))
        return StoredMessage(message_id, self.place.name(entry.subject), *rest)


class Messages:
    """See above."""

    def __init__(self, stream: Stream, clock: NatsClock) -> None:
        self.stream = stream
        self._clock = clock

    async def publish(self, one: Publish, deadline: float) -> None:
        """Add the message, unless its id is known."""
        lost = False

        async def send(message: Message) -> int | None:
            """Its sequence number; None if somebody else has written, or it cannot be told."""
            nonlocal lost
            last: Exception | None = None
            while True:
                await self.stream.ready(deadline)
                patience = self.stream.patience(deadline)
                if patience <= 0:
                    raise gave_up(last, self.stream.where, write=True) from last
                try:
                    return await self.stream.publish(message, patience)
                except NotSent as exc:
                    last = exc
                    await asyncio.sleep(_PAUSE)
                except NoAnswer as exc:
                    last, lost = exc, True
                    if message.once is None:
                        return None
                except WrongSequence:
                    return None

        try:
            claim, published_at = await self._claim(one, send, deadline)
            body = Body(one.message_id, published_at, one.trace_id, one.payload)
            subject = Place(self.stream.root, KIND, one.namespace).subject(one.subject)
            await send(Message(subject, _encode(body), None, once=str(claim)))
        except StoreError as exc:
            exc.outcome_unknown |= lost
            raise

    async def end(self, deadline: float) -> int:
        """The place of the last message that is stored."""
        return (await self.stream.info(deadline)).last_seq

    async def next(self, wanted: Wanted, after: int, limit: int, deadline: float) -> Look:
        """Up to `limit` wanted messages above the place."""
        count = limit if wanted.exact else max(limit, _LOOK_AT)
        entries, _ = await self.stream.log(wanted.filter, after, count, deadline)
        if not entries and self.stream.replicas > 1:
            # A replica may be behind.
            entry = await self.stream.next(wanted.filter, after, deadline)
            entries = [] if entry is None else [entry]
        found = wanted.placed(entries)[:limit]
        if len(found) == limit:
            return Look(found, found[-1].seq)
        return Look(found, entries[-1].seq if entries else after)

    async def at(self, wanted: Wanted, seqs: Sequence[int], deadline: float) -> dict[int, Placed]:
        """The messages at these places, without those that are gone."""
        entries = await asyncio.gather(*(self.stream.at(seq, deadline) for seq in seqs))
        there = [entry for entry in entries if entry is not None]
        # A group may ask for something else by now: what it has was wanted once.
        return {entry.seq: Placed(entry.seq, wanted.message(entry)) for entry in there}

    async def waiting(self, wanted: Wanted, after: int, deadline: float) -> tuple[int, int | None]:
        """How many wanted messages are above the place, and when the first was published."""
        count, oldest = 0, None
        left = 1
        while left:
            at_once = 1 if wanted.exact else _COUNT_AT_ONCE
            entries, left = await self.stream.log(wanted.filter, after, at_once, deadline)
            found = wanted.placed(entries)
            if found and oldest is None:
                oldest = found[0].message.published_at
            count += len(found)
            if wanted.exact or not entries:
                return count + left, oldest
            after = entries[-1].seq
        return count, oldest

    async def reached(self, wanted: Wanted, after: int, deadline: float) -> int:
        """The place up to which, from the given one on, there is no wanted message."""
        end = await self.end(deadline)
        while True:
            look = await self.next(wanted, after, 1, deadline)
            if look.messages:
                return look.messages[0].seq - 1
            if look.upto == after:
                return max(after, end)
            after = look.upto

    async def page(
        self, namespace: str, after: int, limit: int, deadline: float
    ) -> tuple[list[Entry], int]:
        """The namespace's next messages, and how many more there are."""
        everything = f"{Place(self.stream.root, KIND, namespace).root}>"
        return await self.stream.log(everything, after, limit, deadline)

    async def _claim(
        self, one: Publish, send: Callable[[Message], Awaitable[int | None]], deadline: float
    ) -> tuple[int, int]:
        """The place of the entry that stands for the id, and when it was made."""
        subject = Place(self.stream.root, _IDS, one.namespace).subject(one.message_id)
        expected = 0
        while True:
            now_us = await self._clock.now_us(deadline)
            entry = Message(subject, b"%d" % now_us, expected, _REMEMBER_SECS)
            if (seq := await send(entry)) is not None:
                return seq, now_us
            found = await self.stream.get(subject, deadline)
            if found is not None and int(found.data) > now_us - DEDUPE_US:
                return found.seq, int(found.data)
            expected = found.seq if found else 0

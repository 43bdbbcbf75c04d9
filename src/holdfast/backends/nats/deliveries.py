"""Deliveries that are not done, and dead letters: one entry each in the store's state.

    holdfast.deliveries.<group's id>.open.<place>    [due_at, number, consumer, published_at, op]
    holdfast.deliveries.<group's id>.dead.<place>    [died_at, number, published_at, op]

An answer replaces the very entry that its delivery made, so one that comes too late finds another
and changes nothing. What is done stays for some seconds, with a time of 0, so that who lost the
answer can tell; then the server removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec

from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.stream import Stream

OPEN, DEAD = "open", "dead"
_KIND = "deliveries"
_DONE_SECS = 15  # longer than a call takes
_AT_ONCE = 256


class OpenBody(msgspec.Struct, array_like=True, frozen=True):
    """A delivery's entry; `due_at` is 0 when it is done."""

    due_at: int
    number: int
    consumer: str
    published_at: int
    op_id: bytes


class DeadBody(msgspec.Struct, array_like=True, frozen=True):
    """A dead letter's entry; `died_at` is 0 when it is none any more."""

    died_at: int
    number: int
    published_at: int
    op_id: bytes


class Open(NamedTuple):
    """A delivery that is not done: the message's place, and the entry's own sequence number."""

    place: int
    revision: int
    body: OpenBody


class Dead(NamedTuple):
    """A dead letter, alike."""

    place: int
    revision: int
    body: DeadBody


_encode = msgspec.msgpack.Encoder().encode
_decode_open = msgspec.msgpack.Decoder(OpenBody).decode
_decode_dead = msgspec.msgpack.Decoder(DeadBody).decode


class Deliveries:
    """Reads the entries of groups, by a group's id, and tells how to change them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def open(self, group_id: str, deadline: float) -> list[Open]:
        """All that are not done, by their messages' places."""
        return await self.unchanged(group_id, await self._places(group_id, OPEN), deadline)

    async def unchanged(self, group_id: str, places: Iterable[int], deadline: float) -> list[Open]:
        """Those at these places that are not done, as they are now."""
        found = await self._read(group_id, OPEN, places, deadline)
        return [one for entry in found if (one := _open(entry)) is not None]

    async def dead(
        self, group_id: str, after: int, limit: int | None, deadline: float
    ) -> list[Dead]:
        """The dead letters above the place."""
        places = [place for place in await self._places(group_id, DEAD) if place > after]
        dead: list[Dead] = []
        at = 0
        while at < len(places) and (limit is None or len(dead) < limit):
            some = places[at : at + max(limit or 0, _AT_ONCE)]
            found = await self._read(group_id, DEAD, some, deadline)
            dead += [one for entry in found if (one := _dead(entry)) is not None]
            at += len(some)
        return dead[:limit]

    async def get_open(self, group_id: str, place: int, deadline: float) -> Open | None:
        """The delivery of that message, if it is not done."""
        entry = await self._stream.get(self._subject(group_id, OPEN, place), deadline)
        return None if entry is None else _open(entry)

    async def get_dead(self, group_id: str, place: int, deadline: float) -> Dead | None:
        """The dead letter of that message, if there is one."""
        entry = await self._stream.get(self._subject(group_id, DEAD, place), deadline)
        return None if entry is None else _dead(entry)

    async def undone(self, group_id: str, places: Sequence[int], deadline: float) -> set[int]:
        """Those of the places whose messages the group has and is not done with, or gave up."""
        undone: set[int] = set()
        for at in range(0, len(places), _AT_ONCE // 2):
            # Both of a place in one answer: one may become the other at any time.
            subjects = [
                self._subject(group_id, kind, place)
                for place in places[at : at + _AT_ONCE // 2]
                for kind in (OPEN, DEAD)
            ]
            found = await self._stream.get_many(subjects, deadline)
            undone.update(
                _place(subject)
                for subject, entry in found.items()
                if (_open(entry) if f".{OPEN}." in subject else _dead(entry)) is not None
            )
        return undone

    async def drop(self, group_id: str, deadline: float) -> None:
        """Remove all entries of a group that was deleted."""
        await self._stream.questions.api(
            f"STREAM.PURGE.{self._stream.name}", {"filter": self.below(group_id)}, deadline
        )

    def set_open(self, group_id: str, place: int, body: OpenBody, revision: int | None) -> Message:
        """What makes the delivery so; on top of the revision (0: nothing), or whatever is there."""
        return Message(self._subject(group_id, OPEN, place), _encode(body), revision)

    def set_dead(self, group_id: str, place: int, body: DeadBody) -> Message:
        """What makes it a dead letter."""
        return Message(self._subject(group_id, DEAD, place), _encode(body), None)

    def done(self, group_id: str, place: int, revision: int) -> Message:
        """What ends the delivery."""
        body = _encode(OpenBody(0, 0, "", 0, uuid4().bytes))
        subject = self._subject(group_id, OPEN, place)
        return Message(subject, body, revision, _DONE_SECS, marker=True)

    def buried(self, group_id: str, dead: Dead) -> Message:
        """What ends the dead letter."""
        body = _encode(DeadBody(0, 0, 0, uuid4().bytes))
        subject = self._subject(group_id, DEAD, dead.place)
        return Message(subject, body, dead.revision, _DONE_SECS, marker=True)

    def below(self, group_id: str, kind: str | None = None) -> str:
        """A filter for the entries of the group."""
        root = f"{self._stream.root}.{_KIND}.{group_id}."
        return f"{root}>" if kind is None else f"{root}{kind}.*"

    def _subject(self, group_id: str, kind: str, place: int) -> str:
        return f"{self._stream.root}.{_KIND}.{group_id}.{kind}.{place:x}"

    async def _places(self, group_id: str, kind: str) -> list[int]:
        found: set[int] = set()
        async for page in self._stream.subjects(self.below(group_id, kind)):
            found.update(map(_place, page.subjects))
        return sorted(found)

    async def _read(
        self, group_id: str, kind: str, places: Iterable[int], deadline: float
    ) -> list[Entry]:
        subjects = [self._subject(group_id, kind, place) for place in places]
        found = await self._stream.get_many(subjects, deadline)
        return [found[subject] for subject in subjects if subject in found]


def _place(subject: str) -> int:
    return int(subject.rpartition(".")[2], 16)


def _open(entry: Entry) -> Open | None:
    body = _decode_open(entry.data) if entry.data else None
    return Open(_place(entry.subject), entry.seq, body) if body and body.due_at else None


def _dead(entry: Entry) -> Dead | None:
    body = _decode_dead(entry.data) if entry.data else None
    return Dead(_place(entry.subject), entry.seq, body) if body and body.died_at else None

"""Groups: one entry each in the store's state, written if nobody wrote since.

    holdfast.groups.<namespace>.<name>      [id, namespace, subjects, …, position, op]
    holdfast.returned.<namespace>.<name>    replaced whenever a delivery is due at another time

Everything up to `position` was delivered: the messages that are not done have entries of their
own (deliveries.py), made together with the new position. The id is another one when a group
is made again, so nothing that an earlier one left is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import uuid4

import msgspec

from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.errors import NoAnswer, NotSent
from holdfast.backends.nats.operations import Done, Operations
from holdfast.backends.nats.questions import PAUSE
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place
from holdfast.backends.nats.swap import swap
from holdfast.facets.transport import Group, GroupOrder, Operation

_KIND = "groups"
_RETURNED = "returned"
_GONE_SECS = 60  # for how long one that was deleted is known as such


class GroupBody(msgspec.Struct, array_like=True, frozen=True):
    """A group's entry; `id` is empty when it was deleted."""

    id: str
    namespace: str
    subjects: tuple[str, ...]
    ack_timeout_us: int
    max_deliveries: int
    position: int
    op_id: bytes

    @property
    def settings(self) -> tuple[tuple[str, ...], int, int]:
        """What it was made with, or told since."""
        return self.subjects, self.ack_timeout_us, self.max_deliveries


class Held(NamedTuple):
    """A group as it was read."""

    group: Group
    body: GroupBody
    seq: int
    returned: int  # another number whenever deliveries are due at another time


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(GroupBody).decode


class Groups:
    """See above."""

    def __init__(self, stream: Stream, operations: Operations) -> None:
        self._stream = stream
        self._operations = operations

    async def get(self, group: Group, deadline: float) -> Held | None:
        """The group, if there is one."""
        found, returned = await asyncio.gather(
            self._stream.get(self._subject(group), deadline),
            self._stream.get(self.returned(group).subject, deadline),
        )
        body = _body(found)
        if found is None or body is None:
            return None
        return Held(group, body, found.seq, returned.seq if returned else 0)

    async def create(
        self,
        order: GroupOrder,
        begin: Callable[[GroupBody | None], Awaitable[int]],
        deadline: float,
    ) -> bool:
        """True if it is new; `begin` tells its position, also when it asks for other subjects."""
        namespace, _ = order.group
        operation = order.operation
        subject = self._subject(order.group)
        settings = (order.subjects, order.ack_timeout_us, order.max_deliveries)
        while True:
            found, done = await self._look(subject, namespace, operation, deadline)
            if done is not None:
                return done.answer
            old = _body(found)
            writes: list[Message] = []
            if old is None or old.settings != settings:
                keeps = old is not None and old.subjects == order.subjects
                position = old.position if old and keeps else await begin(old)
                group_id = old.id if old else uuid4().hex
                body = GroupBody(group_id, namespace, *settings, position, uuid4().bytes)
                writes.append(Message(subject, _encode(body), found.seq if found else 0))
                if old:  # who knows when deliveries are due knew it of the old `ack_timeout`
                    writes.append(self.returned(order.group))
            elif not operation.named:
                return False
            if await self._operations.do(
                namespace, operation, writes, deadline, answer=old is None
            ):
                return old is None

    async def delete(self, group: Group, operation: Operation, deadline: float) -> str | None:
        """The id of the group that was there, also when the operation was done before."""
        namespace, _ = group
        subject = self._subject(group)
        while True:
            found, done = await self._look(subject, namespace, operation, deadline)
            if done is not None:
                return done.group_id or None
            old = _body(found)
            group_id, writes = "", []
            if found is not None and old is not None:
                gone = _encode(GroupBody("", "", (), 0, 0, 0, uuid4().bytes))
                group_id = old.id
                writes = [Message(subject, gone, found.seq, _GONE_SECS, marker=True)]
            if await self._operations.do(
                namespace, operation, writes, deadline, answer=bool(writes), group_id=group_id
            ):
                return group_id or None

    async def names(self, namespace: str, deadline: float) -> list[str]:
        """The names, in byte order."""
        place = Place(self._stream.root, _KIND, namespace)
        return sorted(
            place.name(subject) for subject in await self._all(f"{place.root}>", deadline)
        )

    async def bodies(self, deadline: float) -> list[GroupBody]:
        """All groups of all namespaces."""
        return list((await self._all(f"{self._stream.root}.{_KIND}.>", deadline)).values())

    async def move(self, held: Held, position: int, op_id: bytes, deadline: float) -> bool:
        """True when the group's position is there or beyond.

        False if it is another group by now, or asks for other subjects: then nobody has looked
        for those up to there.
        """
        now: Held | None = held
        while now is not None and now.body.id == held.body.id:
            if now.body.position >= position:
                return True
            if now.body.subjects != held.body.subjects:
                return False
            if await swap(self._stream, [self.moved(now, position, op_id)], deadline) is not None:
                return True
            now = await self.get(held.group, deadline)
        return False

    async def tell_returned(self, group: Group, deadline: float) -> None:
        """Make every consumer look for deliveries that are due.

        Without that they look an `ack_timeout` after the last time.
        """
        while (patience := self._stream.patience(deadline)) > 0:
            try:
                await self._stream.publish(self.returned(group), patience)
            except (NotSent, NoAnswer):
                await asyncio.sleep(PAUSE)
            else:
                return

    def moved(self, held: Held, position: int, op_id: bytes) -> Message:
        """What puts the group's position there."""
        body = msgspec.structs.replace(held.body, position=position, op_id=op_id)
        return Message(self._subject(held.group), _encode(body), held.seq)

    def returned(self, group: Group) -> Message:
        """What makes every consumer look for deliveries that are due."""
        subject = Place(self._stream.root, _RETURNED, group.namespace).subject(group.name)
        return Message(subject, b"", None)

    async def _look(
        self, subject: str, namespace: str, operation: Operation, deadline: float
    ) -> tuple[Entry | None, Done | None]:
        """The group's entry, and what the operation came to if it was done before.

        In this order: if an earlier try made the entry, its note is there too.
        """
        found = await self._stream.get(subject, deadline)
        return found, await self._operations.known(namespace, operation, deadline)

    def _subject(self, group: Group) -> str:
        return Place(self._stream.root, _KIND, group.namespace).subject(group.name)

    async def _all(self, matching: str, deadline: float) -> dict[str, GroupBody]:
        subjects: set[str] = set()
        async for page in self._stream.subjects(matching):
            subjects.update(page.subjects)
        found = await self._stream.get_many(sorted(subjects), deadline)
        bodies = {subject: _body(entry) for subject, entry in found.items()}
        return {subject: body for subject, body in bodies.items() if body is not None}


def _body(found: Entry | None) -> GroupBody | None:
    if found is None or not found.data:
        return None
    body = _decode(found.data)
    return body if body.id else None

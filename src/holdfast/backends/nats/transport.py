"""The transport on NATS: a log of messages, and for each group what is not done yet.

JetStream's own consumers go by the server's clock, and their answers by no number. So groups and
deliveries are entries of the store's state (groups.py, deliveries.py), handed out by fetching.py;
the messages are a stream of their own (messages.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from msgspec.structs import replace

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.deliveries import Deliveries, OpenBody
from holdfast.backends.nats.fetching import Fetching, Place
from holdfast.backends.nats.groups import GroupBody, Groups, Held
from holdfast.backends.nats.messages import Messages, Wanted
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.backends.nats.operations import Operations
from holdfast.backends.nats.purging import Purging
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.swap import swap
from holdfast.backends.nats.wakes import Wakes
from holdfast.codec import INT64_MAX
from holdfast.errors import InvalidArgument, StoreError
from holdfast.facets.transport import (
    ACK,
    Answer,
    DeadMessage,
    Fetched,
    Group,
    GroupOrder,
    Operation,
    Publish,
    next_life,
    no_group,
)


class NatsTransport:
    """See TransportBackend."""

    def __init__(
        self,
        db: NatsDb,
        stream: Stream,
        messages: Stream,
        clock: NatsClock,
        wakes: Wakes,
        *,
        namespaces: Namespaces,
    ) -> None:
        self._db = db
        self._stream = stream
        self._clock = clock
        self._wakes = wakes
        self._namespaces = namespaces
        self._messages = Messages(messages, clock)
        self._operations = Operations(stream)
        self._groups = Groups(stream, self._operations)
        self._deliveries = Deliveries(stream)
        self._fetching = Fetching(stream, clock, self._groups, self._deliveries, self._messages)
        self._purging = Purging(clock, self._groups, self._deliveries, self._messages, namespaces)

    async def publish(self, messages: Sequence[Publish], size: int) -> None:
        """See TransportBackend. Each by itself: without transactions there is one at a time."""
        del size
        await self._db.run(self._publish(messages))

    async def create_group(self, order: GroupOrder) -> bool:
        """See TransportBackend."""
        return await self._db.run(self._create_group(order))

    async def delete_group(self, group: Group, operation: Operation) -> bool:
        """See TransportBackend."""
        return await self._db.run(self._delete_group(group, operation))

    async def list_groups(self, namespace: str) -> list[str]:
        """See TransportBackend."""
        return await self._db.run(self._list_groups(namespace))

    async def fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        """See TransportBackend."""
        return await self._db.run(self._fetch(group, consumer, limit))

    async def answer(self, answers: Sequence[Answer]) -> Sequence[bool]:
        """See TransportBackend."""
        return await self._db.run(self._answer_all(answers))

    async def status(self, group: Group) -> tuple[int, int, int, int | None]:
        """See TransportBackend."""
        return await self._db.run(self._status(group))

    async def dead(self, group: Group, *, after: str | None, limit: int) -> list[DeadMessage]:
        """See TransportBackend."""
        above = 0 if after is None else _place(after)
        return await self._db.run(self._dead(group, above, limit))

    async def bury(self, group: Group, place: str, operation: Operation, *, revive: bool) -> bool:
        """See TransportBackend."""
        return await self._db.run(self._bury(group, _place(place), operation, revive=revive))

    async def purge(self, older_than_us: int, limit: int) -> int:
        """See TransportBackend."""
        return await self._db.run(self._purging.purge(older_than_us, limit))

    async def _publish(self, messages: Sequence[Publish]) -> None:
        deadline = self._stream.deadline()
        for message in messages:
            await self._namespaces.note(message.namespace, deadline)
            await self._messages.publish(message, deadline)
        for namespace in {message.namespace for message in messages}:
            await self._wakes.tell(namespace)

    async def _create_group(self, order: GroupOrder) -> bool:
        deadline = self._stream.deadline()

        async def begin(old: GroupBody | None) -> int:
            if old is not None:
                # Its position stays behind while there is nothing for it, and what was not for
                # it then must not be when it asks for other subjects.
                wanted = Wanted(self._stream.root, old.namespace, old.subjects)
                return await self._messages.reached(wanted, old.position, deadline)
            return 0 if order.from_start else await self._messages.end(deadline)

        await self._namespaces.note(order.group.namespace, deadline)
        return await self._groups.create(order, begin, deadline)

    async def _delete_group(self, group: Group, operation: Operation) -> bool:
        deadline = self._stream.deadline()
        group_id = await self._groups.delete(group, operation, deadline)
        if group_id is None:
            return False
        try:
            await self._deliveries.drop(group_id, deadline)
        except StoreError as exc:
            exc.outcome_unknown = True  # the group is gone, only its entries are not
            raise
        return True

    async def _list_groups(self, namespace: str) -> list[str]:
        return await self._groups.names(namespace, self._stream.deadline())

    async def _fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        return await self._fetching.fetch(group, consumer, limit, self._stream.deadline())

    async def _answer_all(self, answers: Sequence[Answer]) -> list[bool]:
        deadline = self._stream.deadline()
        done = await asyncio.gather(*(self._answer(answer, deadline) for answer in answers))
        for namespace in {answer.group.namespace for answer in answers if answer.again}:
            await self._wakes.tell(namespace)
        return done

    async def _answer(self, answer: Answer, deadline: float) -> bool:
        group_id, place, revision = Place.read(answer.place)
        if answer.due_us == ACK:
            done = self._deliveries.done(group_id, place, revision)
            if await swap(self._stream, [done], deadline) is not None:
                return True
        # It was given back, kept for longer, or delivered again.
        while True:
            found = await self._deliveries.get_open(group_id, place, deadline)
            if found is None or found.body.number != answer.number:
                return False
            body = found.body
            if answer.due_us == ACK:
                write = self._deliveries.done(group_id, place, found.revision)
            else:
                due_at = await self._clock.now_us(deadline) + answer.due_us
                body = replace(body, due_at=due_at, op_id=uuid4().bytes)
                write = self._deliveries.set_open(group_id, place, body, found.revision)
            if await swap(self._stream, [write], deadline) is not None:
                # Others know of the time that it was due at: a later one they find out by looking.
                sooner = body.due_at < found.body.due_at
                if answer.again or sooner:
                    await self._groups.tell_returned(answer.group, deadline)
                if sooner and not answer.again:  # else all are told at once, by `_answer_all`
                    await self._wakes.tell(answer.group.namespace)
                return True

    async def _held(self, group: Group, deadline: float) -> Held:
        held = await self._groups.get(group, deadline)
        if held is None:
            raise no_group(group)
        return held

    def _wanted(self, held: Held) -> Wanted:
        return Wanted(self._stream.root, held.group.namespace, held.body.subjects)

    async def _status(self, group: Group) -> tuple[int, int, int, int | None]:
        deadline = self._stream.deadline()
        held = await self._held(group, deadline)
        found = await self._deliveries.open(held.body.id, deadline)
        dead = await self._deliveries.dead(held.body.id, 0, None, deadline)
        waiting, first = await self._messages.waiting(
            self._wanted(held), held.body.position, deadline
        )
        # What is handed out right now has an entry, and is still above the position.
        waiting -= sum(one.place > held.body.position for one in found)
        times = [one.body.published_at for one in found] + ([] if first is None else [first])
        return max(0, waiting), len(found), len(dead), min(times, default=None)

    async def _dead(self, group: Group, after: int, limit: int) -> list[DeadMessage]:
        deadline = self._stream.deadline()
        held = await self._held(group, deadline)
        dead = await self._deliveries.dead(held.body.id, after, limit, deadline)
        found = await self._messages.at(self._wanted(held), [one.place for one in dead], deadline)
        return [
            DeadMessage(
                found[one.place].message, f"{one.place:x}", one.body.number, one.body.died_at
            )
            for one in dead
            if one.place in found
        ]

    async def _bury(self, group: Group, place: int, operation: Operation, *, revive: bool) -> bool:
        deadline = self._stream.deadline()
        namespace, _ = group
        while True:
            held = await self._groups.get(group, deadline)
            # After that: if the same operation was done before the group went, it is known.
            done = await self._operations.known(namespace, operation, deadline)
            if done is not None:
                return done.answer
            if held is None:
                raise no_group(group)
            dead = await self._deliveries.get_dead(held.body.id, place, deadline)
            if dead is None:
                if await self._operations.do(namespace, operation, [], deadline, answer=False):
                    return False
                continue
            writes = [self._deliveries.buried(held.body.id, dead)]
            if revive:
                now_us = await self._clock.now_us(deadline)
                number = next_life(dead.body.number)
                body = OpenBody(now_us, number, "", dead.body.published_at, uuid4().bytes)
                writes += [
                    self._deliveries.set_open(held.body.id, place, body, None),
                    self._groups.returned(group),
                ]
            if await self._operations.do(namespace, operation, writes, deadline, answer=True):
                await self._wakes.tell(namespace)
                return True


def _place(place: str) -> int:
    try:
        return min(int(place, 16), INT64_MAX)
    except (TypeError, ValueError):
        raise InvalidArgument(f"place: wanted that of a dead letter, found {place!r}") from None

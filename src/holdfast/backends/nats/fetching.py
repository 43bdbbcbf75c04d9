"""What a group hands out next: deliveries that are due again, then messages above its position.

    position 11, open: (9, due in 5 s) (11, due in 30 s)                       fetch(1)
    position 11, open: (9, due in 5 s) (11, due in 30 s) (12, due in 30 s)     12 is ours
    position 12, open: (9, due in 5 s) (11, due in 30 s) (12, due in 30 s)     and is handed out

A message is taken by making its entry, if there is none; only then the position goes past it, and
only then it is handed out. Whoever dies before that leaves an entry above the position, which the
next one goes past; from then on it is a delivery like others. So an entry that is done, and soon
removed, is never above the position, where the message would be taken once more. Many at a time
are taken together with the position in one step of the log: on a single server that takes the
time of some 30 entries, because the server makes a store of its own for each batch.

Consumers of one group in this process take turns; against others the conditions decide, and who
loses looks again. To list a group's deliveries takes long, so it is done only when one of them
can be due: at the time that the last list told, when one was given back or is due sooner than
it was (`returned`), and an `ack_timeout` after the last list, because no delivery that was made
since is due before that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.deliveries import DeadBody, Deliveries, Open, OpenBody
from holdfast.backends.nats.entries import Message
from holdfast.backends.nats.groups import Groups, Held
from holdfast.backends.nats.messages import Look, Messages, Placed, Wanted
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.swap import swap
from holdfast.errors import StoreError
from holdfast.facets.transport import LIFE, Delivered, Fetched, Group, no_group

_MOST_AT_A_TIME = 400  # two entries for each must fit into one step
_FEW = 16  # one by one on a single server: a batch takes 11 to 34 ms there, an entry 0.7
_LONGEST_PAUSE = 0.02  # seconds, before who lost looks again


class Place(NamedTuple):
    """Where a delivery is: its group's id, the message's place, and the entry it was made by."""

    group_id: str
    place: int
    revision: int

    def spelled(self) -> str:
        """As the consumer keeps it."""
        return f"{self.group_id}.{self.place:x}.{self.revision:x}"

    @classmethod
    def read(cls, text: str) -> Place:
        """The place that is spelled so."""
        group_id, place, revision = text.split(".")
        return cls(group_id, int(place, 16), int(revision, 16))


class _Listed:
    """What is known of a group's deliveries."""

    def __init__(self, held: Held, now_us: int, found: list[Open]) -> None:
        self._of = (held.body.id, held.returned)
        self._at_us = now_us
        found.sort(key=lambda one: (one.body.due_at, one.place))
        due = [one for one in found if one.body.due_at <= now_us]
        later = found[len(due) :]
        self._next_us = later[0].body.due_at if later else None
        self.due = [one for one in due if one.place <= held.body.position]
        self._left_out = len(self.due) < len(due)

    def next_us(self, held: Held) -> int:
        """When another one can be due."""
        made_since = self._at_us + held.body.ack_timeout_us
        return made_since if self._next_us is None else min(made_since, self._next_us)

    def holds(self, held: Held, now_us: int) -> bool:
        """True if it is still all that one must know."""
        if self._of != (held.body.id, held.returned) or (self._left_out and not self.due):
            return False
        return bool(self.due) or now_us < self.next_us(held)


class _Turn:
    """The consumers of one group in this process, one at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.listed: _Listed | None = None
        self.one_by_one = False  # because they could not be taken together


class _Step(NamedTuple):
    """What one look came to; `last` if new messages were looked for."""

    delivered: list[Delivered]
    last: bool = False
    beaten: bool = False
    next_look_us: int | None = None


class Fetching:
    """See above."""

    def __init__(
        self,
        stream: Stream,
        clock: NatsClock,
        groups: Groups,
        deliveries: Deliveries,
        messages: Messages,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._groups = groups
        self._deliveries = deliveries
        self._messages = messages
        self._turns: dict[Group, _Turn] = {}

    async def fetch(self, group: Group, consumer: str, limit: int, deadline: float) -> Fetched:
        """See TransportBackend."""
        limit = min(limit, _MOST_AT_A_TIME)
        turn = self._turns.setdefault(group, _Turn())
        handed: list[Delivered] = []
        async with turn.lock:
            while True:
                try:
                    step = await self._step(turn, group, consumer, limit - len(handed), deadline)
                except StoreError:
                    if handed:  # they are the consumer's already
                        return Fetched(handed, None)
                    raise
                handed += step.delivered
                if handed and (step.last or len(handed) == limit):
                    return Fetched(handed, None)
                if step.next_look_us is not None:
                    return Fetched([], step.next_look_us)
                if step.beaten:
                    await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - jitter

    async def _step(
        self, turn: _Turn, group: Group, consumer: str, limit: int, deadline: float
    ) -> _Step:
        held = await self._groups.get(group, deadline)
        if held is None:
            self._turns.pop(group, None)
            raise no_group(group)
        now_us = await self._clock.now_us(deadline)
        if turn.listed is None or not turn.listed.holds(held, now_us):
            found = await self._deliveries.open(held.body.id, deadline)
            turn.listed = _Listed(held, now_us, found)
        taking = _Taking(held, consumer, now_us, self._deliveries)
        if turn.listed.due:
            done = await self._again(taking, turn.listed, limit, deadline)
            return _Step(taking.delivered, beaten=not done)
        taken = await self._new(turn, taking, limit, deadline)
        if taken is None:
            return _Step([], last=True, next_look_us=max(0, turn.listed.next_us(held) - now_us))
        return _Step(taking.delivered, last=True, beaten=not taken)

    async def _again(self, taking: _Taking, listed: _Listed, limit: int, deadline: float) -> bool:
        """Hand out what is due, and give up what was handed out too often; False: look again."""
        some = listed.due[:limit]
        body = taking.held.body
        wanted = self._wanted(taking.held)
        alive = [one.place for one in some if one.body.number % LIFE < body.max_deliveries]
        found = await self._messages.at(wanted, alive, deadline)
        for one in some:
            if one.body.number % LIFE >= body.max_deliveries:
                taking.give_up(one)
            elif one.place in found:
                taking.add(found[one.place], one)
            else:
                taking.drop(one)  # somebody has emptied the stream by other means
        if await self._took(taking, deadline):
            del listed.due[: len(some)]
            return True
        places = [one.place for one in some]
        now = await self._deliveries.unchanged(body.id, places, deadline)
        listed.due[: len(some)] = [one for one in some if one in now]
        return False

    async def _new(self, turn: _Turn, taking: _Taking, limit: int, deadline: float) -> bool | None:
        """Hand out messages above the position; None: there are none, False: look again."""
        held = taking.held
        after = held.body.position
        look = await self._messages.next(self._wanted(held), after, limit, deadline)
        if look.upto == after:
            return None
        few = self._stream.replicas == 1 and len(look.messages) <= _FEW
        if few or turn.one_by_one:
            turn.one_by_one = False
            return await self._take_each(taking, look, deadline)
        taking.writes.append(self._groups.moved(held, look.upto, taking.op_id))
        for placed in look.messages:
            taking.add(placed)
        took = await self._took(taking, deadline)
        turn.one_by_one = not took  # one of them may have an entry: somebody died, or is about to
        return took

    async def _take_each(self, taking: _Taking, look: Look, deadline: float) -> bool:
        for placed in look.messages:
            taking.add(placed)
        seqs = await asyncio.gather(
            *(swap(self._stream, [write], deadline) for write in taking.writes)
        )
        held = taking.held
        if await self._groups.move(held, look.upto, taking.op_id, deadline):
            taking.stored(seqs)
            return True
        await asyncio.gather(
            *(swap(self._stream, [write], deadline) for write in taking.given_back(seqs))
        )
        await self._groups.tell_returned(held.group, deadline)
        now = await self._groups.get(held.group, deadline)
        if now is None or now.body.id != held.body.id:
            await self._deliveries.drop(held.body.id, deadline)
        return False

    async def _took(self, taking: _Taking, deadline: float) -> bool:
        first = await swap(self._stream, taking.writes, deadline)
        if first is not None:
            taking.stored(range(first, first + len(taking.writes)))
        return first is not None

    def _wanted(self, held: Held) -> Wanted:
        return Wanted(self._stream.root, held.group.namespace, held.body.subjects)


class _Taking:
    """What one fetch is about to write, and what its consumer gets."""

    def __init__(self, held: Held, consumer: str, now_us: int, deliveries: Deliveries) -> None:
        self.held = held
        self.op_id = uuid4().bytes
        self.writes: list[Message] = []
        self.delivered: list[Delivered] = []
        self._consumer = consumer
        self._now_us = now_us
        self._deliveries = deliveries
        self._taken: list[tuple[Placed, int, int]] = []

    def add(self, placed: Placed, before: Open | None = None) -> None:
        """Hand the message out, for the first time or once more."""
        body = OpenBody(
            self._now_us + self.held.body.ack_timeout_us,
            before.body.number + 1 if before else 1,
            self._consumer,
            placed.message.published_at,
            self.op_id,
        )
        revision = before.revision if before else 0
        self._taken.append((placed, body.number, len(self.writes)))
        self.writes.append(self._deliveries.set_open(self.held.body.id, placed.seq, body, revision))

    def give_up(self, one: Open) -> None:
        """Make it a dead letter."""
        self.drop(one)
        body = DeadBody(self._now_us, one.body.number, one.body.published_at, self.op_id)
        self.writes.append(self._deliveries.set_dead(self.held.body.id, one.place, body))

    def drop(self, one: Open) -> None:
        """End the delivery."""
        self.writes.append(self._deliveries.done(self.held.body.id, one.place, one.revision))

    def given_back(self, seqs: Sequence[int | None]) -> list[Message]:
        """What makes those that were written under these numbers due, as if for the first time."""
        body = OpenBody(self._now_us, 0, "", 0, self.op_id)
        return [
            self._deliveries.set_open(
                self.held.body.id,
                placed.seq,
                replace(body, published_at=placed.message.published_at),
                seq,
            )
            for placed, _, at in self._taken
            if (seq := seqs[at]) is not None
        ]

    def stored(self, seqs: Sequence[int | None]) -> None:
        """They were written under these numbers; None: somebody else has it."""
        self.delivered = [
            Delivered(placed.message, Place(self.held.body.id, placed.seq, seq).spelled(), number)
            for placed, number, at in self._taken
            if (seq := seqs[at]) is not None
        ]

"""The transport on Redis: a stream of messages, and for each group what is not done yet."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.namespaces import RedisNamespaces
from holdfast.backends.redis.protocol import Command, Reply
from holdfast.backends.redis.script import Script
from holdfast.codec import INT64_MAX
from holdfast.errors import InvalidArgument
from holdfast.facets.transport import (
    DEDUPE_US,
    LOG,
    Answer,
    DeadMessage,
    Delivered,
    Fetched,
    Group,
    GroupOrder,
    Operation,
    Publish,
    StoredMessage,
    given_back,
    held_place,
    no_group,
    read_held,
)

# How much one command may ask for: the server does nothing else meanwhile.
_DEAD_PAGE = 100
_PLACES_PAGE = 1000

_OP_BYTES = 16

# How many values of an answer belong to one message.
_FETCHED = 7
_DEAD = 8


class RedisTransport:
    """See TransportBackend."""

    def __init__(self, db: RedisDb, keys: Keys, namespaces: RedisNamespaces) -> None:
        self._db = db
        self._keys = keys
        self._namespaces = namespaces
        self._change = RunScript()
        self._answer = AnswerDeliveries(keys)
        self._publish = Script("publish_messages")
        self._create_group = Script("create_group")
        self._delete_group = Script("delete_group")
        self._fetch = Script("fetch_messages")
        self._status = Script("read_status")
        self._dead = Script("list_dead")
        self._bury = Script("bury_dead")
        self._purge = Script("purge_messages")

    async def publish(self, messages: Sequence[Publish], size: int) -> None:
        """See TransportBackend."""
        namespace = messages[0].namespace
        await self._namespaces.note(namespace)
        arguments = [b"%d" % DEDUPE_US]
        for _, subject, message_id, trace_id, payload in messages:
            arguments += (message_id.encode(), subject.encode(), payload.encode())
            arguments += (b"0", b"") if trace_id is None else (b"1", trace_id.encode())
        await self._run(self._publish, namespace, arguments, size=size, tell=True)

    async def create_group(self, order: GroupOrder) -> bool:
        """See TransportBackend."""
        (namespace, name), subjects, from_start, ack_timeout_us, max_deliveries, operation = order
        arguments = [
            name.encode(),
            " ".join(subjects).encode(),
            b"%d" % ack_timeout_us,
            b"%d" % max_deliveries,
            b"%d" % from_start,
            uuid4().bytes,
            *_spelled(operation),
            b"%d" % operation.named,
        ]
        await self._namespaces.note(namespace)
        return bool(await self._run(self._create_group, namespace, arguments))

    async def delete_group(self, group: Group, operation: Operation) -> bool:
        """See TransportBackend."""
        arguments = [group.name.encode(), *_spelled(operation)]
        return bool(await self._run(self._delete_group, group.namespace, arguments))

    async def list_groups(self, namespace: str) -> list[str]:
        """See TransportBackend."""
        base = self._keys.base(namespace)
        (names,) = await self._db.ask([(b"ZRANGE", base + b":groups", b"0", b"-1")], base)
        return [name.decode() for name in names]

    async def fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        """See TransportBackend. After a lost answer messages come again when their time is up."""
        arguments = [group.name.encode(), consumer.encode(), b"%d" % limit]
        while True:
            reply = await self._run(self._fetch, group.namespace, arguments)
            if reply is None:
                raise no_group(group)
            more, due_in, op_id, *values = reply
            if values:
                return Fetched([_delivered(op_id, row) for row in _rows(values, _FETCHED)], None)
            if not more:
                return Fetched([], None if due_in is None else int(due_in))

    async def answer(self, answers: Sequence[Answer]) -> Sequence[bool]:
        """See TransportBackend."""
        for answer in answers:
            _held(answer.place)
        base = self._keys.base(answers[0].group.namespace)
        return await self._db.do(self._answer, answers, base, topic=given_back(answers))

    async def status(self, group: Group) -> tuple[int, int, int, int | None]:
        """See TransportBackend."""
        base = self._keys.base(group.namespace)
        waiting, after = 0, b""
        times: list[int] = []
        counts: tuple[int, int] | None = None
        while True:
            command = self._status.call([base], [group.name.encode(), after])
            (reply,) = await self._db.ask([command], base)
            if reply is None:
                raise no_group(group)
            count, published_at, delivered, dead, after, more = reply
            waiting += count
            times += [] if published_at is None else [int(published_at)]
            counts = counts or (delivered, dead)
            if not more:
                break
        if counts[0]:
            times += await self._oldest_delivered(base, group)
        return waiting, *counts, min(times, default=None)

    async def dead(self, group: Group, *, after: str | None, limit: int) -> list[DeadMessage]:
        """See TransportBackend."""
        base = self._keys.base(group.namespace)
        above = 0 if after is None else _number(after)
        found: list[DeadMessage] = []
        while True:
            page = min(limit - len(found), _DEAD_PAGE)
            arguments = [group.name.encode(), b"%d" % above, b"%d" % page]
            (values,) = await self._db.ask([self._dead.call([base], arguments)], base)
            if values is None:
                raise no_group(group)
            rows = _rows(values, _DEAD)
            found += map(_dead_message, rows)
            if len(rows) < page or len(found) == limit:
                return found
            above = int(rows[-1][0])

    async def bury(self, group: Group, place: str, operation: Operation, *, revive: bool) -> bool:
        """See TransportBackend."""
        numbers = (b"%d" % _number(place), b"%d" % revive)
        arguments = [group.name.encode(), *numbers, *_spelled(operation)]
        there = await self._run(self._bury, group.namespace, arguments, tell=True)
        if there is None:
            raise no_group(group)
        return bool(there)

    async def purge(self, older_than_us: int, limit: int) -> int:
        """See TransportBackend."""
        gone = 0
        for name in await self._namespaces.listed():
            above: bytes | None = b"0"
            while above is not None and gone < limit:
                arguments = [b"%d" % older_than_us, above, b"%d" % (limit - gone)]
                removed, above = await self._run(self._purge, name, arguments)
                gone += removed
        return gone

    async def _oldest_delivered(self, base: bytes, group: Group) -> list[int]:
        """When the oldest of the messages that are with consumers was published, if there is one.

        They are in the order of their due times, so all of them are looked at, by pages.
        """
        key = base + b":d:" + group.name.encode()
        oldest: list[bytes] = []
        begin = 0
        while True:
            span = (b"%d" % begin, b"%d" % (begin + _PLACES_PAGE - 1))
            (places,) = await self._db.ask([(b"ZRANGE", key, *span)], base)
            oldest = sorted([*oldest, *places])[:1]
            if len(places) < _PLACES_PAGE:
                break
            begin += _PLACES_PAGE
        if not oldest:
            return []
        number = b"%d" % int(oldest[0])
        (entries,) = await self._db.ask([(b"XRANGE", base + b":messages", number, number)], base)
        return [int(fields[fields.index(b"t") + 1]) for _, fields in entries]

    async def _run(
        self,
        script: Script,
        namespace: str,
        arguments: Sequence[bytes],
        *,
        size: int = 0,
        tell: bool = False,
    ) -> Reply:
        base = self._keys.base(namespace)
        command = script.call([base, self._keys.clock(base)], arguments)
        topic = (LOG, namespace) if tell else None
        (reply,) = await self._db.do(self._change, [command], base, size=size, topic=topic)
        return reply


class RunScript:
    """Single scripts that change something. See Operation.

    To run one again is no harm: it does the same, or knows what it did by its operation id.
    """

    writes = True
    timed = False
    joins = False

    def command(self, item: Command, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat
        return item

    def answer(self, reply: Reply, item: Command) -> Reply:
        """See Operation."""
        del item
        return reply


class AnswerDeliveries:
    """What consumers say about their deliveries. See Operation."""

    writes = True
    timed = False
    joins = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._script = Script("answer_delivery")

    def command(self, item: Answer, *, repeat: bool) -> Command:
        """See Operation."""
        (namespace, name), place, number, due_us, _ = item
        base = self._keys.base(namespace)
        op_id, message = _held(place)
        numbers = (message, number, due_us, repeat)
        return self._script.call(
            [base, self._keys.clock(base)],
            [name.encode(), op_id, *(b"%d" % one for one in numbers)],
        )

    def answer(self, reply: Reply, item: Answer) -> bool:
        """See Operation."""
        del item
        return bool(reply)


def _spelled(operation: Operation) -> tuple[bytes, bytes]:
    """The operation's id, as it can stand in a key, and for how many seconds it is known."""
    return operation.id.hex().encode(), b"%d" % operation.kept_secs


def _rows(values: list[Reply], width: int) -> list[list[Reply]]:
    return [values[at : at + width] for at in range(0, len(values), width)]


def _delivered(op_id: bytes, row: list[Reply]) -> Delivered:
    number, delivery, *message = row
    place = held_place(int.from_bytes(op_id, "big"), int(number))
    return Delivered(_stored(message), place, delivery)


def _held(place: str) -> tuple[bytes, int]:
    """What tells the group which a delivery is of from others, and the number of its message."""
    op_id, number = read_held(place, 2)
    # An older version of this library noted none.
    return op_id.to_bytes(_OP_BYTES, "big") if op_id else b"", min(number, INT64_MAX)


def _dead_message(row: list[Reply]) -> DeadMessage:
    number, deliveries, died_at, *message = row
    return DeadMessage(_stored(message), f"{int(number):x}", int(deliveries), int(died_at))


def _stored(values: list[Reply]) -> StoredMessage:
    message_id, subject, published_at, payload, trace_id = values
    return StoredMessage(
        message_id.decode(),
        subject.decode(),
        int(published_at),
        None if trace_id is None else trace_id.decode(),
        payload.decode(),
    )


def _number(place: str) -> int:
    """The number of the message that is there."""
    try:
        return min(int(place, 16), INT64_MAX)
    except (TypeError, ValueError):
        raise InvalidArgument(f"place: wanted that of a dead letter, found {place!r}") from None

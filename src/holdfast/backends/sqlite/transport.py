"""The transport on SQLite: a log of messages, and for each group what is not done yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.clock import machine_us
from holdfast.codec import INT64_MAX
from holdfast.errors import InvalidArgument
from holdfast.facets.transport import (
    ACK,
    DEDUPE_US,
    LIFE,
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
    pattern_regex,
    read_held,
)
from holdfast.runtime import Topic

T = TypeVar("T")
_OWN = load(__package__, "transport.sql", SQLITE)
_LOOK_AT = 200  # messages per transaction, if none of them is for the group


class SqliteTransport:
    """See TransportBackend."""

    def __init__(self, db: SqliteScope, *, inside: bool = False) -> None:
        self._db = db
        self._inside = inside
        # In a transaction: the last message that may be delivered, those after it are its own.
        self._upto = INT64_MAX
        self._publish = PublishMessages()
        self._works = Works()
        self._answer = AnswerDeliveries()

    async def publish(self, messages: Sequence[Publish], size: int) -> None:
        """See TransportBackend."""
        before, *_ = await self._db.write(
            self._publish, messages, size, (LOG, messages[0].namespace)
        )
        if self._inside:
            self._upto = min(self._upto, before)

    async def create_group(self, order: GroupOrder) -> bool:
        """See TransportBackend."""
        group, subjects, from_start, ack_timeout_us, max_deliveries, operation = order
        settings = (subjects, ack_timeout_us, max_deliveries)
        spelled = (msgspec.json.encode(subjects).decode(), ack_timeout_us, max_deliveries)

        def work(on: SqliteConnection) -> bool:
            found = _find(on, group)
            if found is None:
                position = 0 if from_start else on.moments.begin()[1]
                on.execute(_OWN["add_group"], (*group, *spelled, position))
            elif found.settings != settings:
                on.execute(_OWN["change_group"], (*spelled, found.id))
            return found is None

        if not operation.named:
            row = await self._db.row(_OWN["find_group"], group)
            if row is not None and _group(row).settings == settings:
                return False
        return bool(await self._once(group, operation, work))

    async def delete_group(self, group: Group, operation: Operation) -> bool:
        """See TransportBackend."""

        def work(on: SqliteConnection) -> bool:
            found = _find(on, group)
            if found is not None:
                on.execute(_OWN["drop_deliveries"], (found.id,))
                on.execute(_OWN["drop_group"], (found.id,))
            return found is not None

        return bool(await self._once(group, operation, work))

    async def list_groups(self, namespace: str) -> list[str]:
        """See TransportBackend."""
        rows = await self._db.fetch(_OWN["list_groups"], {"namespace": namespace})
        return [name for (name,) in rows]

    async def fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        """See TransportBackend."""
        upto = self._upto
        while True:
            # A look first: it needs neither the writer nor a sync.
            row = await self._db.row(_OWN["has_news"], (upto, machine_us(), *group))
            if row is None:
                raise no_group(group)
            _, news, due_in = row
            if not news and (due_in is None or due_in > 0):
                return Fetched([], due_in)
            fetched = await self._do(lambda on: _fetch(on, group, consumer, limit, upto))
            if fetched is None:
                raise no_group(group)
            if fetched:
                return Fetched(fetched, None)

    async def answer(self, answers: Sequence[Answer]) -> Sequence[bool]:
        """See TransportBackend."""
        for answer in answers:
            _held(answer.place)
        return await self._db.write(self._answer, answers, 0, given_back(answers))

    async def status(self, group: Group) -> tuple[int, int, int, int | None]:
        """See TransportBackend."""
        row = await self._db.row(_OWN["find_group"], group)
        if row is None:
            raise no_group(group)
        found = _group(row)
        ((delivered, dead, oldest),) = await self._db.fetch(_OWN["get_status"], {"id": found.id})
        waiting, position = 0, found.position
        while True:
            params = {
                "namespace": group.namespace,
                "position": position,
                "upto": INT64_MAX,
                "limit": _LOOK_AT,
            }
            rows = await self._db.fetch(_OWN["list_messages"], params)
            ours = [StoredMessage(*message) for _, *message in rows if found.wants(message[1])]
            waiting += len(ours)
            times = [message.published_at for message in ours[:1]]
            oldest = min([oldest, *times] if oldest is not None else times, default=None)
            if len(rows) < _LOOK_AT:
                return waiting, delivered, dead, oldest
            position = rows[-1][0]

    async def dead(self, group: Group, *, after: str | None, limit: int) -> list[DeadMessage]:
        """See TransportBackend."""
        row = await self._db.row(_OWN["find_group"], group)
        if row is None:
            raise no_group(group)
        params = {"id": row[0], "after": 0 if after is None else _place(after), "limit": limit}
        return [
            DeadMessage(StoredMessage(*message), f"{commit_id:x}", number, died_at)
            for commit_id, number, died_at, *message in await self._db.fetch(
                _OWN["list_dead"], params
            )
        ]

    async def bury(self, group: Group, place: str, operation: Operation, *, revive: bool) -> bool:
        """See TransportBackend."""
        commit_id = _place(place)

        def work(on: SqliteConnection) -> bool | None:
            found = _find(on, group)
            if found is None:
                return None
            if revive:
                on.execute(_OWN["revive"], (on.moments.begin()[0], found.id, commit_id))
            else:
                on.execute(_OWN["drop_dead"], (found.id, commit_id))
            return on.raw.changes() > 0

        there = await self._once(group, operation, work, (LOG, group.namespace))
        if there is None:
            raise no_group(group)
        return there

    async def purge(self, older_than_us: int, limit: int) -> int:
        """See TransportBackend. It looks without the writer, which then drops what was found."""
        done: list[int] = []
        for namespace, passed, offset in await self._db.fetch(
            _OWN["list_passed"], {"int64_max": INT64_MAX}
        ):
            params = {
                "namespace": namespace,
                "passed": passed,
                "cutoff": machine_us() + offset - older_than_us,
                "limit": limit - len(done),
            }
            rows = await self._db.fetch(_OWN["list_done"], params)
            done += [commit_id for (commit_id,) in rows]
            if len(done) == limit:
                break
        if not done:
            return 0

        def work(on: SqliteConnection) -> int:
            gone = 0
            for commit_id in done:
                on.execute(_OWN["drop_message"], (commit_id,))
                gone += on.raw.changes()
            return gone

        return await self._do(work)

    async def _once(
        self,
        group: Group,
        operation: Operation,
        work: Callable[[SqliteConnection], bool | None],
        topic: Topic | None = None,
    ) -> bool | None:
        """What the work came to, now or when the same operation was done before.

        None: it was refused, of which nothing is known later.
        """

        def once(on: SqliteConnection) -> bool | None:
            now, *_ = on.moments.begin()
            known = on.execute(_OWN["find_operation"], (group.namespace, operation.id, now)).get
            if known is not None:
                return bool(known)
            answer = work(on)
            if answer is None:
                return None
            on.execute(_OWN["drop_operations"], (now,))
            expires_at = now + operation.kept_us
            on.execute(_OWN["note_operation"], (group.namespace, operation.id, expires_at, answer))
            return answer

        (answer,) = await self._db.write(self._works, [once], 0, topic)
        done: bool | None = answer
        return done

    async def _do(self, work: Callable[[SqliteConnection], T]) -> T:
        (result,) = await self._db.write(self._works, [work])
        done: T = result
        return done


class PublishMessages:
    """Adds messages to the log. The answer is the number after which theirs come."""

    def apply(self, on: SqliteConnection, items: Sequence[Publish], *, repeat: bool) -> list[int]:
        """See Batch."""
        del repeat  # the message id is looked up in any case
        now, before, *_ = on.moments.begin()
        commit_id = before
        for namespace, subject, message_id, trace_id, payload in items:
            known = on.execute(_OWN["find_message"], (message_id, namespace, now - DEDUPE_US)).get
            if known is None:
                commit_id += 1
                on.execute(
                    _OWN["add_message"],
                    (commit_id, namespace, subject, message_id, now, trace_id, payload),
                )
        on.moments.gave_out(commit_id)
        return [before for _ in items]


class Works:
    """Whatever is to be done under the writer, one after the other."""

    def apply(
        self,
        on: SqliteConnection,
        items: Sequence[Callable[[SqliteConnection], Any]],
        *,
        repeat: bool,
    ) -> list[Any]:
        """See Batch."""
        del repeat  # SQLite tells what became of a commit
        return [work(on) for work in items]


class AnswerDeliveries:
    """True for each answer that was of the last delivery."""

    def apply(self, on: SqliteConnection, items: Sequence[Answer], *, repeat: bool) -> list[bool]:
        """See Batch."""
        return [self._answer(on, answer, repeat=repeat) for answer in items]

    def _answer(self, on: SqliteConnection, answer: Answer, *, repeat: bool) -> bool:
        group, place, number, due_us, _ = answer
        group_id, commit_id = _held(place)
        found = _find(on, group)
        if found is None or found.id != group_id:  # another one has its name
            return False
        if due_us != ACK:
            on.execute(
                _OWN["set_due"], (on.moments.begin()[0] + due_us, group_id, commit_id, number)
            )
            return on.raw.changes() > 0
        on.execute(_OWN["ack"], (group_id, commit_id, number))
        if on.raw.changes() > 0:
            return True
        # A commit may be told to have failed and be there. Then nothing is left of the delivery.
        return repeat and on.execute(_OWN["find_delivery"], (group_id, commit_id)).get is None


class FoundGroup(NamedTuple):
    """A group's row."""

    id: int
    subjects: tuple[str, ...]
    ack_timeout_us: int
    max_deliveries: int
    position: int

    @property
    def settings(self) -> tuple[tuple[str, ...], int, int]:
        """What it was made with, or told since."""
        return self.subjects, self.ack_timeout_us, self.max_deliveries

    def wants(self, subject: str) -> bool:
        """True if the group asks for messages with that subject."""
        return any(re.match(pattern_regex(pattern), subject) for pattern in self.subjects)


def _group(row: Any) -> FoundGroup:  # noqa: ANN401 - a row
    group_id, subjects, *rest = row
    return FoundGroup(group_id, tuple(msgspec.json.decode(subjects)), *rest)


def _find(on: SqliteConnection, group: Group) -> FoundGroup | None:
    row = on.execute(_OWN["find_group"], group).get
    return None if row is None else _group(row)


def _fetch(
    on: SqliteConnection, group: Group, consumer: str, limit: int, upto: int
) -> list[Delivered] | None:
    """Messages that are due again, then new ones up to there; None: there is no such group."""
    found = _find(on, group)
    if found is None:
        return None
    now, *_ = on.moments.begin()
    due_at = now + found.ack_timeout_us
    delivered: list[Delivered] = []
    rows: list[Any] = on.execute(_OWN["list_due"], (found.id, now, limit)).fetchall()
    for commit_id, number, *message in rows:
        if number % LIFE >= found.max_deliveries:
            on.execute(_OWN["give_up"], (now, found.id, commit_id))
            continue
        on.execute(_OWN["deliver_again"], (due_at, consumer, found.id, commit_id))
        place = held_place(found.id, commit_id)
        delivered.append(Delivered(StoredMessage(*message), place, number + 1))
    position = found.position
    ahead = (group.namespace, position, upto, _LOOK_AT)
    news: list[Any] = on.execute(_OWN["list_messages"], ahead).fetchall()
    for commit_id, *message in news:
        if len(delivered) == limit:
            break
        position = commit_id
        if found.wants(message[1]):
            on.execute(_OWN["deliver"], (found.id, commit_id, due_at, consumer))
            place = held_place(found.id, commit_id)
            delivered.append(Delivered(StoredMessage(*message), place, 1))
    if position > found.position:
        on.execute(_OWN["move_group"], (position, found.id))
    return delivered


def _held(place: str) -> tuple[int, int]:
    """The id of the group that a delivery is of, and the number of its message."""
    group_id, commit_id = (min(part, INT64_MAX) for part in read_held(place, 2))
    return group_id, commit_id


def _place(place: str) -> int:
    try:
        return min(int(place, 16), INT64_MAX)
    except (TypeError, ValueError):
        raise InvalidArgument(f"place: wanted that of a dead letter, found {place!r}") from None

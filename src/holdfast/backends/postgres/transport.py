"""The transport on PostgreSQL: a log of messages, and for each group what is not done yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.backends.postgres.arrays import bigints, texts
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.queries import Dialect, load
from holdfast.codec import INT64_MAX
from holdfast.errors import InvalidArgument
from holdfast.facets.transport import (
    ACK,
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
    pattern_regex,
    read_held,
)

_LOOK_AT = 500  # messages per call, if none of them is for the group
_HELD_BACK_US = 20_000  # until to look again, while an older transaction is open


class PostgresTransport:
    """See TransportBackend."""

    def __init__(self, db: PostgresScope, dialect: Dialect) -> None:
        self._db = db
        self._queries = load(__package__, "transport.sql", dialect)
        self._publish = PublishMessages(self._queries["publish_messages"])
        self._fetch = FetchMessages(self._queries["fetch_messages"])
        self._answer = AnswerDeliveries(
            self._queries["answer_deliveries"], self._queries["are_done"]
        )
        self._change = RunStatement()

    async def publish(self, messages: Sequence[Publish], size: int) -> None:
        """See TransportBackend."""
        await self._db.write(self._publish, messages, size, (LOG, messages[0].namespace))

    async def create_group(self, order: GroupOrder) -> bool:
        """See TransportBackend."""
        group, subjects, from_start, ack_timeout_us, max_deliveries, operation = order
        params = {
            **group._asdict(),
            "subjects": texts(map(pattern_regex, subjects)),
            "from_start": from_start,
            "ack_timeout_us": ack_timeout_us,
            "max_deliveries": max_deliveries,
            **_named(operation),
            "named": operation.named,
        }
        return bool(await self._write("create_group", params))

    async def delete_group(self, group: Group, operation: Operation) -> bool:
        """See TransportBackend."""
        params = {**group._asdict(), **_named(operation)}
        return bool(await self._write("delete_group", params))

    async def list_groups(self, namespace: str) -> list[str]:
        """See TransportBackend."""
        rows = await self._db.fetch(self._queries["list_groups"], {"namespace": namespace})
        return [name for (name,) in rows]

    async def fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        """See TransportBackend."""
        while True:
            # A look first: it locks nothing, and most of them find nothing.
            rows = await self._db.fetch(self._queries["has_news"], group._asdict())
            if not rows:
                raise no_group(group)
            news, due_in, held_back = rows[0]
            if not news and (due_in is None or due_in > 0):
                if held_back:
                    due_in = min(due_in or _HELD_BACK_US, _HELD_BACK_US)
                return Fetched([], due_in)
            (found,) = await self._db.write(self._fetch, [(group, consumer, limit)])
            if found:
                return Fetched(found, None)

    async def answer(self, answers: Sequence[Answer]) -> Sequence[bool]:
        """See TransportBackend."""
        for answer in answers:
            _held(answer.place)
        return await self._db.write(self._answer, answers, 0, given_back(answers))

    async def status(self, group: Group) -> tuple[int, int, int, int | None]:
        """See TransportBackend."""
        rows = await self._db.fetch(self._queries["get_status"], group._asdict())
        if not rows:
            raise no_group(group)
        waiting, delivered, dead, oldest = rows[0]
        return waiting, delivered, dead, oldest

    async def dead(self, group: Group, *, after: str | None, limit: int) -> list[DeadMessage]:
        """See TransportBackend."""
        xid, commit_id = (0, 0) if after is None else _place(after)
        params = {**group._asdict(), "xid": xid, "commit_id": commit_id, "limit": limit}
        rows = await self._db.fetch(self._queries["list_dead"], params)
        if not rows:
            raise no_group(group)
        return [
            DeadMessage(StoredMessage(*message), f"{int(xid):x}.{commit_id:x}", number, died_at)
            for xid, commit_id, number, died_at, *message in rows
            if xid is not None
        ]

    async def bury(self, group: Group, place: str, operation: Operation, *, revive: bool) -> bool:
        """See TransportBackend."""
        xid, commit_id = _place(place)
        params = {
            **group._asdict(),
            "xid": xid,
            "commit_id": commit_id,
            "revive": revive,
            **_named(operation),
        }
        was_there = await self._write("bury_dead", params, group.namespace)
        if was_there is None:
            raise no_group(group)
        return bool(was_there)

    async def purge(self, older_than_us: int, limit: int) -> int:
        """See TransportBackend."""
        params = {"older_than_us": older_than_us, "limit": limit}
        gone: int = await self._write("purge_messages", params)
        return gone

    async def _write(
        self, name: str, params: Mapping[str, object], namespace: str | None = None
    ) -> Any:  # noqa: ANN401 - the one value that the statement gives
        topic = None if namespace is None else (LOG, namespace)
        (value,) = await self._db.write(self._change, [(self._queries[name], params)], 0, topic)
        return value


class PublishMessages:
    """Adds messages to the log."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[Publish], *, repeat: bool
    ) -> list[None]:
        """See Batch."""
        del repeat  # the message id is looked up in any case
        params = {
            "namespaces": texts(message.namespace for message in items),
            "subjects": texts(message.subject for message in items),
            "message_ids": texts(message.message_id for message in items),
            "trace_ids": texts(message.trace_id for message in items),
            "payloads": texts(message.payload for message in items),
            "window_us": DEDUPE_US,
        }
        await on.fetch(self._query, params)
        return [None for _ in items]


class FetchMessages:
    """Messages for consumers. After a lost answer they come again when their time is up."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[tuple[Group, str, int]], *, repeat: bool
    ) -> list[list[Delivered]]:
        """See Batch."""
        del repeat  # at least once
        found = []
        for group, consumer, limit in items:
            params = {**group._asdict(), "consumer": consumer, "limit": limit, "look": _LOOK_AT}
            found.append([_delivered(row) for row in await on.fetch(self._query, params)])
        return found


class AnswerDeliveries:
    """What consumers say about their deliveries."""

    def __init__(self, query: str, are_done: str) -> None:
        self._query = query
        self._are_done = are_done

    async def apply(self, on: PgConnection, items: Sequence[Answer], *, repeat: bool) -> list[bool]:
        """See Batch."""
        places = [_held(answer.place) for answer in items]
        messages = {
            "namespaces": texts(answer.group.namespace for answer in items),
            "groups": bigints(group_id for group_id, _, _ in places),
            "xids": texts(str(xid) for _, xid, _ in places),
            "commits": bigints(commit_id for _, _, commit_id in places),
        }
        params = {
            **messages,
            "numbers": bigints(answer.number for answer in items),
            "due_us": bigints(answer.due_us for answer in items),
        }
        took = [one for (one,) in await on.fetch(self._query, params)]
        if not repeat or all(took):
            return took
        # After a lost answer an ack finds nothing, most likely because it was done.
        done = [one for (one,) in await on.fetch(self._are_done, messages)]
        return [
            one or (answer.due_us == ACK and gone)
            for answer, one, gone in zip(items, took, done, strict=True)
        ]


class RunStatement:
    """Statements with one value each that change something.

    To run one again is no harm: it does the same, or knows what it did by its operation id.
    """

    async def apply(
        self, on: PgConnection, items: Sequence[tuple[str, Mapping[str, object]]], *, repeat: bool
    ) -> list[Any]:
        """See Batch."""
        del repeat
        values = []
        for query, params in items:
            ((value,),) = await on.fetch(query, params)
            values.append(value)
        return values


def _named(operation: Operation) -> dict[str, object]:
    return {"op_id": UUID(bytes=operation.id), "kept_us": operation.kept_us}


def _delivered(row: Row) -> Delivered:
    group_id, xid, commit_id, number, *message = row
    return Delivered(StoredMessage(*message), held_place(group_id, int(xid), commit_id), number)


def _held(place: str) -> tuple[int, int, int]:
    """The id of the group that a delivery is of, and where its message is."""
    group_id, xid, commit_id = (min(part, INT64_MAX) for part in read_held(place, 3))
    return group_id, xid, commit_id


def _place(place: str) -> tuple[int, int]:
    try:
        xid, commit_id = (min(int(part, 16), INT64_MAX) for part in place.split("."))
    except (AttributeError, ValueError):
        raise InvalidArgument(f"place: wanted that of a dead letter, found {place!r}") from None
    return xid, commit_id

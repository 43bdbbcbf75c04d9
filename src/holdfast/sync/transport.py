# GENERATED from holdfast/aio/transport.py by tools/generate_sync.py: change that file instead.
"""Transport: messages by subject, to groups of consumers, at least once.

    store.transport.publish("tasks.mail.queue", {"task": 7})

    with store.transport.consumer("mailers", "tasks.mail.queue") as consumer:
        for delivery in consumer:
            send(delivery.message.payload)
            delivery.ack()

A message that is not acknowledged within the group's `ack_timeout` is delivered again, to
whichever consumer of the group asks first; after `max_deliveries` it becomes a dead letter.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from uuid import UUID

import uuid_utils

from holdfast import codec
from holdfast.clock import MICROSECONDS, Duration, to_datetime
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument, InvalidState
from holdfast.facets.backend import Capability, TransportFacets, require
from holdfast.facets.names import check_name
from holdfast.facets.transport import (
    ACK,
    KEEP_SECS,
    LIFE,
    Answer,
    DeadLetter,
    Delivered,
    Group,
    GroupOrder,
    GroupStatus,
    Message,
    Publish,
    StoredMessage,
    check_deliveries,
    check_group_name,
    check_limit,
    check_message_id,
    check_patterns,
    check_place,
    check_span,
    check_subject,
    operation,
)
from holdfast.runtime.blocking import run

_log = logging.getLogger("holdfast.transport")
_PURGE_PAGE = 500  # per transaction, so that others get their turn
_MOST_AT_A_TIME = 1000
_LONGEST_WAIT = 3600.0  # seconds: a listener returns sooner

Names = list[str]
Letters = list[DeadLetter]


class Transport:
    """The messages of one namespace."""

    def __init__(self, backend: TransportFacets, namespace: str, config: StoreConfig) -> None:
        self._backend = backend
        self._transport = backend.transport
        self._namespace = namespace
        self._config = config

    def publish(
        self,
        subject: str,
        payload: object,
        *,
        message_id: str | UUID | None = None,
        trace_id: str | None = None,
    ) -> str:
        """The message's id, once the message is durable. Any JSON value and bytes can be sent.

        The same `message_id` again within two minutes changes nothing.
        """
        message = self.prepare(subject, payload, message_id=message_id, trace_id=trace_id)
        return self.send(message)

    def prepare(
        self,
        subject: str,
        payload: object,
        *,
        message_id: str | UUID | None = None,
        trace_id: str | None = None,
    ) -> Publish:
        """The message that `publish` would send, for `send`: whatever is wrong with it is told."""
        require(self._backend, Capability.TRANSPORT)
        check_subject(subject)
        chosen = str(uuid_utils.uuid7()) if message_id is None else check_message_id(message_id)
        if trace_id is not None:
            check_name(trace_id, what="trace_id")
        text = self._encode(subject, payload)
        return Publish(self._namespace, subject, chosen, trace_id, text)

    def send(self, message: Publish) -> str:
        """The message's id, once the message is durable; the same message again changes nothing."""
        run(self._transport.publish([message], len(message.payload)))
        return message.message_id

    def create_group(
        self,
        group: str,
        subjects: str | Iterable[str],
        *,
        from_start: bool = False,
        ack_timeout: Duration = 30,
        max_deliveries: int = 5,
        op_id: UUID | str | None = None,
    ) -> bool:
        """True if the group is new: it gets all messages from now on, or all that are kept.

        In `subjects` `*` stands for one word and `>`, at the end, for all that follow. A group
        that is there already keeps its place, and gets the new settings. The same `op_id` again
        within a day changes nothing, and has the first answer.
        """
        place = self._group(group)
        order = GroupOrder(
            place,
            check_patterns(subjects),
            from_start,
            check_span(ack_timeout, "ack_timeout"),
            check_deliveries(max_deliveries),
            operation(op_id, "create", place),
        )
        return run(self._transport.create_group(order))

    def consumer(
        self,
        group: str,
        subjects: str | Iterable[str] | None = None,
        *,
        name: str | None = None,
        prefetch: int = 1,
        from_start: bool = False,
        ack_timeout: Duration = 30,
        max_deliveries: int = 5,
    ) -> Consumer:
        """A consumer of the group, for `with`; with `subjects` the group is made on entry.

        It takes up to `prefetch` messages at a time: their time runs from then on.
        """
        if not isinstance(prefetch, int) or not 0 < prefetch <= _MOST_AT_A_TIME:
            raise InvalidArgument(f"prefetch: wanted 1 to {_MOST_AT_A_TIME}, found {prefetch!r}")
        place = self._group(group)
        order = None
        if subjects is not None:
            order = GroupOrder(
                place,
                check_patterns(subjects),
                from_start,
                check_span(ack_timeout, "ack_timeout"),
                check_deliveries(max_deliveries),
                operation(None, "create", place),
            )
        chosen = str(uuid_utils.uuid7()) if name is None else check_group_name(name)
        return Consumer(self._backend, place, order, chosen, prefetch)

    def fetch(self, group: str, *, consumer: str = "") -> Delivery | None:
        """A message for the group, if there is one now: for work that acknowledges it itself.

        In a transaction the answer is part of it: work and `ack` commit together.
        """
        place = self._group(group)
        if consumer != "":
            check_group_name(consumer)
        found = run(self._transport.fetch(place, consumer, 1))
        return Delivery(self._backend, place, found.messages[0]) if found.messages else None

    def delete_group(self, group: str, *, op_id: UUID | str | None = None) -> bool:
        """True if there was such a group; what it has not done is not delivered any more.

        The same `op_id` again within a day changes nothing, and has the first answer.
        """
        place = self._group(group)
        return run(self._transport.delete_group(place, operation(op_id, "delete", place)))

    def list_groups(self) -> Names:
        """The names of the groups, in byte order."""
        require(self._backend, Capability.TRANSPORT)
        return run(self._transport.list_groups(self._namespace))

    def status(self, group: str) -> GroupStatus:
        """How far the group is."""
        waiting, delivered, dead, oldest = run(self._transport.status(self._group(group)))
        oldest_at = None if oldest is None else to_datetime(oldest)
        return GroupStatus(waiting, delivered, dead, oldest_at)

    def dead_letters(self, group: str, *, after: str | None = None, limit: int = 100) -> Letters:
        """The messages that the group gave up on, oldest first.

        The `place` of the last one is the next page's `after`.
        """
        check_limit(limit)
        if after is not None:
            check_place(after)
        found = run(self._transport.dead(self._group(group), after=after, limit=limit))
        return [
            DeadLetter(
                _message(one.message),
                one.place,
                one.deliveries % LIFE,
                to_datetime(one.died_at),
            )
            for one in found
        ]

    def revive(self, group: str, place: str, *, op_id: UUID | str | None = None) -> bool:
        """True if there was that dead letter: it is delivered again, as for the first time.

        The same `op_id` again within a day changes nothing, and has the first answer.
        """
        return self._bury(group, place, op_id, revive=True)

    def drop_dead(self, group: str, place: str, *, op_id: UUID | str | None = None) -> bool:
        """True if there was that dead letter: it is gone now.

        The same `op_id` again within a day changes nothing, and has the first answer.
        """
        return self._bury(group, place, op_id, revive=False)

    def purge(self, older_than: Duration = KEEP_SECS, *, limit: int | None = None) -> int:
        """How many messages of the store, all namespaces, were removed: old ones that are done.

        They go from the oldest on, at most `limit` of them. The sweeper does this.
        """
        require(self._backend, Capability.TRANSPORT)
        age = check_span(older_than, "older_than", least_us=0)
        if limit is not None:
            check_limit(limit)
        total = 0
        while limit is None or total < limit:
            page = _PURGE_PAGE if limit is None else min(_PURGE_PAGE, limit - total)
            gone = run(self._transport.purge(age, page))
            total += gone
            if gone < page:
                break
            run(self._backend.pause())
        return total

    def _bury(self, group: str, place: str, op_id: UUID | str | None, *, revive: bool) -> bool:
        of, letter = self._group(group), check_place(place)
        named = operation(op_id, "revive" if revive else "drop", of, letter)
        return run(self._transport.bury(of, letter, named, revive=revive))

    def _group(self, name: str) -> Group:
        require(self._backend, Capability.TRANSPORT)
        return Group(self._namespace, check_group_name(name))

    def _encode(self, subject: str, payload: object) -> str:
        text = codec.encode(payload)
        if len(text) > self._config.payload_max_bytes:
            raise InvalidArgument(
                f"message on {subject!r}: payload of {len(text)} bytes, at most "
                f"{self._config.payload_max_bytes} are allowed; keep large data elsewhere and send "
                "a reference to it (claim check)",
                size=len(text),
                limit=self._config.payload_max_bytes,
            )
        if len(text) > self._config.payload_warn_bytes:
            _log.warning("message on %r: payload of %d bytes", subject, len(text))
        return text.decode()


class Delivery:
    """A message in this consumer's hands, to be answered within the group's `ack_timeout`.

    An answer is True if it took effect, and False if the message was delivered again since.
    """

    def __init__(self, backend: TransportFacets, group: Group, delivered: Delivered) -> None:
        self._transport = backend.transport
        self._group = group
        self._delivered = delivered
        self.message = _message(delivered.message)
        self.number = delivered.number % LIFE
        """1 for the first time that the group got it."""

    def ack(self) -> bool:
        """Done: it is not delivered again."""
        return self._answer(ACK, again=False)

    def nak(self, delay: Duration = 0) -> bool:
        """Not done: deliver it again, after so many seconds."""
        return self._answer(check_span(delay, "delay", least_us=0), again=True)

    def extend(self, seconds: Duration) -> bool:
        """Still at it: the answer comes within so many seconds from now."""
        return self._answer(check_span(seconds, "seconds"), again=False)

    def _answer(self, due_us: int, *, again: bool) -> bool:
        (took_effect,) = run(self._transport.answer([self.answer(due_us, again=again)]))
        return took_effect

    def answer(self, due_us: int, *, again: bool) -> Answer:
        """What the backend is told; for the consumer, which answers several at once."""
        _, place, number = self._delivered
        return Answer(self._group, place, number, due_us, again)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message.subject} {self.message.message_id}>"


Deliveries = list[Delivery]


class Consumer:
    """Gives the messages of a group one by one; made by `transport.consumer`. For one reader."""

    def __init__(
        self,
        backend: TransportFacets,
        group: Group,
        order: GroupOrder | None,
        name: str,
        prefetch: int,
    ) -> None:
        self._backend = backend
        self._group = group
        self._order = order
        self._prefetch = prefetch
        self._listener = backend.follow_transport(group.namespace)
        self._ready: deque[Delivery] = deque()
        self._busy = False
        self.name = name
        self.closed = False

    def next(
        self,
        timeout: Duration | None = None,
    ) -> Delivery | None:
        """The next message; None when none came within so many seconds, or it was closed."""
        limit = None if timeout is None else check_span(timeout, "timeout", least_us=0)
        return self._ready.popleft() if self._wait(limit) else None

    def next_batch(
        self,
        timeout: Duration | None = None,
    ) -> Deliveries:
        """The next messages, as many as are there and at most `prefetch`; none as for `next`."""
        limit = None if timeout is None else check_span(timeout, "timeout", least_us=0)
        if not self._wait(limit):
            return []
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def ack_batch(self, deliveries: Iterable[Delivery]) -> int:
        """How many of the messages are done now; the others were delivered again since."""
        return self._answer(deliveries, ACK, again=False)

    def nak_batch(self, deliveries: Iterable[Delivery], delay: Duration = 0) -> int:
        """How many of the messages are delivered again, after so many seconds."""
        due_us = check_span(delay, "delay", least_us=0)
        return self._answer(deliveries, due_us, again=True)

    def _answer(self, deliveries: Iterable[Delivery], due_us: int, *, again: bool) -> int:
        answers = [delivery.answer(due_us, again=again) for delivery in deliveries]
        return sum(run(self._backend.transport.answer(answers))) if answers else 0

    def _wait(self, limit_us: int | None) -> bool:
        """True once there is a message at hand; False if none came in time."""
        if self._busy:
            raise InvalidState("somebody else is waiting for this consumer's next message")
        self._busy = True
        try:
            return self._fill(limit_us)
        finally:
            self._busy = False

    def _fill(self, limit_us: int | None) -> bool:
        deadline = math.inf if limit_us is None else time.monotonic() + limit_us / MICROSECONDS
        if self._order is not None:
            run(self._backend.transport.create_group(self._order))
            self._order = None
        while not self.closed:
            if self._ready:
                return True
            found = run(self._backend.transport.fetch(self._group, self.name, self._prefetch))
            self._ready.extend(Delivery(self._backend, self._group, one) for one in found.messages)
            left = deadline - time.monotonic()
            if self._ready:
                continue
            if left <= 0:
                return False
            look = math.inf if found.next_look_us is None else found.next_look_us / MICROSECONDS
            run(self._listener.wait(max(0.0, min(left, look, _LONGEST_WAIT))))
        return False

    def close(self) -> None:
        """End it, also for who waits for the next message, on whatever thread.

        What it has fetched and not handed out is delivered again when its time is up.
        """
        self.closed = True
        self._listener.wake()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        delivery = self.next()
        if delivery is None:
            raise StopIteration
        return delivery

    def __enter__(self) -> Self:
        if self._order is not None:
            run(self._backend.transport.create_group(self._order))
            self._order = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _message(stored: StoredMessage) -> Message:
    message_id, subject, published_at, trace_id, payload = stored
    return Message(message_id, subject, to_datetime(published_at), trace_id, codec.decode(payload))

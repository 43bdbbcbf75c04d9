"""Transport: messages by subject, to groups of consumers, at least once.

A message is published under a subject, tokens between dots: `tasks.mail.queue`. A group is a
reader of its own that gets every message whose subject it asks for; within a group each message
goes to one consumer at a time:

    published ──> delivered ──ack──> done
                    │    ^
                    │    └── nak, once its delay is over; or no answer within `ack_timeout`
                    └── after `max_deliveries` of them ──> dead letter

So a consumer that dies loses nothing, and one that is slow may see a message that somebody else
has by then: every delivery has a number, and an answer to any but the last one changes nothing.

The message id makes publishing idempotent for a while: the same id again within DEDUPE_US is the
same message. After that it is published once more, which is what a sweeper wants of a message
that led to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid5

import msgspec

from holdfast.clock import MICROSECONDS, Duration, duration_us
from holdfast.errors import InvalidArgument, NotFound
from holdfast.facets.names import check_name, operation_id

LOG = "transport"  # the name of the log of messages

DEDUPE_US = 120 * 1_000_000
_NAMED_SECS = 24 * 3600
_UNNAMED_SECS = 600  # longer than the store repeats a call whose answer was lost
KEEP_SECS = 7 * 24 * 3600
"""For how long messages that are done are kept, unless told otherwise."""
_MOST_DELIVERIES = 1_000_000
LIFE = 1 << 20
"""Deliveries are counted from 1, and those of a message that was revived from LIFE + 1: who held it
before it died answers under another number. People are told the number within its life."""
_LONGEST_US = 365 * 24 * 3600 * 1_000_000
_PLACE = re.compile(r"[0-9a-f]+(\.[0-9a-f]+)?")
_TOKEN = re.compile(r"[^\s\x00-\x1f\x7f.:*>]+")


class Message(msgspec.Struct, frozen=True):
    """A message in its envelope."""

    message_id: str
    subject: str
    timestamp: datetime
    trace_id: str | None
    payload: Any


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a group gave up on."""

    message: Message
    place: str
    deliveries: int
    died_at: datetime


class GroupStatus(msgspec.Struct, frozen=True):
    """How far a group is: messages that wait, that are with consumers, and that are dead."""

    waiting: int
    delivered: int
    dead: int
    oldest_at: datetime | None  # when the oldest message that is not done was published


class Publish(NamedTuple):
    """A message to publish."""

    namespace: str
    subject: str
    message_id: str
    trace_id: str | None
    payload: str  # as codec.py spells it


class Group(NamedTuple):
    """A group as it was made."""

    namespace: str
    name: str


class Operation(NamedTuple):
    """A call that makes or deletes a group, revives or drops a dead letter.

    What it came to is noted with what it changes: the same operation again has the first answer.
    """

    id: bytes
    named: bool  # by the caller, who may come again; else only the store itself repeats it

    @property
    def kept_secs(self) -> int:
        """For how long it is known."""
        return _NAMED_SECS if self.named else _UNNAMED_SECS

    @property
    def kept_us(self) -> int:
        """The same in microseconds."""
        return self.kept_secs * MICROSECONDS


class GroupOrder(NamedTuple):
    """A group to make."""

    group: Group
    subjects: tuple[str, ...]
    from_start: bool
    ack_timeout_us: int
    max_deliveries: int
    operation: Operation


class StoredMessage(NamedTuple):
    """A message as a backend keeps it."""

    message_id: str
    subject: str
    published_at: int
    trace_id: str | None
    payload: str


class Delivered(NamedTuple):
    """A message in a consumer's hands: where the group keeps it, and which delivery this is.

    The place tells the group from others that had its name before or get it later.
    """

    message: StoredMessage
    place: str
    number: int


class Fetched(NamedTuple):
    """What a fetch found, and in how many microseconds to look again at the latest."""

    messages: list[Delivered]
    next_look_us: int | None


class Answer(NamedTuple):
    """What a consumer says about a delivery.

    `due_us`: ACK, or when to deliver it again (nak) or to expect the answer (extend), from now.
    """

    group: Group
    place: str
    number: int
    due_us: int
    again: bool  # a nak; else it stays with the consumer


ACK = -1


class DeadMessage(NamedTuple):
    """A message that a group gave up on."""

    message: StoredMessage
    place: str
    deliveries: int
    died_at: int


class TransportBackend(Protocol):
    """What a backend must do for the transport. `no_group` is raised for a missing group."""

    async def publish(self, messages: Sequence[Publish], size: int) -> None:
        """Add the messages to the log, together; those whose id is known are left out."""

    async def create_group(self, order: GroupOrder) -> bool:
        """True if it is new; one that is there keeps its place and gets the new settings.

        Consumers do this whenever they begin: who names no operation and changes nothing leaves
        no note.
        """

    async def delete_group(self, group: Group, operation: Operation) -> bool:
        """True if it was there."""

    async def list_groups(self, namespace: str) -> list[str]:
        """The names, in byte order."""

    async def fetch(self, group: Group, consumer: str, limit: int) -> Fetched:
        """Up to `limit` messages for the consumer, oldest first; those given back come first."""

    async def answer(self, answers: Sequence[Answer]) -> Sequence[bool]:
        """True for each that was of the message's last delivery and took effect."""

    async def status(self, group: Group) -> tuple[int, int, int, int | None]:
        """Waiting, delivered, dead, and when the oldest of the first two was published."""

    async def dead(self, group: Group, *, after: str | None, limit: int) -> list[DeadMessage]:
        """The dead letters above the place, in the order of their messages."""

    async def bury(self, group: Group, place: str, operation: Operation, *, revive: bool) -> bool:
        """True if there was that dead letter: it is gone now, or to be delivered again."""

    async def purge(self, older_than_us: int, limit: int) -> int:
        """Remove up to `limit` messages that are so old and that no group still needs. How many.

        In a namespace it may end at the first message that is younger, or that some group has
        not come to: its cost must not grow with what is behind that.
        """


def given_back(answers: Sequence[Answer]) -> tuple[str, str] | None:
    """Who is to hear of the answers: other consumers, if there is something for them."""
    again = [answer.group.namespace for answer in answers if answer.again]
    return (LOG, again[0]) if again else None


def no_group(group: Group) -> NotFound:
    """The error for a group that does not exist."""
    return NotFound(f"group {group.name!r}: not found", group=group.name)


def check_subject(subject: str) -> str:
    """The subject itself, when a message can have it."""
    check_name(subject, what="subject")
    if not all(map(_TOKEN.fullmatch, subject.split("."))):
        raise InvalidArgument(
            f"subject {subject!r}: wanted words between single dots, without blanks, ':', '*', '>'"
        )
    return subject


def check_patterns(subjects: str | Iterable[str]) -> tuple[str, ...]:
    """The subjects that a group asks for: `*` stands for one word, `>` at the end for the rest."""
    if not isinstance(subjects, Iterable) or isinstance(subjects, bytes):
        raise InvalidArgument(f"subjects: wanted text, found {type(subjects).__name__}")
    patterns = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    if not patterns:
        raise InvalidArgument("subjects: wanted at least one")
    for pattern in patterns:
        check_name(pattern, what="subject")
        *words, last = pattern.split(".")
        if not all(word == "*" or _TOKEN.fullmatch(word) for word in words) or not (
            last in {"*", ">"} or _TOKEN.fullmatch(last)
        ):
            raise InvalidArgument(
                f"subject {pattern!r}: wanted words, '*' for any one word, or '>' at the end"
            )
    return patterns


def pattern_regex(pattern: str) -> str:
    """A regular expression for the subjects that match, which every engine understands."""
    words = pattern.split(".")
    tail = words.pop() if words[-1] == ">" else None
    parts = ["[^.]+" if word == "*" else re.sub(r"(\W)", r"\\\1", word) for word in words]
    if tail is not None:
        parts.append(".+")
    return "^" + r"\.".join(parts) + "$"


def check_group_name(name: str) -> str:
    """The group's or consumer's name itself, when it is a legal one."""
    check_name(name, what="group")
    if ":" in name:
        raise InvalidArgument(f"group {name!r}: holds a ':'")
    return name


def check_message_id(message_id: str | UUID) -> str:
    """The message id as text, when it is a legal one."""
    text = str(message_id) if isinstance(message_id, UUID) else message_id
    return check_name(text, what="message_id")


def next_life(number: int) -> int:
    """Where the count goes on for a dead letter that is revived."""
    return (number // LIFE + 1) * LIFE


def held_place(*parts: int) -> str:
    """Where a delivery is, by numbers of the engine's: its group first, then its message."""
    return ".".join(f"{part:x}" for part in parts)


def read_held(place: str, parts: int) -> list[int]:
    """The numbers that are spelled so, if they are as many as the engine's own."""
    try:
        found = [int(part, 16) for part in place.split(".")]
    except ValueError:
        found = []
    if len(found) != parts:
        raise InvalidArgument(f"delivery: wanted one of this store, found one at {place!r}")
    return found


def check_place(place: str) -> str:
    """A dead letter's place, in the one way to spell it, when it can be one."""
    if not isinstance(place, str) or not _PLACE.fullmatch(place):
        raise InvalidArgument(f"place: wanted that of a dead letter, found {place!r}")
    return held_place(*(int(part, 16) for part in place.split(".")))


def operation(op_id: UUID | str | None, call: str, group: Group, place: str = "") -> Operation:
    """The operation that the caller names so: this call, on this group or dead letter.

    One `op_id` may stand for several of them. None is taken for a repeat of another.
    """
    if op_id is None:
        return Operation(operation_id(None), named=False)
    what = f"{call}\0{group.name}\0{place}"
    return Operation(uuid5(UUID(bytes=operation_id(op_id)), what).bytes, named=True)


def check_deliveries(number: int) -> int:
    """How often a message may be delivered, when that makes sense."""
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 0 < number <= _MOST_DELIVERIES
    ):
        raise InvalidArgument(
            f"max_deliveries: wanted a whole number from 1 to {_MOST_DELIVERIES}, found {number!r}"
        )
    return number


def check_limit(limit: int) -> int:
    """How many things at most, when that makes sense."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgument(f"limit: wanted a whole number above zero, found {limit!r}")
    return limit


def check_span(duration: Duration, name: str, *, least_us: int = 1) -> int:
    """A duration in microseconds that is neither below the least nor longer than a year."""
    us = duration_us(duration, name=name)
    if not least_us <= us <= _LONGEST_US:
        wanted = "above 0" if least_us else "0 or more"
        raise InvalidArgument(f"{name}: wanted {wanted} and at most a year, found {duration!r}")
    return us

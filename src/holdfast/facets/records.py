"""Records: hash fields under a key, with a time to live.

One write covers every operation. It carries what it expects of fields, what it sets, and what
becomes of the time to live:

    call                  expects          sets               other fields   time to live
    put                   -                the fields         go             the one given, or none
    delete                a record         -                  go
    set_field(s)          -                the fields         stay           stays
    compare_and_swap      one field        that field         stay           stays
    compare_and_set       some fields      the fields         stay           stays
    claim                 state=pending    state, worker …    stay           stays
    expire                a record         -                  stay           the one given, or none

A record without fields is absent, and so is one whose time is up, in every operation at once:
what was left of it counts for nothing. A write to an absent record begins with no fields and
no time to live. Setting a field to None removes it. What is expected as None must be absent.

An applied write leaves its operation id with the record, a delete too (for OP_MEMORY_US): the
same id again, if nothing else was written to the record since, changes nothing and was applied.
One that leaves an absent record absent is applied too, but leaves nothing, also not its id.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.clock import Duration, duration_us
from holdfast.codec import byte_size
from holdfast.errors import InvalidArgument, Unavailable
from holdfast.facets.feed import Page, Position
from holdfast.facets.names import check_name, check_prefix

LOG = "records"  # the name of the log of changes

KEEP_TTL = -1
NO_TTL = 0
OP_MEMORY_US = 24 * 3600 * 1_000_000
"""For how long a deleted record's last operation is known, and a change is in the log."""

_MOST_TTL_US = 2**53  # 285 years: what every engine can count to
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # the seed has unsigned fields
_SURE_DIGITS = 18  # that many are surely between the two, with or without a sign
_STAMP_BYTES = 20  # of a Stamp or a removal, towards the limit of a record's size
# What nearly all names are like, so that one match tells. A key has no colon.
is_plain_key = re.compile(r"[\x20-\x39\x3b-\x7e]{1,200}").fullmatch
_plain_field = re.compile(r"[\x20-\x7e]{1,200}").fullmatch
# Clocks are read at different moments of a call, and may be set meanwhile.
_SLACK_US = 1_000_000


class Stamp(msgspec.Struct, frozen=True):
    """As a field's value: the store's clock when the write is done, in Unix milliseconds.

    With `after` that many seconds later: `{"timeout_at": Stamp(after=30)}`.
    """

    after: Duration = 0

    def in_ms(self, now_us: int) -> bytes:
        """The value, when it is that late by the store's clock."""
        return b"%d" % ((now_us + self.after_us) // 1000)

    @property
    def after_us(self) -> int:
        """The distance in microseconds."""
        return duration_us(self.after, name="after")


class Record(msgspec.Struct, frozen=True):
    """A record as it was read; `ttl` is how many seconds it still had, None if for ever."""

    fields: dict[str, bytes]
    ttl: float | None = None


class RecordChange(msgspec.Struct, frozen=True):
    """A change that a watch tells of; `record` is None when there is none any more.

    A record that changed several times since it was last told of is told as it is now.
    `replay` is True for what came before the marker. `cursor` is where to go on after this
    change, None as long as that is only possible from the start.
    """

    key: str
    record: Record | None
    replay: bool
    cursor: str | None


FieldValue = str | int | bytes
"""What a field may be given as: text becomes UTF-8, a number its decimal digits."""

Fields = dict[str, bytes]
RecordKey = tuple[str, str]
"""Where a record is: namespace and key."""


class RecordWrite(msgspec.Struct, frozen=True, gc=False):
    """One write, as the table above has it."""

    key: RecordKey
    expect: Mapping[str, bytes | None]
    set: Mapping[str, bytes | Stamp | None]
    replace: bool  # other fields go
    must_exist: bool
    ttl_us: int  # KEEP_TTL, NO_TTL, or how long from now
    op_id: bytes
    begun: float  # time.monotonic() when the caller asked
    blind: bool = False  # surely a put of some fields, all known, whatever was there before


class StoredRecord(NamedTuple):
    """A record that is there: its fields, and microseconds until its time is up, if ever."""

    fields: Fields
    ttl_us: int | None


class ListedRecord(NamedTuple):
    """A record of a page."""

    key: str
    stored: StoredRecord


class WatchedRecord(NamedTuple):
    """A record that is there, for a watch; `recent` if it changed above the position asked about.

    `number` rises with every change of the record.
    """

    key: str
    stored: StoredRecord
    number: int
    recent: bool


class ChangedRecord(NamedTuple):
    """An entry of the log: the record as it is now, None when it is absent now.

    Only the newest entry of each record counts; older ones need not come.
    """

    position: Position
    key: str
    number: int
    stored: StoredRecord | None


class RecordIndex(NamedTuple):
    """A secondary index over the records whose keys start with the prefix."""

    prefix: str
    fields: tuple[str, ...]


class RecordsBackend(Protocol):
    """What a backend must do for records. Time is the store's clock throughout."""

    def write(self, writes: Sequence[RecordWrite], size: int) -> Awaitable[Sequence[bool | None]]:
        """True for each write that was applied, in order; False changed nothing.

        Each write is atomic by itself; two of the same record take effect in their order.
        When a repeat after a lost answer cannot tell, the answer is None: `uncertain`, which an
        engine that finds out while it writes may raise itself.
        """

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """The record, or with `fields` just these of it; None when it is absent.

        A record that is there but has none of them is there, with no fields.
        """

    async def page(
        self,
        namespace: str,
        *,
        prefix: str,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None,
    ) -> tuple[list[ListedRecord], str | None]:
        """Look at the next `limit` records above `after` in byte order of their keys.

        Returns those that are there, and the last key looked at, None at the end.
        """

    async def purge(self, limit: int) -> int:
        """Remove what is left of up to `limit` records that are expired or were deleted long ago.

        Of all namespaces. Returns how many; 0 where the engine does that by itself.
        """


class RecordIndexes(Protocol):
    """What a backend must do for secondary indexes, if it has the ability."""

    async def create(self, namespace: str, index: RecordIndex) -> None:
        """Make it, unless it is there: complete for all that is written from now on."""

    async def fill(self, namespace: str, index: RecordIndex) -> bool:
        """Put the next page of older records into it; True when it is complete."""

    async def drop(self, namespace: str, index: RecordIndex) -> bool:
        """True if it was there."""

    async def complete(self, namespace: str) -> list[RecordIndex]:
        """All that are complete."""

    async def find(
        self, namespace: str, index: RecordIndex, span: Span, *, limit: int
    ) -> tuple[list[ListedRecord], bool] | None:
        """Look at the first `limit` records of the span, in its order.

        Returns those that are there, which may be more than asked for (see Span), and whether
        there is more to look at. None: there is no such index, or it is not complete.
        """


class Span(NamedTuple):
    """A part of an index: the records with these first fields, and the last one in a range.

    `lead` and the bounds are as records_index.py makes them. Bounds are inclusive, and long
    values are cut short, so who reads a span looks at each record again.
    """

    prefix: str  # of the keys
    lead: str
    low: str
    high: str


class RecordLog(Protocol):
    """What a backend must do for watches of records."""

    async def present(
        self, namespace: str, *, prefix: str, after: str | None, limit: int, since: Position
    ) -> tuple[list[WatchedRecord], str | None]:
        """Like `RecordsBackend.page`."""

    async def position(self) -> Position:
        """Where the log of changes ends: whatever commits from now on lies above."""

    async def end(self) -> Position:
        """Whatever has been committed so far does not lie above this."""

    async def changes(
        self, namespace: str, *, prefix: str, after: Position, limit: int
    ) -> Page[ChangedRecord]:
        """Look at the next `limit` entries of the log above the position.

        `lost_changes` is raised when entries above it are no longer kept.
        """


_BYTES = {bytes}
_digits = msgspec.json.Encoder().encode  # of a number: three times as fast as formatting it


def apply_write(write: RecordWrite, fields: Fields, now_us: int) -> Fields | None:
    """The fields after the write, none if the record is gone; None if it does not apply.

    `fields` are what the record has before: none, if it is absent or expired.
    """
    if write.must_exist and not fields:
        return None
    for field, expected in write.expect.items():
        if fields.get(field) != expected:
            return None
    if write.replace and _BYTES.issuperset(map(type, write.set.values())):  # the usual put
        return dict(write.set)  # type: ignore[arg-type]
    after = {} if write.replace else dict(fields)
    for field, value in write.set.items():
        if value is None:
            after.pop(field, None)
        else:
            after[field] = value.in_ms(now_us) if type(value) is Stamp else value  # type: ignore[assignment]
    return after


def expiry(write: RecordWrite, before_us: int | None, now_us: int) -> int | None:
    """When the record expires after the write; `before_us` is when it would have, None for never.

    An absent record would have never.
    """
    if write.ttl_us == KEEP_TTL:
        return before_us
    return None if write.ttl_us == NO_TTL else now_us + write.ttl_us


def surely_undone(write: RecordWrite, now_us: int, updated_at_us: int) -> bool:
    """True when a lost try of the write cannot have been applied.

    The record has another operation id, and was last written before the caller asked.
    """
    return updated_at_us < now_us - asked_ago_us(write)


def asked_ago_us(write: RecordWrite) -> int:
    """How long ago the caller asked, at most."""
    return int((time.monotonic() - write.begun) * 1_000_000) + _SLACK_US


def uncertain(write: RecordWrite) -> Unavailable:
    """The error for a write whose answer was lost, when somebody else has written since."""
    return Unavailable(
        f"record {write.key[1]!r}: the connection was lost, and what became of the first try "
        "cannot be told: others have written to the record since",
        outcome_unknown=True,
    )


def lost_changes(position: Position) -> InvalidArgument:
    """The error for a cursor from which one cannot go on."""
    return InvalidArgument(
        "cursor: some of what changed since then is no longer kept; start without a cursor",
        seq=position.seq,
    )


def check_key(key: str) -> str:
    """The key itself, when it is a legal one."""
    if type(key) is str and is_plain_key(key):
        return key
    check_name(key, what="record key")
    if ":" in key:
        raise InvalidArgument(f"record key {key!r}: wanted dots between its parts, found a ':'")
    return key


def check_key_prefix(prefix: str) -> str:
    """The prefix itself, when keys can have it."""
    check_prefix(prefix)
    if ":" in prefix:
        raise InvalidArgument(f"prefix {prefix!r}: no key has a ':' in it; they use dots")
    return prefix


def check_field(field: str) -> str:
    """The field's name itself, when it is a legal one."""
    if type(field) is str and _plain_field(field):
        return field
    return check_name(field, what="field name")


def to_bytes(value: object, field: str) -> bytes:
    """A field's value as it is kept."""
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[return-value]
    if kind is str:
        try:
            return value.encode()  # type: ignore[attr-defined, no-any-return]
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"field {field!r}: text holds a lone surrogate, which is not UTF-8"
            ) from None
    if isinstance(value, int) and kind is not bool:
        if not _INT_MIN <= value <= _INT_MAX:
            raise InvalidArgument(f"field {field!r}: the number needs more than 64 bits")
        return b"%d" % value
    if isinstance(value, str):  # a subclass, such as a StrEnum's member
        return to_bytes(str(value), field)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"field {field!r}: wanted bytes, text or a whole number, found {type(value).__name__}"
    )


def to_setting(value: object, field: str) -> bytes | Stamp | None:
    """What a write sets a field to, as it carries it."""
    if value is None:
        return None
    if isinstance(value, Stamp):
        if abs(value.after_us) > _MOST_TTL_US:
            raise InvalidArgument(f"field {field!r}: a Stamp reaches 285 years at most")
        return value
    return to_bytes(value, field)


Settings = dict[str, bytes | Stamp | None]


def to_settings(key: str, fields: Mapping[str, Any]) -> tuple[Settings, int, bool]:
    """What a write of that record sets, as it carries it, and how many bytes that is.

    Also whether that is known before the write is done: no Stamp, nothing removed.
    """
    if type(fields) is not dict and not isinstance(fields, Mapping):
        raise InvalidArgument(
            f"record {key!r}: wanted fields by name, found {type(fields).__name__}"
        )
    names = tuple(fields)
    names_size = (_known_size if len(names) <= MOST_REMEMBERED else _plain_size)(names)
    if names_size is None:
        return _each_setting(fields)
    kept: Settings = {}
    try:
        for field, value in fields.items():
            kind = type(value)
            if kind is str:
                kept[field] = value.encode()
            elif kind is int:
                kept[field] = digits = _digits(value)
                if len(digits) > _SURE_DIGITS and not _INT_MIN <= value <= _INT_MAX:
                    return _each_setting(fields)
            elif kind is bytes:
                kept[field] = value
            else:
                return _each_setting(fields)
    except ValueError:  # a surrogate, or more digits than Python writes
        return _each_setting(fields)
    return kept, names_size + len(b"".join(kept.values())), True  # type: ignore[arg-type]


def _plain_size(fields: tuple[str, ...]) -> int | None:
    """How long these names are, None if one of them needs a closer look."""
    if all(type(field) is str and _plain_field(field) for field in fields):
        return sum(map(len, fields))
    return None


MOST_REMEMBERED = 64
"""Fields of a record whose names are kept in memory: those of more may be others each time."""

# Records of one kind have the same fields: nearly always this is known.
_known_size = lru_cache(maxsize=1000)(_plain_size)


def _each_setting(fields: Mapping[str, object]) -> tuple[Settings, int, bool]:
    settings: Settings = {}
    size = 0
    known = True
    for field, value in fields.items():
        settings[check_field(field)] = setting = to_setting(value, field)
        size += byte_size(field)
        if isinstance(setting, bytes):
            size += len(setting)
        else:
            size += _STAMP_BYTES
            known = False
    return settings, size, known


def to_ttl_us(ttl: Duration | None) -> int:
    """A time to live as a write carries it."""
    if ttl is None:
        return NO_TTL
    us = duration_us(ttl, name="ttl")
    if us <= 0:
        raise InvalidArgument(f"ttl: must be above 0, found {ttl!r}")
    return min(us, _MOST_TTL_US)

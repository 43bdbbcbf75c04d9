"""Events: the log of a run, which is only ever appended to.

The store numbers the events of a run 1, 2, 3 … (`run_seq`). Every event carries a key that
names what it is about, and the same key again is the same event:

    the key is known                      the first one's number, nothing changes
    else the event_id is known            Conflict: two keys for one event
    else the run is elsewhere than        Conflict: somebody else has appended meanwhile
         the caller expected
    else                                  the next number

What is appended in one call goes in as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec
import uuid_utils

from holdfast import codec
from holdfast.clock import instant_us, to_datetime
from holdfast.errors import Conflict, Corrupt, InvalidArgument, Serialization
from holdfast.facets.feed import Page, Position
from holdfast.facets.names import check_name, is_plain, operation_id

LOG = "events"  # the name of the log of changes
CONTRACT_VERSION = "1.0"
"""Of what an event is. New optional fields and types raise the second number, which readers may
ignore; anything else raises the first."""

RUN_STEP, RUN_ATTEMPT = "RUN", "1"
"""In place of step and attempt, in the key of an event about the whole run."""

MOST_EVENTS = 1000  # per call

_log = logging.getLogger("holdfast.events")
_DAMAGED = b""  # in place of an event id
_UNREADABLE = (OverflowError, TypeError, ValueError, msgspec.DecodeError, Serialization)


# Unknown to the garbage collector, whose looks at thousands of them were a third of a replay's
# time. One that is put into its own data would never be freed.
class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a run.

    `run_seq` and `persisted_at` are the store's: what the caller puts there is ignored. Without
    an `event_id` it gets one, without `emitted_at` it happened when it was stored.
    """

    run_id: str
    event_type: str
    idempotency_key: str
    event_data: Any = None
    step_id: str | None = None
    logical_attempt_id: str | int | None = None
    engine_attempt_id: str | int | None = None
    event_id: str | None = None
    emitted_at: datetime | None = None
    adapter_version: str | None = None
    engine_run_ref: Any = None
    caused_by_signal_id: str | None = None
    parent_event_id: str | None = None
    run_seq: int = 0
    persisted_at: datetime | None = None


class AppendResult(msgspec.Struct, frozen=True):
    """What became of an append.

    `idempotent`: the key was known, and `run_seq` is the number of the first event with it.
    `payload_mismatch`: that one differs in what the caller said, but for `event_id` and
    `emitted_at`, and stays as it is.
    """

    run_seq: int
    idempotent: bool
    persisted: bool
    payload_mismatch: bool = False


class FeedEvent(msgspec.Struct, frozen=True):
    """An event that the feed tells of; `cursor` is where to go on after it.

    `replay` is True for what came before the marker.
    """

    event: Event
    replay: bool
    cursor: str | None


RunKey = tuple[str, str]
"""Where a run is: namespace and run id."""


Said = tuple[str, str, str | None]
"""Of an event what is compared with another one of its key: type, data and `more`."""


class NewEvent(NamedTuple):
    """An event on its way into the store; `more` is JSON of the fields that are seldom there."""

    key: str
    event_id: bytes
    event_type: str
    emitted_at: int | None  # microseconds; None: when it is stored
    data: str  # JSON
    more: str | None

    @property
    def said(self) -> Said:
        """What is compared: who appends again may have neither the first id nor its time."""
        return self.event_type, self.data, self.more


# By place, past a function in Python: half of what NewEvent(…) takes.
_as_new: Callable[[tuple[object, ...]], NewEvent] = partial(tuple.__new__, NewEvent)


class Append(NamedTuple):
    """The events of one call, all of one run."""

    run: RunKey
    events: tuple[NewEvent, ...]
    expected_seq: int | None


class Appended(NamedTuple):
    """The number of an event in its run; of a known one also what was stored."""

    run_seq: int
    known: Said | None = None


_as_append: Callable[[tuple[object, ...]], Append] = partial(tuple.__new__, Append)


def append_of(
    namespace: str, run_id: str, events: tuple[NewEvent, ...], expected_seq: int | None
) -> Append:
    """A call, when the run id and the number are legal ones."""
    if expected_seq is not None:
        check_seq(expected_seq, "expected_seq")
    if not is_plain(run_id):
        check_name(run_id, what="run id")
    return _as_append(((namespace, run_id), events, expected_seq))


class Refused(NamedTuple):
    """Why nothing of the call was appended."""

    last_seq: int
    event_id: bytes | None = None  # the known one; None: `last_seq` is not what was expected


Outcome = range | Sequence[Appended] | Refused
"""What became of a call: the numbers of its events if all are new, or each one's, or why not."""


EventRow = tuple[str, int, str, bytes, str, int, int, str, str | None]
"""An event as it was read, in the order of StoredEvent, which is one. Replays are long."""


class StoredEvent(NamedTuple):
    """An event as it was read."""

    run_id: str
    run_seq: int
    key: str
    event_id: bytes
    event_type: str
    emitted_at: int
    persisted_at: int
    data: str
    more: str | None

    @property
    def said(self) -> Said:
        """As of NewEvent."""
        return self.event_type, self.data, self.more


RUN_VIEW = "run"
"""The view of a run that its snapshot is."""


class StoredSnapshot(NamedTuple):
    """A view of a run as it is kept: true up to that event."""

    last_seq: int
    payload: str


class Keep(NamedTuple):
    """A view to keep."""

    run: RunKey
    view: str
    generation: int
    snapshot: StoredSnapshot


class RunState(NamedTuple):
    """How far a run is; `generation` tells it from others that had its id before."""

    generation: int
    last_seq: int
    snapshot: StoredSnapshot | None


class EventsBackend(Protocol):
    """What a backend must do for events. Time is the store's clock throughout."""

    def append(self, appends: Sequence[Append], size: int) -> Awaitable[Sequence[Outcome]]:
        """For each call one answer per event, or why nothing of it was done.

        Each call is atomic by itself; those of the same run take effect in their order.
        """

    async def fetch(
        self, run: RunKey, *, after: int, limit: int, generation: int | None = None
    ) -> Sequence[EventRow]:
        """The run's next events above the number, in order; none if it is of another generation."""

    async def runs(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        """The next run ids above `after`, in byte order."""

    async def delete(
        self, run: RunKey, limit: int, *, generation: int, last_seq: int | None = None
    ) -> bool | None:
        """Remove up to so many events of the run, the last first; True when it is gone.

        Once begun it is out of sight as a whole. None, and nothing is done, when it is not at
        `last_seq`. A later run of the same id, which has another generation, stays.
        """

    async def state(self, run: RunKey, view: str) -> RunState | None:
        """How far the run is, and that view of it as it is kept; None when there is no run."""

    async def keep(self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot) -> bool:
        """Keep the view, unless a later one is there; False when that run is gone.

        One that is as far is replaced.
        """

    async def keep_all(self, keeps: Sequence[Keep]) -> Sequence[bool]:
        """The same for several views of one namespace's runs, each by itself."""


class EventLog(Protocol):
    """What a backend must do for the feed."""

    async def start(self) -> Position:
        """Where the log begins: everything lies above."""

    async def position(self) -> Position:
        """Where the log ends: whatever commits from now on lies above."""

    async def end(self) -> Position:
        """Whatever has been committed so far does not lie above this."""

    async def changes(
        self, namespace: str, *, after: Position, limit: int
    ) -> Page[tuple[Position, StoredEvent]]:
        """Look at the next `limit` events of the log above the position."""


def idempotency_key(
    run_id: str,
    step_id: str | None,
    logical_attempt_id: str | int | None,
    event_type: str,
    plan_version: str,
    *,
    discriminator: str | None = None,
) -> str:
    """The key of an event: a SHA-256 in hex of what it is about.

    None for step and attempt stands for an event about the whole run. The discriminator, such
    as a signal's id, tells apart what may happen to a run several times.
    """
    parts = [
        run_id,
        RUN_STEP if step_id is None else step_id,
        RUN_ATTEMPT if logical_attempt_id is None else attempt_text(logical_attempt_id, "attempt"),
        event_type,
        plan_version,
    ]
    if discriminator is not None:
        parts.append(discriminator)
    for part in parts:
        if not isinstance(part, str):
            raise InvalidArgument(f"idempotency key: wanted text, found {type(part).__name__}")
    try:
        return hashlib.sha256("|".join(parts).encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidArgument("idempotency key: a lone surrogate is not UTF-8") from None


def attempt_text(attempt: str | int, what: str) -> str:
    """An attempt as it is kept; callers may count or name them."""
    if isinstance(attempt, int) and not isinstance(attempt, bool):
        return str(attempt)
    return check_name(attempt, what=what)  # type: ignore[arg-type]


class _More(msgspec.Struct, omit_defaults=True):
    """The fields that are seldom there."""

    step_id: str | None = None
    logical_attempt_id: str | None = None
    engine_attempt_id: str | None = None
    adapter_version: str | None = None
    engine_run_ref: str | None = None  # JSON
    caused_by_signal_id: str | None = None
    parent_event_id: str | None = None


_encode_more = msgspec.json.Encoder().encode
_decode_more = msgspec.json.Decoder(_More).decode


def new_event(event: Event) -> NewEvent:
    """The event as it goes into the store, when it is a legal one."""
    if not isinstance(event, Event):
        raise InvalidArgument(f"event: wanted an Event, found {type(event).__name__}")
    key, kind = event.idempotency_key, event.event_type
    if not is_plain(key) or not is_plain(kind):
        check_name(key, what="idempotency key")
        check_name(kind, what="event type")
    return _as_new(
        (
            key,
            uuid_utils.uuid7().bytes if event.event_id is None else _event_id(event.event_id),
            kind,
            None if event.emitted_at is None else instant_us(event.emitted_at, name="emitted_at"),
            codec.encode(event.event_data).decode(),
            _more(event),
        )
    )


def damaged(run_id: str, run_seq: int, why: str) -> StoredEvent:
    """Stand in for an event that an engine cannot read; to read this one is Corrupt.

    `why` follows on "its event 7". So the others of a page can be read all the same.
    """
    return StoredEvent(run_id, run_seq, "", _DAMAGED, why, 0, 0, "", None)


def readable_events(rows: Iterable[EventRow]) -> Iterator[Event]:
    """The events that were stored so, without those that cannot be read."""
    for row in rows:
        try:
            yield read_event(row)
        except Corrupt as exc:
            _log.warning("passed over: %s", exc)


def read_event(row: EventRow) -> Event:
    """The event that was stored so; Corrupt when it cannot be read."""
    return next(read_events((row,)))


def read_events(rows: Iterable[EventRow]) -> Iterator[Event]:
    """The events that were stored so; Corrupt at the first that cannot be read."""
    # Replays are long: each line here was measured. Neighbours were often stored together; most
    # have nothing more, and happened when they were stored.
    shared_us, persisted_at = 0, to_datetime(0)
    run_id, run_seq, kind, event_id = "", 0, "", _DAMAGED
    try:
        for run_id, run_seq, key, event_id, kind, emitted_us, persisted_us, data, text in rows:
            if persisted_us != shared_us:
                shared_us, persisted_at = persisted_us, to_datetime(persisted_us)
            emitted_at = persisted_at if emitted_us == persisted_us else to_datetime(emitted_us)
            named = str(uuid_utils.UUID(None, event_id))  # by place: twice as fast as by name
            value = codec.decode(data)
            if text is None:
                yield Event(
                    run_id, kind, key, value, None, None, None, named, emitted_at, None, None, None,
                    None, run_seq, persisted_at,
                )  # fmt: skip
                continue
            more = _decode_more(text)
            ref = more.engine_run_ref
            yield Event(
                run_id,
                kind,
                key,
                value,
                more.step_id,
                more.logical_attempt_id,
                more.engine_attempt_id,
                named,
                emitted_at,
                more.adapter_version,
                None if ref is None else codec.decode(ref),
                more.caused_by_signal_id,
                more.parent_event_id,
                run_seq,
                persisted_at,
            )
    except _UNREADABLE as exc:
        if isinstance(exc.__cause__, RecursionError):
            raise  # it is the caller's stack that has no room left
        raise _unreadable(run_id, run_seq, kind if event_id == _DAMAGED else exc) from exc


def _unreadable(run_id: str, run_seq: int, why: str | Exception) -> Corrupt:
    if isinstance(why, Exception):
        why = f"cannot be read: {type(why).__name__}: {why}"
    return Corrupt(
        f"run {run_id!r}: its event {run_seq} {why:.200}; the run can be deleted by force, and a "
        "feed can pass over the event (skip_corrupt)",
        run_id=run_id,
        run_seq=run_seq,
    )


def _more(event: Event) -> str | None:
    """JSON of the fields that are seldom there, None when there are none."""
    if (
        event.step_id is None
        and event.logical_attempt_id is None
        and event.engine_attempt_id is None
        and event.adapter_version is None
        and event.engine_run_ref is None
        and event.caused_by_signal_id is None
        and event.parent_event_id is None
    ):
        return None
    names = {
        "step_id": event.step_id,
        "adapter_version": event.adapter_version,
        "caused_by_signal_id": event.caused_by_signal_id,
        "parent_event_id": event.parent_event_id,
    }
    for what, name in names.items():
        if name is not None:
            check_name(name, what=what)
    attempts = {
        what: None if attempt is None else attempt_text(attempt, what)
        for what, attempt in (
            ("logical_attempt_id", event.logical_attempt_id),
            ("engine_attempt_id", event.engine_attempt_id),
        )
    }
    ref = None if event.engine_run_ref is None else codec.encode(event.engine_run_ref).decode()
    return _encode_more(_More(**names, **attempts, engine_run_ref=ref)).decode()


def results(append: Append, outcome: Outcome) -> list[AppendResult]:
    """What the caller hears; Conflict if the call was refused."""
    if isinstance(outcome, Refused):
        raise refusal(append, outcome)
    if isinstance(outcome, range):
        return [AppendResult(run_seq, False, True) for run_seq in outcome]
    return list(map(_result, outcome, append.events))


def count_new(answers: range | Sequence[Appended]) -> int:
    """How many of the events were not known."""
    if isinstance(answers, range):
        return len(answers)
    return sum(one.known is None for one in answers)


def _result(answer: Appended, event: NewEvent) -> AppendResult:
    run_seq, known = answer
    if known is None:
        return AppendResult(run_seq, idempotent=False, persisted=True)
    # One value may be written in several ways: the keys of an object have no order.
    same = known == event.said or _sorted(known) == _sorted(event.said)
    return AppendResult(run_seq, idempotent=True, persisted=False, payload_mismatch=not same)


def _sorted(said: Said) -> tuple[object, ...]:
    """The same for what is equal. As text: to Python True is 1, and 1 is 1.0."""
    event_type, data, text = said
    more = _More() if text is None else _decode_more(text)
    ref = more.engine_run_ref
    more.engine_run_ref = None if ref is None else codec.sorted_text(ref)
    return event_type, codec.sorted_text(data), more


def refusal(append: Append, why: Refused) -> Conflict:
    """The error for a call that was refused."""
    _, run_id = append.run
    if why.event_id is not None:
        event_id = str(UUID(bytes=why.event_id))
        return Conflict(
            f"run {run_id!r}: event {event_id} is there under another idempotency key",
            run_id=run_id,
            event_id=event_id,
        )
    return Conflict(
        f"run {run_id!r}: expected to be at {append.expected_seq}, is at {why.last_seq}",
        run_id=run_id,
        expected_seq=append.expected_seq,
        last_seq=why.last_seq,
    )


def lost_events(position: Position) -> InvalidArgument:
    """The error for a cursor from which one cannot go on."""
    return InvalidArgument(
        "cursor: it lies above the end of the log: it is of another store, or a failover has lost "
        "what it is of; start without a cursor",
        seq=position.seq,
    )


def check_seq(seq: int, what: str) -> int:
    """A number of an event, or 0 for before the first."""
    if type(seq) is not int or not 0 <= seq <= codec.INT64_MAX:
        raise InvalidArgument(f"{what}: wanted a whole number from 0 on, found {seq!r:.40}")
    return seq


def _event_id(event_id: str | None) -> bytes:
    try:
        return operation_id(event_id)
    except InvalidArgument as exc:
        raise InvalidArgument(str(exc).replace("op_id", "event_id", 1)) from None

"""The events of one originator: a run, in which the version is the key.

A version that is there already is thus found by the store. Numbers of a run are not versions:
versions may begin at 0 or 1, a snapshot skips many, and one of the past may be taken late. So
each event says from which version on they have only risen, null once one fell:

    snapshots of versions 10, 20, 15  ->  number 1: version 10, since 10
                                          number 2: version 20, since 10
                                          number 3: version 15, since null

While they rise, the last event tells where a version is: exactly when none was skipped, else
within bounds. A run whose versions fell is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from eventsourcing.persistence import IntegrityError, StoredEvent

from holdfast import AppendResult, Conflict, Event
from holdfast.facets.events import MOST_EVENTS
from holdfast.sync.events import Events

_PAGE: Final = 1000
T = TypeVar("T")


class Place(NamedTuple):
    """The last event of a run: its number, its version, and since when versions rise."""

    seq: int
    version: int
    since: int | None


def run_of(originator_id: UUID | str) -> str:
    """The run of an originator."""
    return originator_id.hex if isinstance(originator_id, UUID) else originator_id


def state_to_json(state: bytes) -> str | bytes:
    """The state as people can read it, when it is text, as JSON is."""
    try:
        return state.decode()
    except UnicodeDecodeError:
        return state


def state_from_json(state: str | bytes) -> bytes:
    """The state that was stored so."""
    return state.encode() if isinstance(state, str) else state


def append_all(events: Events, new: Sequence[Event], expected_seq: int | None = None) -> list[int]:
    """The numbers of the events, of one run; IntegrityError when one is there already."""
    numbers: list[int] = []
    for page in chunks(new, MOST_EVENTS):
        expected = None if expected_seq is None else expected_seq + len(numbers)
        numbers += map(_number, events.append_events(page, expected_seq=expected), page)
    return numbers


def insert(events: Events, originator_id: UUID | str, stored: Sequence[StoredEvent]) -> None:
    """Append the events, all of this originator; in a transaction."""
    run_id = run_of(originator_id)
    last = _last_place(events, run_id, stored[0].originator_version)
    new: list[Event] = []
    version, since = (-1, stored[0].originator_version) if last is None else last[1:]
    for one in stored:
        if one.originator_version <= version and (last is not None or new):
            since = None
        version = one.originator_version
        data = {"version": version, "since": since, "state": state_to_json(one.state)}
        new.append(Event(run_id, one.topic, str(version), data))
    try:
        append_all(events, new, expected_seq=0 if last is None else last.seq)
    except Conflict as exc:
        # Somebody appended after we had looked; on SQLite nobody can.
        raise Conflict(str(exc), retryable=True) from exc


def select(
    events: Events,
    originator_id: UUID | str,
    *,
    gt: int | None,
    lte: int | None,
    desc: bool,
    limit: int | None,
) -> list[StoredEvent]:
    """The originator's events above and up to these versions, in the order of versions."""
    run_id = run_of(originator_id)
    first, end = 0, None
    if not (gt is lte is limit is None):
        last = _last_place(events, run_id, None)
        if last is None:
            return []
        if last.since is not None:
            first = 0 if gt is None else _count(events, run_id, last, gt)
            end = last.seq if lte is None else _count(events, run_id, last, lte)
        if end is not None and limit is not None:
            first, end = (
                (max(first, end - limit), end) if desc else (first, min(end, first + limit))
            )
    found = [_stored(originator_id, one) for one in pages(events, run_id, first, end)]
    found.sort(key=lambda one: one.originator_version, reverse=desc)
    return [
        one
        for one in found
        if (gt is None or one.originator_version > gt)
        and (lte is None or one.originator_version <= lte)
    ][:limit]


def pages(events: Events, run_id: str, after: int, end: int | None) -> Iterator[Event]:
    """The run's events above a number, up to another one or all."""
    while end is None or after < end:
        limit = _PAGE if end is None else min(_PAGE, end - after)
        page = events.fetch_events(run_id, after_seq=after, limit=limit)
        yield from page
        if len(page) < limit:
            return
        after += len(page)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def grouped(stored: Iterable[StoredEvent]) -> dict[UUID | str, list[StoredEvent]]:
    """The events by originator, in the order in which runs are locked."""
    groups: dict[UUID | str, list[StoredEvent]] = {}
    for one in stored:
        groups.setdefault(one.originator_id, []).append(one)
    return dict(sorted(groups.items(), key=lambda item: run_of(item[0])))


def _last_place(events: Events, run_id: str, next_version: int | None) -> Place | None:
    """Where the run ends.

    If the next version is known, so nearly is the number of the last event: one look is enough.
    """
    if next_version is not None:
        after = max(0, next_version - 2)
        near = events.fetch_events(run_id, after_seq=after, limit=3)
        if 0 < len(near) < 3:  # noqa: PLR2004 - fewer than asked for: the last is among them
            return _place(near[-1])
        if not near and after == 0:
            return None
    seq = events.last_seq(run_id)
    found = events.fetch_events(run_id, after_seq=seq - 1, limit=1) if seq else []
    return _place(found[0]) if found else None


def _count(events: Events, run_id: str, last: Place, version: int) -> int:
    """How many events of a rising run are up to the version."""
    assert last.since is not None  # noqa: S101 - for the type checker: the caller asked
    low = min(last.seq, max(0, last.seq - (last.version - version)))
    high = max(low, min(last.seq, version - last.since + 1))
    while low < high:  # never, unless versions were skipped
        middle = (low + high + 1) // 2
        found = events.fetch_events(run_id, after_seq=middle - 1, limit=1)
        if found and _place(found[0]).version <= version:
            low = middle
        else:
            high = middle - 1
    return low


def _place(event: Event) -> Place:
    data: Any = event.event_data
    return Place(event.run_seq, data["version"], data["since"])


def _stored(originator_id: UUID | str, event: Event) -> StoredEvent:
    data: Any = event.event_data
    state = state_from_json(data["state"])
    return StoredEvent(originator_id, data["version"], event.event_type, state)


def _number(result: AppendResult, event: Event) -> int:
    if result.idempotent:
        raise IntegrityError(f"{event.run_id!r}: {event.idempotency_key!r} is recorded already")
    return result.run_seq

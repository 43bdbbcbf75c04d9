# GENERATED from holdfast/aio/events.py by tools/generate_sync.py: change that file instead.
"""Events: how a run got where it is.

    key = idempotency_key("run-7", "load", 1, "StepStarted", "1.2.0")
    event = Event("run-7", "StepStarted", key, step_id="load")
    result = store.events.append_event(event)      # run_seq 1
    result = store.events.append_event(event)      # run_seq 1 again, idempotent

    snapshot = store.events.get_snapshot("run-7")  # RUNNING, steps {"load": RUNNING}

Events are only ever appended; the store numbers them 1, 2, 3 … within their run. The key says
what an event is about, and the same key again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from holdfast import codec
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument, InvalidState, NotFound
from holdfast.facets.backend import Capability, EventFacets, require
from holdfast.facets.events import (
    LOG,
    MOST_EVENTS,
    RUN_VIEW,
    Append,
    AppendResult,
    Event,
    FeedEvent,
    NewEvent,
    Refused,
    StoredEvent,
    StoredSnapshot,
    check_seq,
    new_event,
    read_event,
    refusal,
    result,
)
from holdfast.facets.events_feed import EventSource
from holdfast.facets.feed import BEGINNING, from_cursor
from holdfast.facets.names import check_name
from holdfast.facets.projection import RunSnapshot, fold
from holdfast.facets.watch import Seen, Watching
from holdfast.runtime.blocking import run
from holdfast.sync.watch import Watch

_log = logging.getLogger("holdfast.events")
_PAGE = 1000  # events that are in memory at a time
_MOST_AT_A_TIME = 10_000
_DELETE_PAGE = 500  # per transaction, so that others get their turn

Found = list[Event]
Results = list[AppendResult]
Names = list[str]


class Events:
    """The runs of one namespace."""

    def __init__(self, backend: EventFacets, namespace: str, config: StoreConfig) -> None:
        self._backend = backend
        self._events = backend.events
        self._namespace = namespace
        self._config = config

    def append_event(self, event: Event, *, expected_seq: int | None = None) -> AppendResult:
        """The event's number in its run, once it is durable.

        A known key gives the first event's number, whatever else is asked. With `expected_seq`
        the run must be there (0: have no event yet), else it is a Conflict and nothing changes.
        """
        (appended,) = self.append_events([event], expected_seq=expected_seq)
        return appended

    def append_events(self, events: Iterable[Event], *, expected_seq: int | None = None) -> Results:
        """Append events of one run as a whole, or none of them; one result for each."""
        require(self._backend, Capability.EVENTS)
        given = list(events)
        if not given:
            return []
        if len(given) > MOST_EVENTS:
            raise InvalidArgument(f"events: {len(given)} at a time, at most {MOST_EVENTS}")
        new = tuple(map(new_event, given))
        run_id = check_name(given[0].run_id, what="run id")
        if any(event.run_id != run_id for event in given):
            raise InvalidArgument("events: of one run at a time; a transaction takes several")
        if expected_seq is not None:
            check_seq(expected_seq, "expected_seq")
        append = Append((self._namespace, run_id), new, expected_seq)
        (answer,) = run(self._events.append([append], self._size(run_id, new)))
        if isinstance(answer, Refused):
            raise refusal(append, answer)
        return [result(one, event) for one, event in zip(answer, new, strict=True)]

    def fetch_events(self, run_id: str, *, after_seq: int = 0, limit: int = 1000) -> Found:
        """The run's next events above `after_seq`, in order; none when there is no such run."""
        require(self._backend, Capability.EVENTS)
        check_seq(after_seq, "after_seq")
        if type(limit) is not int or not 1 <= limit <= _MOST_AT_A_TIME:
            raise InvalidArgument(f"limit: from 1 to {_MOST_AT_A_TIME}, found {limit!r:.40}")
        place = (self._namespace, check_name(run_id, what="run id"))
        return [
            read_event(stored)
            for stored in run(self._events.fetch(place, after=after_seq, limit=limit))
        ]

    def get_snapshot(self, run_id: str) -> RunSnapshot | None:
        """The run as it is now, None when there is none.

        What a projector has kept, and the events since then.
        """
        _, snapshot = self._present(run_id)
        return snapshot

    def project_snapshot(self, run_id: str) -> RunSnapshot:
        """The run as all its events make it, from the first one on; PENDING without any."""
        require(self._backend, Capability.EVENTS)
        return self._folded(RunSnapshot(check_name(run_id, what="run id")), None)

    def keep_snapshot(self, run_id: str) -> RunSnapshot | None:
        """The same as `get_snapshot`, and the next one goes on from there."""
        generation, snapshot = self._present(run_id)
        if snapshot is not None:
            payload = codec.encode(snapshot).decode()
            kept = StoredSnapshot(snapshot.last_event_seq, payload)
            run(self._events.keep((self._namespace, run_id), RUN_VIEW, generation, kept))
        return snapshot

    def feed(self, *, after: str | None = None, marker: bool = False) -> Watch[FeedEvent]:
        """The events of all runs, in one order, then every new one as it comes.

        With `after`, the cursor of an earlier feed, what came since then. With `marker` the
        iteration gives `holdfast.CAUGHT_UP` between replay and live events.
        """
        require(self._backend, Capability.EVENTS)
        position, _ = (BEGINNING, 0) if after is None else from_cursor(LOG, after)
        log, listener = self._backend.follow_events(self._namespace)
        source = EventSource(log, self._namespace)
        return Watch(Watching(source, listener, position), _told, marker=marker)

    def list_runs(self, *, after: str | None = None, limit: int = 1000) -> Names:
        """The next run ids above `after`, in byte order."""
        require(self._backend, Capability.EVENTS)
        if after is not None:
            check_name(after, what="after")
        if type(limit) is not int or not 1 <= limit <= _MOST_AT_A_TIME:
            raise InvalidArgument(f"limit: from 1 to {_MOST_AT_A_TIME}, found {limit!r:.40}")
        return run(self._events.runs(self._namespace, after=after, limit=limit))

    def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Remove the run and all its events, for good; one that has not ended only by `force`.

        It is out of sight at once, however long the rest takes.
        """
        generation, _ = self._to_delete(run_id, force=force)
        self._deleted(run_id, generation, None)

    def _to_delete(self, run_id: str, *, force: bool) -> tuple[int, RunSnapshot]:
        """The run's generation and what it is, when it may go."""
        generation, snapshot = self._present(run_id)
        if snapshot is None:
            raise NotFound(f"run {run_id!r}: not found", run_id=run_id)
        if not force and not snapshot.status.terminal:
            raise InvalidState(
                f"run {run_id!r}: is {snapshot.status}, and only what has ended can be deleted; "
                "or use force",
                run_id=run_id,
                status=snapshot.status,
            )
        return generation, snapshot

    def _deleted(self, run_id: str, generation: int, last_seq: int | None) -> bool:
        """True when that run is gone; False, and it is whole, when it is not at `last_seq`."""
        place = (self._namespace, run_id)
        while True:
            done = run(
                self._events.delete(place, _DELETE_PAGE, generation=generation, last_seq=last_seq)
            )
            if done is not False:
                return done is True
            run(self._backend.pause())

    def _present(self, run_id: str) -> tuple[int, RunSnapshot | None]:
        """The run's generation and what it is now."""
        require(self._backend, Capability.EVENTS)
        place = (self._namespace, check_name(run_id, what="run id"))
        while True:
            state = run(self._events.state(place, RUN_VIEW))
            if state is None:
                return 0, None
            kept = state.snapshot
            snapshot = RunSnapshot(run_id) if kept is None else _snapshot(kept)
            snapshot = self._folded(snapshot, state.generation)
            if snapshot.last_event_seq >= state.last_seq:  # else it was deleted meanwhile
                return state.generation, snapshot

    def _folded(self, snapshot: RunSnapshot, generation: int | None) -> RunSnapshot:
        place = (self._namespace, snapshot.run_id)
        while True:
            page = run(
                self._events.fetch(
                    place, after=snapshot.last_event_seq, limit=_PAGE, generation=generation
                )
            )
            snapshot = fold(snapshot, map(read_event, page))
            if len(page) < _PAGE:
                return snapshot
            run(self._backend.pause())

    def _size(self, run_id: str, events: tuple[NewEvent, ...]) -> int:
        sizes = [len(event.data) + len(event.more or "") for event in events]
        limit, largest = self._config.payload_max_bytes, max(sizes)
        if largest > limit:
            raise InvalidArgument(
                f"run {run_id!r}: an event of {largest} bytes, at most {limit} are allowed; "
                "keep large data elsewhere and store a reference to it (claim check)",
                size=largest,
                limit=limit,
            )
        if largest > self._config.payload_warn_bytes:
            _log.warning("run %r: an event of %d bytes; large ones are slow", run_id, largest)
        return sum(sizes)


def _snapshot(stored: StoredSnapshot) -> RunSnapshot:
    return msgspec.convert(codec.decode(stored.payload), RunSnapshot)


def _told(seen: Seen[StoredEvent], replay: bool, cursor: str | None) -> FeedEvent:  # noqa: FBT001 - see Tell
    return FeedEvent(read_event(seen.change), replay, cursor)

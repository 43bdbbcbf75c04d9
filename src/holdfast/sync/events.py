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
from typing import Any, Literal, TypeVar, overload

from holdfast import codec
from holdfast.clock import MICROSECONDS, Duration, duration_us
from holdfast.config import StoreConfig
from holdfast.errors import Corrupt, InvalidArgument, InvalidState, NotFound
from holdfast.facets.backend import Capability, EventFacets, require
from holdfast.facets.events import (
    LOG,
    MOST_EVENTS,
    RUN_VIEW,
    AppendResult,
    Event,
    FeedEvent,
    NewEvent,
    StoredEvent,
    append_of,
    check_seq,
    new_event,
    read_event,
    read_events,
    results,
)
from holdfast.facets.events_feed import EventSource
from holdfast.facets.feed import BEGINNING, from_cursor, to_cursor
from holdfast.facets.names import check_name
from holdfast.facets.projection import RunSnapshot
from holdfast.facets.snapshot_cache import SnapshotCache
from holdfast.facets.views import RUN, Projection, View, check_projection
from holdfast.facets.views_reading import Begin, Read, Views
from holdfast.facets.watch import CaughtUp, Seen, Watching
from holdfast.runtime.blocking import run
from holdfast.sync.watch import Watch

_log = logging.getLogger("holdfast.events")
_EVENTS = Capability.EVENTS  # looked up once: on 3.11 an enum finds its members in Python
_MOST_AT_A_TIME = 10_000
_DELETE_PAGE = 500  # per transaction, so that others get their turn

S = TypeVar("S")
Found = list[Event]
Results = list[AppendResult]
Names = list[str]


class Events:
    """The runs of one namespace."""

    def __init__(
        self,
        backend: EventFacets,
        namespace: str,
        config: StoreConfig,
        *,
        begin: Begin | None = None,
        cache: SnapshotCache | None = None,
        inline: tuple[Projection[Any], ...] = (),
    ) -> None:
        """`begin` makes a transaction; without it this is inside one."""
        self._backend = backend
        self._events = backend.events
        self._namespace = namespace
        self._config = config
        # In characters, of which each may take four bytes.
        self._surely_small = min(config.payload_warn_bytes, config.payload_max_bytes) // 4
        self._begin = begin
        self._cache = SnapshotCache() if cache is None else cache
        self._views = Views(backend, config.payload_max_bytes, self._cache.warned, begin)
        self._inline = inline

    def append_event(self, event: Event, *, expected_seq: int | None = None) -> AppendResult:
        """The event's number in its run, once it is durable.

        A known key gives the first event's number, whatever else is asked. With `expected_seq`
        the run must be there (0: have no event yet), else it is a Conflict and nothing changes.
        """
        if self._inline:
            return (self.append_events((event,), expected_seq=expected_seq))[0]
        require(self._backend, _EVENTS)
        new = (new_event(event),)
        append = append_of(self._namespace, event.run_id, new, expected_seq)
        size = self._size(event.run_id, new)
        try:
            (answer,) = run(self._events.append([append], size))
        finally:
            self._cache.forget(append.run)
        if type(answer) is range:  # it is new, as nearly all are
            return AppendResult(answer.start, False, True)
        return results(append, answer)[0]

    def append_events(self, events: Iterable[Event], *, expected_seq: int | None = None) -> Results:
        """Append events of one run as a whole, or none of them; one result for each."""
        require(self._backend, _EVENTS)
        try:
            each = iter(events)
        except TypeError:
            raise InvalidArgument(
                f"events: wanted several Events, found {type(events).__name__}"
            ) from None
        given = list(each)
        if not given:
            return []
        if len(given) > MOST_EVENTS:
            raise InvalidArgument(f"events: {len(given)} at a time, at most {MOST_EVENTS}")
        new = tuple(map(new_event, given))
        run_id = given[0].run_id
        if any(event.run_id != run_id for event in given):
            raise InvalidArgument("events: of one run at a time; a transaction takes several")
        append = append_of(self._namespace, run_id, new, expected_seq)
        size = self._size(run_id, new)
        try:
            if self._inline:
                require(self._backend, Capability.TRANSACTIONS)
                answer = run(self._views.append(append, size, self._inline))
            else:
                (answer,) = run(self._events.append([append], size))
        finally:
            self._cache.forget(append.run)
        return results(append, answer)

    def fetch_events(self, run_id: str, *, after_seq: int = 0, limit: int = 1000) -> Found:
        """The run's next events above `after_seq`, in order; none when there is no such run."""
        require(self._backend, _EVENTS)
        check_seq(after_seq, "after_seq")
        if type(limit) is not int or not 1 <= limit <= _MOST_AT_A_TIME:
            raise InvalidArgument(f"limit: from 1 to {_MOST_AT_A_TIME}, found {limit!r:.40}")
        place = (self._namespace, check_name(run_id, what="run id"))
        return list(read_events(run(self._events.fetch(place, after=after_seq, limit=limit))))

    def get_snapshot(self, run_id: str, *, max_age: Duration = 0) -> RunSnapshot | None:
        """The run as it is now, None when there is none.

        What a projector has kept, and the events since then. With `max_age` it may be what this
        store object read at most so many seconds ago, without asking the engine; but never from
        before the store's own last append to that run.
        """
        read = self._read_lately(run_id, max_age)
        return None if read.generation is None else read.kept.state

    def project_snapshot(self, run_id: str) -> RunSnapshot:
        """The run as all its events make it, from the first one on; PENDING without any."""
        require(self._backend, _EVENTS)
        place = (self._namespace, check_name(run_id, what="run id"))
        read = run(self._views.read(place, RUN, from_kept=False))
        return read.kept.state

    def keep_snapshot(self, run_id: str) -> RunSnapshot | None:
        """The same as `get_snapshot`, and the next one goes on from there."""
        read = self._read(RUN, run_id)
        run(self._views.keep((self._namespace, run_id), RUN, read))
        return None if read.generation is None else read.kept.state

    def view(self, projection: Projection[S], run_id: str) -> View[S]:
        """What the projection makes of the run now; of one without events its initial state.

        As `get_snapshot`: what is kept, and the events since then. ProjectionFailed if the fold
        raises.
        """
        read = self._read(projection, run_id)
        return View(read.kept.state, read.kept.last_seq)

    def keep_view(self, projection: Projection[S], run_id: str) -> View[S]:
        """The same as `view`, and the next one goes on from there."""
        read = self._read(projection, run_id)
        run(self._views.keep((self._namespace, run_id), projection, read))
        return View(read.kept.state, read.kept.last_seq)

    def inline(self, *projections: Projection[Any]) -> Events:
        """The same events, whose appends keep these views in the same transaction.

        When a fold raises, the append fails as a whole with ProjectionFailed.
        """
        require(self._backend, _EVENTS)
        require(self._backend, Capability.TRANSACTIONS)
        chosen = (*self._inline, *map(check_projection, projections))
        return Events(
            self._backend,
            self._namespace,
            self._config,
            begin=self._begin,
            cache=self._cache,
            inline=chosen,
        )

    @overload
    def feed(
        self,
        *,
        after: str | None = None,
        marker: Literal[False] = False,
        skip_corrupt: bool = False,
    ) -> Watch[FeedEvent]: ...

    @overload
    def feed(
        self, *, after: str | None = None, marker: bool, skip_corrupt: bool = False
    ) -> Watch[FeedEvent | CaughtUp]: ...

    def feed(
        self, *, after: str | None = None, marker: bool = False, skip_corrupt: bool = False
    ) -> Watch[Any]:
        """The events of all runs, in one order, then every new one as it comes.

        With `after`, the cursor of an earlier feed, what came since then. With `marker` the
        iteration gives `holdfast.CAUGHT_UP` between replay and live events.

        An event that cannot be read is Corrupt, and the feed goes on behind it when it is asked
        again. With `skip_corrupt` it is passed over: logged, and counted as `skipped`.
        """
        require(self._backend, _EVENTS)
        position, _ = (BEGINNING, 0) if after is None else from_cursor(LOG, after)
        log, listener = self._backend.follow_events(self._namespace)
        source = EventSource(log, self._namespace)
        watching = Watching(source, listener, position)
        return Watch(watching, _told, marker=marker, skip_corrupt=skip_corrupt)

    def feed_end(self) -> str:
        """A cursor for `feed` from which only what commits from now on is told."""
        require(self._backend, _EVENTS)
        log, _ = self._backend.follow_events(self._namespace)
        return to_cursor(LOG, run(log.position()))

    def last_seq(self, run_id: str) -> int:
        """The number of the run's last event, 0 when there is no such run."""
        require(self._backend, _EVENTS)
        place = (self._namespace, check_name(run_id, what="run id"))
        state = run(self._events.state(place, RUN_VIEW))
        return 0 if state is None else state.last_seq

    def list_runs(self, *, after: str | None = None, limit: int = 1000) -> Names:
        """The next run ids above `after`, in byte order."""
        require(self._backend, _EVENTS)
        if after is not None:
            check_name(after, what="after")
        if type(limit) is not int or not 1 <= limit <= _MOST_AT_A_TIME:
            raise InvalidArgument(f"limit: from 1 to {_MOST_AT_A_TIME}, found {limit!r:.40}")
        return run(self._events.runs(self._namespace, after=after, limit=limit))

    def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Remove the run and all its events, for good; one that has not ended only by `force`.

        It is out of sight at once, however long the rest takes. Of a run with events that cannot
        be read the others tell whether it has ended; Corrupt when they do not, unless by `force`.
        """
        if force:
            generation = self._generation(run_id)
        else:
            try:
                generation, _ = self._to_delete(run_id, force=False)
            except Corrupt as exc:
                generation = self._ended_generation(run_id, exc)
        self._deleted(run_id, generation, None)

    def _generation(self, run_id: str) -> int:
        require(self._backend, _EVENTS)
        place = (self._namespace, check_name(run_id, what="run id"))
        state = run(self._events.state(place, RUN_VIEW))
        if state is None:
            raise NotFound(f"run {run_id!r}: not found", run_id=run_id)
        return state.generation

    def _ended_generation(self, run_id: str, exc: Corrupt) -> int:
        """The generation of a run that has ended as far as it can be read; else the error."""
        read = run(self._views.read((self._namespace, run_id), RUN, skip_corrupt=True))
        if read.generation is None or not read.kept.state.status.terminal:
            raise exc
        return read.generation

    def _to_delete(self, run_id: str, *, force: bool) -> tuple[int, RunSnapshot]:
        """The run's generation and what it is, when it may go."""
        generation, kept = self._read(RUN, run_id)
        if generation is None:
            raise NotFound(f"run {run_id!r}: not found", run_id=run_id)
        snapshot = kept.state
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
        try:
            while True:
                done = run(
                    self._events.delete(
                        place, _DELETE_PAGE, generation=generation, last_seq=last_seq
                    )
                )
                if done is not False:
                    return done is True
                run(self._backend.pause())
        finally:
            self._cache.forget(place)

    def _read(self, projection: Projection[S], run_id: str) -> Read[S]:
        require(self._backend, _EVENTS)
        check_projection(projection)
        place = (self._namespace, check_name(run_id, what="run id"))
        return run(self._views.read(place, projection))

    def _read_lately(self, run_id: str, max_age: Duration) -> Read[RunSnapshot]:
        age = duration_us(max_age, name="max_age") / MICROSECONDS
        if age <= 0:
            return self._read(RUN, run_id)
        place = (self._namespace, check_name(run_id, what="run id"))
        read = self._cache.get(place, age)
        if read is None:
            begun = self._cache.begin()
            read = self._read(RUN, run_id)
            self._cache.put(place, begun, read)
        return read

    def _size(self, run_id: str, events: tuple[NewEvent, ...]) -> int:
        """What they add up to, thereabouts; InvalidArgument when one of them is too large."""
        total = 0
        for event in events:
            length = len(event.data) if event.more is None else len(event.data) + len(event.more)
            if length > self._surely_small:
                self._check_size(run_id, event)
            total += length
        return total

    def _check_size(self, run_id: str, event: NewEvent) -> None:
        size = codec.byte_size(event.data) + codec.byte_size(event.more or "")
        limit = self._config.payload_max_bytes
        if size > limit:
            raise InvalidArgument(
                f"run {run_id!r}: an event of {size} bytes, at most {limit} are allowed; "
                "keep large data elsewhere and store a reference to it (claim check)",
                size=size,
                limit=limit,
            )
        if size > self._config.payload_warn_bytes:
            _log.warning("run %r: an event of %d bytes; large ones are slow", run_id, size)


def _told(seen: Seen[StoredEvent], replay: bool, cursor: str | None) -> FeedEvent:  # noqa: FBT001 - see Tell
    return FeedEvent(read_event(seen.change), replay, cursor)

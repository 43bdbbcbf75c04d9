"""The projector: keeps the views of runs up to date, so that reading one is cheap.

    await AsyncProjector(store, [cost]).run()        # until stop() is called, from anywhere

It follows the feed and keeps, for every run, its snapshot and the views of the given projections.
Reading is right without it, and slower. Several projectors share the runs; when one dies, others
go on where it was, within the lease. The position in the feed is written down after the views
that it stands for, and each view knows the event that it is true up to: a crash repeats, and loses
nothing. A view whose fold raises is marked (`marks`), and the others go on.

The lag is how long the oldest event that is in no kept view has been stored. Above `alert_after`
seconds there is an alert, once until it is over; above `resync_after` a run that lags is read to
its end at once, instead of event by event as the feed tells them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.aio.shards import AsyncShards
from holdfast.clock import MICROSECONDS, Duration
from holdfast.errors import Corrupt, InvalidArgument, StoreError
from holdfast.facets.backend import Capability, require
from holdfast.facets.daemons import (
    Metrics,
    ProjectorStatus,
    ProjectTotals,
    Resync,
    RunMark,
    metrics_of,
)
from holdfast.facets.events import LOG, Event, FeedEvent
from holdfast.facets.feed import BEGINNING, Position, from_cursor, to_cursor
from holdfast.facets.lag import Lag, OnAlert
from holdfast.facets.projecting import Projecting
from holdfast.facets.projecting_store import MARKS, to_mark
from holdfast.facets.shards import Shard
from holdfast.facets.transport import check_span
from holdfast.facets.views import RUN, Projection, check_projection
from holdfast.facets.watch import CAUGHT_UP

if TYPE_CHECKING:
    from holdfast.aio.store import AsyncStore
    from holdfast.aio.watch import AsyncWatch

_log = logging.getLogger("holdfast.projector")
_SLICE = 0.2  # seconds: so soon a stop is noticed
_BATCH = 500  # events in memory before they are folded
_MOST_UNSAVED = 500  # views
_MOST_SHARDS = 1000

Marks = list[RunMark]


class AsyncProjector:
    """Projects the runs of a store's namespace, or its share of them."""

    def __init__(
        self,
        store: AsyncStore,
        projections: Iterable[Projection[Any]] = (),
        *,
        shards: int = 16,
        lease: Duration = 10,
        every: Duration = 0.1,
        resync: Resync | str = Resync.FROM_SNAPSHOT,
        alert_after: Duration = 5,
        resync_after: Duration = 10,
        on_alert: OnAlert | None = None,
        retry: Duration = 1,
        report: Duration = 60,
    ) -> None:
        """`every`: seconds for which changes of a view are gathered before it is kept.

        `shards` must be the same for all projectors of a namespace, else work is done twice.
        `retry` and `report`: seconds after an error, and between two words on the lag.
        """
        require(store, Capability.EVENTS)
        require(store, Capability.RECORDS)
        if type(shards) is not int or not 1 <= shards <= _MOST_SHARDS:
            raise InvalidArgument(f"shards: from 1 to {_MOST_SHARDS}, found {shards!r:.40}")
        self._store = store
        self._projections = {one.view: one for one in (RUN, *map(check_projection, projections))}
        views = store._view_store()  # noqa: SLF001 - for projectors alone
        self._core = Projecting(views, _resync(resync))
        self._shards = AsyncShards(store, count=shards, lease_us=check_span(lease, "lease"))
        self._every = check_span(every, "every") / MICROSECONDS
        self._lag = Lag(timedelta(microseconds=check_span(alert_after, "alert_after")), on_alert)
        self._resync_after = timedelta(microseconds=check_span(resync_after, "resync_after"))
        self._retry = check_span(retry, "retry") / MICROSECONDS
        self._report = check_span(report, "report") / MICROSECONDS
        self._stopped = False
        self._feed: AsyncWatch[FeedEvent] | None = None
        self._told = BEGINNING  # everything up to there is folded
        self._at_end = False  # of the feed, when we last looked
        self._saved_at = 0.0
        self._unreadable: list[tuple[Position, Corrupt]] = []

    @property
    def totals(self) -> ProjectTotals:
        """What this projector has done."""
        return self._core.totals

    async def run(self) -> None:
        """Project what comes until `stop` is called; what failed is tried again."""
        report_at = time.monotonic() + self._report
        try:
            while not self._stopped:
                try:
                    await self.project(_SLICE)
                    if time.monotonic() >= report_at:
                        await self._say()
                        report_at = time.monotonic() + self._report
                except StoreError as exc:
                    if not exc.retryable:
                        raise
                    _log.warning("projecting failed, trying again in %g s: %s", self._retry, exc)
                    await self._rest()
        finally:
            await self.close()

    def stop(self) -> None:
        """Let `run` return after the work at hand. From any thread or signal handler."""
        self._stopped = True

    async def project(self, wait: Duration = 0) -> int:
        """How many events were told: those at hand, or what comes within `wait`.

        Views are kept once in `every` seconds: `drain` keeps them all. After an error it begins
        again with what was kept.
        """
        try:
            return await self._project(check_span(wait, "wait", least_us=0) / MICROSECONDS)
        except BaseException:
            self._begin_anew()
            raise

    async def drain(self) -> None:
        """Project what is there and is not looked after by others, then give everything back.

        For how long it has waited for that is no reason for an alert.
        """
        self._lag.quiet = True
        try:
            await self.beat()
            while not self._stopped and self._feed is not None and not self._feed.caught_up:
                await self.project(_SLICE)
            await self._save()
            if not self._stopped:
                await self._nothing_waits()
        except BaseException:
            self._begin_anew()
            raise
        finally:
            await self.close()
            self._lag.quiet = False

    async def beat(self) -> None:
        """Prolong the leases, give away what is more than this projector's part, take what is free.

        `project` does so in time.
        """
        if self._shards.expired:
            # Others may be at work on all of it: what is in memory is not ours to save.
            self._begin_anew()
            self._shards.owned.clear()
        await self._save()
        lost = await self._shards.renew()
        given = await self._shards.surplus()
        await self._shards.release(given)
        if lost or given:
            self._core.forget(lambda run_id: self._shards.of(run_id) is None)
        await self._shards.take()
        self._lag.set_clock(await self._store.now())
        if new := self._shards.new:
            _log.info("looks after %d shards, %d of them new", len(self._shards.owned), len(new))
            self._follow()
            await self._retry_marked(new)
        elif not self._shards.owned:
            self._unfollow()
            await self._nothing_waits()
        self._shards.settled()

    async def marks(self) -> Marks:
        """The views of the namespace that are stale or have failed, whoever looks after them."""
        found = []
        async for _, record in self._store.records.scan(MARKS):
            found.append(to_mark(record.fields))
        return sorted(found, key=lambda mark: (mark.run_id, mark.view))

    async def status(self) -> ProjectorStatus:
        """How far this projector is, and what it has done."""
        since = self._core.waiting_since
        if since is not None:
            await self._measure(since)
        lag = self._lag
        return ProjectorStatus(len(self._shards.owned), lag.lag, lag.alert, self.totals)

    async def metrics(self) -> Metrics:
        """The same as numbers by name, for monitoring: `…_lag_high` is 1 while an alert holds."""
        status = await self.status()
        return metrics_of(
            "projector",
            status.totals,
            shards=status.shards,
            lag_seconds=status.lag.total_seconds(),
            lag_high=status.alert is not None,
        )

    async def close(self) -> None:
        """Keep what is folded, and let others have the runs at once."""
        try:
            if not self._shards.expired:
                await self._save()
                if self._at_end:
                    await self._nothing_waits()
                await self._shards.leave()
        except StoreError as exc:
            _log.warning("left without a word, others wait for the lease to end: %s", exc)
        finally:
            self._begin_anew()
            self._shards.owned.clear()

    async def _project(self, wait: float) -> int:
        if self._shards.expired or self._shards.due:
            await self.beat()
        if self._shards.owned and self._feed is None:
            self._follow()
        if self._feed is None:
            await self._store.pause(wait)
            return 0
        events, self._at_end = await self._next(self._feed, wait)
        await self._fold(events)
        await self._refuse_unreadable()
        if self._at_end and not self._core.unsaved:
            await self._nothing_waits()
        elif (
            self._core.unsaved >= _MOST_UNSAVED or time.monotonic() - self._saved_at >= self._every
        ):
            await self._save()
        return len(events)

    def _follow(self) -> None:
        """Follow the feed from the first place that any of our views still needs."""
        self._unfollow()
        places = [
            shard.at(view) for shard in self._shards.owned.values() for view in self._projections
        ]
        self._told = min(places)
        after = None if self._told == BEGINNING else to_cursor(LOG, self._told)
        self._feed = self._store.events.feed(after=after)

    def _unfollow(self) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed = None
        self._at_end = False

    async def _next(self, feed: AsyncWatch[FeedEvent], wait: float) -> tuple[list[FeedEvent], bool]:
        """What the feed tells now, and whether that was all."""
        events: list[FeedEvent] = []
        due = time.monotonic() + wait
        if self._core.unsaved:
            due = min(due, self._saved_at + self._every)
        try:
            while len(events) < _BATCH:
                seconds = 0 if events else max(0.0, due - time.monotonic())
                try:
                    told = await feed.next(seconds)
                except Corrupt as exc:
                    if "run_id" not in exc.facts or feed.cursor is None:
                        raise
                    self._unreadable.append((from_cursor(LOG, feed.cursor)[0], exc))
                    return events, False
                if isinstance(told, FeedEvent):
                    events.append(told)
                else:
                    return events, told is CAUGHT_UP or feed.caught_up
        except InvalidArgument as exc:
            # Of a store that was restored or has lost its newest events: views tell what they have.
            _log.warning("the feed begins anew: %s", exc)
            for shard in self._shards.owned.values():
                shard.rewind()
            self._follow()
            return [], False
        return events, False

    async def _fold(self, told: list[FeedEvent]) -> None:
        runs: dict[tuple[str, str], list[Event]] = {}
        last = self._told
        for one in told:
            last = _position(one)
            shard = self._shards.of(one.event.run_id)
            for view in self._projections:
                if shard is not None and shard.at(view) < last:
                    runs.setdefault((view, one.event.run_id), []).append(one.event)
        for (view, run_id), events in runs.items():
            late = self._lag.age(events[0]) > self._resync_after
            await self._core.take(self._projections[view], run_id, events, catch_up=late)
        self._told = last

    async def _refuse_unreadable(self) -> None:
        """Mark the runs with events that cannot be read; the feed has gone on behind those."""
        for place, exc in self._unreadable:
            run_id = str(exc.facts["run_id"])
            shard = self._shards.of(run_id)
            for view, projection in self._projections.items():
                if shard is not None and shard.at(view) < place:
                    await self._core.refuse(projection, run_id, exc)
            self._told = max(self._told, place)
        self._unreadable = []

    async def _save(self) -> None:
        """Keep what is folded; then everything that was told is done with."""
        since = self._core.waiting_since
        await self._core.flush()
        self._saved_at = time.monotonic()
        for shard in self._shards.owned.values() if self._feed is not None else ():
            for view in self._projections:
                shard.move(view, self._told)
        if since is not None:
            await self._measure(since)

    async def _retry_marked(self, taken: list[Shard]) -> None:
        """What somebody before us could not bring up to date may go well now."""
        for mark in await self.marks():
            projection = self._projections.get(mark.view)
            if projection is not None and self._shards.of(mark.run_id) in taken:
                await self._core.retry(projection, mark.run_id)

    async def _measure(self, waiting_since: datetime | None) -> None:
        self._lag.measure(await self._store.now(), waiting_since)

    async def _nothing_waits(self) -> None:
        """Everything that is ours is kept."""
        if self._lag.lag:
            await self._measure(None)

    def _begin_anew(self) -> None:
        """Forget what is not kept: it is told again."""
        self._core.forget(lambda _: True)
        self._unreadable = []
        self._unfollow()

    async def _rest(self) -> None:
        due = time.monotonic() + self._retry
        while not self._stopped and time.monotonic() < due:
            await self._store.pause(min(_SLICE, max(0.0, due - time.monotonic())))

    async def _say(self) -> None:
        status = await self.status()
        _log.info(
            "%d shards, lag %.1f s, %s", status.shards, status.lag.total_seconds(), status.totals
        )


def _position(told: FeedEvent) -> Position:
    if told.cursor is None:
        raise InvalidArgument("the feed told of an event without its place")
    return from_cursor(LOG, told.cursor)[0]


def _resync(resync: Resync | str) -> Resync:
    try:
        return Resync(resync)
    except ValueError:
        raise InvalidArgument(f"resync: FULL or FROM_SNAPSHOT, found {resync!r:.40}") from None

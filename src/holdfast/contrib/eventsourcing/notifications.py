"""The notifications of an application: one run, whose numbers are their ids.

A run's numbers have no gaps and are given out under its lock until the commit: what has id 7 is
seen by everybody before what has id 8, and the events of one insert have ids in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import ApplicationRecorder, Notification, StoredEvent, Subscription

from holdfast import Event, FeedEvent
from holdfast.contrib.eventsourcing.errors import translated
from holdfast.contrib.eventsourcing.originators import (
    append_all,
    run_of,
    state_from_json,
    state_to_json,
)
from holdfast.sync.events import Events

_RUN: Final = "log"
_PAGE: Final = 1000


def insert(events: Events, stored: Sequence[StoredEvent]) -> list[int]:
    """The ids of the events' notifications; IntegrityError when one is recorded already."""
    return append_all(events, [_event(one) for one in stored])


def last_id(events: Events) -> int | None:
    """The last notification's id."""
    return events.last_seq(_RUN) or None


def select(
    events: Events, after: int, stop: int | None, limit: int, topics: Sequence[str]
) -> list[Notification]:
    """The next notifications above the id, of these topics or of all."""
    found: list[Notification] = []
    while len(found) < limit:
        most = _PAGE if topics else min(_PAGE, limit - len(found))
        if stop is not None:
            most = min(most, stop - after)
        if most < 1:
            break
        page = events.fetch_events(_RUN, after_seq=after, limit=most)
        found += [notification(one) for one in page if not topics or one.event_type in topics]
        if len(page) < most:
            break
        after = page[-1].run_seq
    return found[:limit]


def notification(event: Event) -> Notification:
    """The notification that was stored so."""
    data: Any = event.event_data
    originator = data["originator"]
    return Notification(
        originator_id=UUID(originator) if data["uuid"] else originator,
        originator_version=data["version"],
        topic=event.event_type,
        state=state_from_json(data["state"]),
        id=event.run_seq,
    )


class HoldfastSubscription(Subscription[ApplicationRecorder]):
    """Notifications above an id, then new ones as they come, from any process."""

    def __init__(
        self,
        recorder: ApplicationRecorder,
        events: Events,
        gt: int | None,
        topics: Sequence[str],
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._events = events
        self._page: list[Notification] = []
        self._reading = True  # until what was there has been read; from then on the feed tells
        with translated():
            # Before the first page is read: what comes in between is in both.
            self._feed = events.feed(after=events.feed_end())

    def stop(self) -> None:
        """End it, also for who waits for the next notification, on whatever thread."""
        super().stop()
        self._feed.close()

    def __next__(self) -> Notification:
        with translated():
            found = self._next()
        if found is None:
            raise StopIteration
        self._last_notification_id = found.id
        return found

    def _next(self) -> Notification | None:
        last = self._last_notification_id or 0
        if self._reading and not self._page:
            self._page = select(self._events, last, None, _PAGE, self._topics)[::-1]
            self._reading = bool(self._page)
        if self._has_been_stopped:
            return None
        if self._page:
            return self._page.pop()
        for told in self._feed:
            if isinstance(told, FeedEvent) and told.event.run_seq > last:
                found = notification(told.event)
                if not self._topics or found.topic in self._topics:
                    return found
        return None


def _event(stored: StoredEvent) -> Event:
    run_id, version = run_of(stored.originator_id), stored.originator_version
    data = {
        "originator": run_id,
        "uuid": isinstance(stored.originator_id, UUID),
        "version": version,
        "state": state_to_json(stored.state),
    }
    return Event(_RUN, stored.topic, f"{version} of {run_id}", data)

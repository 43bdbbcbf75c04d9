"""The recorders of events: of aggregates, of applications, and of those that process others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
)

from holdfast import Store
from holdfast.contrib.eventsourcing import notifications, originators
from holdfast.contrib.eventsourcing.errors import translated
from holdfast.contrib.eventsourcing.tracking import HoldfastTrackingRecorder
from holdfast.sync.transaction import Transaction

# Each one that fails is the success of another: many threads on one originator need many.
_ATTEMPTS: Final = 200


class HoldfastAggregateRecorder(AggregateRecorder):
    """Events of aggregates, or their snapshots, without notifications."""

    def __init__(self, store: Store, name: str, purpose: str = "events") -> None:
        self.store = store
        self._events_space: Final = f"{name}/stored/{purpose}"

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        **kwargs: Any,  # noqa: ANN401 - what the library hands on
    ) -> Sequence[int] | None:
        """Record all of them or none; IntegrityError when a version is there already."""
        with translated():
            return self.store.transact(
                lambda tx: self._insert(tx, stored_events, **kwargs), attempts=_ATTEMPTS
            )

    def _insert(
        self,
        tx: Transaction,
        stored_events: Sequence[StoredEvent],
        **_kwargs: Any,  # noqa: ANN401 - as above
    ) -> Sequence[int] | None:
        events = tx.namespace(self._events_space).events
        for originator_id, stored in originators.grouped(stored_events).items():
            originators.insert(events, originator_id, stored)
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """The originator's events above and up to these versions, in the order of versions."""
        with translated():
            events = self.store.namespace(self._events_space).events
            return originators.select(events, originator_id, gt=gt, lte=lte, desc=desc, limit=limit)


class HoldfastApplicationRecorder(HoldfastAggregateRecorder, ApplicationRecorder):
    """Events of an application, each with a notification."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store, name)
        self._log_space: Final = f"{name}/notifications"

    def _insert(
        self,
        tx: Transaction,
        stored_events: Sequence[StoredEvent],
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> Sequence[int] | None:
        # First: whoever inserts waits here for the others, so the rest meets nobody.
        ids = notifications.insert(tx.namespace(self._log_space).events, stored_events)
        super()._insert(tx, stored_events, **kwargs)
        return ids

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """The next notifications from the id on, or above it, up to another one."""
        after = 0 if start is None else start - 1 if inclusive_of_start else start
        with translated():
            events = self.store.namespace(self._log_space).events
            return notifications.select(events, max(0, after), stop, limit, topics)

    def max_notification_id(self) -> int | None:
        """The id of the last notification."""
        with translated():
            return notifications.last_id(self.store.namespace(self._log_space).events)

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Notifications above the id, then new ones as they come."""
        events = self.store.namespace(self._log_space).events
        return notifications.HoldfastSubscription(self, events, gt, topics)


class HoldfastProcessRecorder(
    HoldfastTrackingRecorder, HoldfastApplicationRecorder, ProcessRecorder
):
    """Events of an application together with how far it has processed others."""

    def __init__(self, store: Store, name: str) -> None:
        HoldfastTrackingRecorder.__init__(self, store, name)
        HoldfastApplicationRecorder.__init__(self, store, name)

    def _insert(
        self,
        tx: Transaction,
        stored_events: Sequence[StoredEvent],
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> Sequence[int] | None:
        ids = super()._insert(tx, stored_events, **kwargs)
        tracking = cast("Tracking | None", kwargs.get("tracking"))
        if tracking is not None:
            self.track(tx, tracking)
        return ids

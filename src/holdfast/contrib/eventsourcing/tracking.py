"""How far an application has processed others: a record for each of them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from eventsourcing.persistence import IntegrityError, Tracking, TrackingRecorder

from holdfast import Store
from holdfast.contrib.eventsourcing.errors import translated
from holdfast.sync.records import Records
from holdfast.sync.transaction import Transaction

_FIELD: Final = "last_id"


class HoldfastTrackingRecorder(TrackingRecorder):
    """Keeps the last notification id that was processed of each upstream application.

    A view of your own subclasses it, writes in `self.store.transaction()` and calls `track`
    there: position and view are then committed together.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self._tracking_space: Final = f"{name}/tracking"

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record the position; IntegrityError unless it is above the last one."""
        with translated(), self.store.transaction() as tx:
            self.track(tx, tracking)

    def track(self, tx: Transaction, tracking: Tracking) -> None:
        """The same, inside a transaction of the caller's."""
        records = tx.namespace(self._tracking_space).records
        key, new = _key(tracking.application_name), tracking.notification_id
        while True:
            last = _read(records, key)
            if last is not None and last >= new:
                raise IntegrityError(
                    f"tracking of {tracking.application_name!r}: {new} is not above {last}"
                )
            if records.compare_and_swap(key, _FIELD, last, new):
                return

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last position that was recorded."""
        with translated():
            return _read(self.store.namespace(self._tracking_space).records, _key(application_name))


def _key(application_name: str) -> str:
    # Keys of records have no colons.
    return quote(application_name, safe="")


def _read(records: Records, key: str) -> int | None:
    found = records.get_field(key, _FIELD)
    return None if found is None else int(found)

# GENERATED from holdfast/aio/archiver.py by tools/generate_sync.py: change that file instead.
"""The archiver: writes the messages about tasks that have ended to files, a day in each.

    Archiver(store, "/var/archive").run()     # until stop() is called, from anywhere

It is a consumer group: what is published waits for it, and a message is done only when it is in
a file that is durable. So a crash loses nothing. The batch at hand is then delivered again, to
this archiver or another, and may be in the files twice; `read_archive` gives each message once.
Several archivers may run, each with a file of its own (see archive/__init__.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.archive import ArchiveFolder
from holdfast.clock import MICROSECONDS, Duration
from holdfast.errors import NotFound, StoreError
from holdfast.facets.daemons import ArchiverStatus, ArchiveTotals, Metrics, metrics_of
from holdfast.facets.transport import GroupStatus, check_patterns, check_span

if TYPE_CHECKING:
    from holdfast.sync.store import Store

_log = logging.getLogger("holdfast.archiver")
_ACK_TIMEOUT = 60  # seconds for writing one batch
_SLICE = 0.5  # seconds: so soon a stop is noticed
_NEVER_DEAD = 1_000_000  # deliveries: with a full disk a message waits, and is not given up


class Archiver:
    """Archives messages of a store's namespace in a folder."""

    def __init__(
        self,
        store: Store,
        folder: str | os.PathLike[str],
        *,
        group: str = "archiver",
        subjects: str | Iterable[str] = "gbe.tasks.*.terminal",
        batch: int = 200,
        retry: Duration = 5,
        report: Duration = 60,
    ) -> None:
        """`retry` and `report`: seconds after an error, and between two words on the lag."""
        self._store = store
        self._folder = ArchiveFolder(folder)
        self._group = group
        self._consumer = store.transport.consumer(
            group,
            check_patterns(subjects),
            prefetch=batch,
            from_start=True,
            ack_timeout=_ACK_TIMEOUT,
            max_deliveries=_NEVER_DEAD,
        )
        self._retry = check_span(retry, "retry") / MICROSECONDS
        self._report = check_span(report, "report") / MICROSECONDS
        self._stopped = False
        self.totals = ArchiveTotals()
        """What this archiver has written."""

    def run(self) -> None:
        """Archive what comes until `stop` is called; what failed is tried again."""
        report_at = time.monotonic() + self._report
        try:
            while not self._stopped:
                try:
                    self.archive(_SLICE)
                    if time.monotonic() >= report_at:
                        self._say()
                        report_at = time.monotonic() + self._report
                except StoreError as exc:
                    if not exc.retryable:
                        raise
                    _log.warning("archiving failed, trying again in %g s: %s", self._retry, exc)
                    self._rest()
        finally:
            self.close()

    def stop(self) -> None:
        """Let `run` return after the batch at hand. From any thread or signal handler."""
        self._stopped = True

    def archive(self, wait: Duration = 0) -> int:
        """How many messages were written and done: a batch, or none if none came within `wait`.

        After an error nothing is done: the messages are delivered again.
        """
        deliveries = self._consumer.next_batch(wait)
        if not deliveries:
            return 0
        messages = [delivery.message for delivery in deliveries]
        try:
            size = self._store.offload(lambda: self._folder.add(messages))
        except BaseException:
            # If the store is gone too, they come back when their time is up.
            with contextlib.suppress(StoreError):
                self._consumer.nak_batch(deliveries)
            raise
        done = self._consumer.ack_batch(deliveries)
        if done < len(deliveries):
            _log.info("%d messages were delivered to others as well", len(deliveries) - done)
        self.totals += ArchiveTotals(len(messages), size, 1)
        return len(messages)

    def drain(self) -> None:
        """Archive what is there, batch by batch, until there is no more or `stop` is called."""
        try:
            while not self._stopped and self.archive():
                pass
        finally:
            self.close()

    def status(self) -> ArchiverStatus:
        """How far the group is behind; before its first batch there is none, and so no lag."""
        try:
            group = self._store.transport.status(self._group)
        except NotFound:
            group = GroupStatus(0, 0, 0, None)
        lag = timedelta(0)
        if group.oldest_at is not None:
            lag = max(lag, self._store.now() - group.oldest_at)
        return ArchiverStatus(group, lag, self.totals)

    def metrics(self) -> Metrics:
        """The same as numbers by name, for monitoring."""
        status = self.status()
        return metrics_of(
            "archiver",
            status.totals,
            waiting=status.group.waiting + status.group.delivered,
            lag_seconds=status.lag.total_seconds(),
        )

    def close(self) -> None:
        """Let go of the files, for others to write to."""
        self._folder.close()

    def _rest(self) -> None:
        due = time.monotonic() + self._retry
        while not self._stopped and time.monotonic() < due:
            self._store.pause(min(_SLICE, max(0.0, due - time.monotonic())))

    def _say(self) -> None:
        status = self.status()
        _log.info(
            "archived %d messages, %d wait, lag %.1f s",
            self.totals.messages,
            status.group.waiting + status.group.delivered,
            status.lag.total_seconds(),
        )

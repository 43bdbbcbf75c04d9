# GENERATED from holdfast/aio/sweeper.py by tools/generate_sync.py: change that file instead.
"""The sweeper: gives tasks whose workers died to somebody else, and queues what was forgotten.

    Sweeper(store).run()          # until stop() is called, from anywhere

A task that is `claimed` or `running` past its `timeout_at` (without one: `threshold` seconds after
`updated_at`) is pending again, with one retry more; at `max_retries` it has failed. A `pending`
one that nobody took is queued once more, under the same message id, and loses nothing. Every
change is made only if the task is still exactly as it was seen, so several sweepers may run, and
a completion that comes at the last moment wins. Then records that have expired go, and messages
that are done and older than `keep`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from holdfast.clock import MICROSECONDS, Duration
from holdfast.errors import Corrupt, InvalidArgument, StoreError
from holdfast.facets.backend import Capability
from holdfast.facets.daemons import Metrics, SweepResult, metrics_of
from holdfast.facets.records import Record
from holdfast.facets.records_scan import ScanFilter
from holdfast.facets.tasks import HELD, TaskState, TaskStatus
from holdfast.facets.transport import KEEP_SECS, check_span

if TYPE_CHECKING:
    from holdfast.sync.store import Store

_log = logging.getLogger("holdfast.sweeper")
_PAGE = 1000  # tasks of one state in one sweep
_PURGE_PAGE = 500  # messages: so soon a stop is noticed
_SLICE = 0.2  # seconds: so soon a stop is noticed


class Sweeper:
    """Sweeps the tasks of a store's namespace, below one root."""

    def __init__(
        self,
        store: Store,
        *,
        root: str = "gbe",
        interval: Duration = 30,
        threshold: Duration = 300,
        keep: Duration | None = KEEP_SECS,
    ) -> None:
        """`keep`: for how long messages that are done stay in the store; None: for good."""
        self._store = store
        self._tasks = store.tasks.below(root)
        self._interval = check_span(interval, "interval") / MICROSECONDS
        self._threshold_ms = check_span(threshold, "threshold") // 1000
        self._keep = keep
        if keep is not None:
            check_span(keep, "keep", least_us=0)
        self._stopped = False
        self._indexed = False
        self._sweeps = 0  # that looked at everything
        self.totals = SweepResult()
        """What all sweeps so far did."""

    def run(self) -> None:
        """Sweep every `interval` seconds until `stop` is called; a failed sweep is tried again."""
        while not self._stopped:
            try:
                done = self.sweep()
            except StoreError as exc:
                if not exc.retryable:
                    raise
                _log.warning("sweep failed, trying again in %g s: %s", self._interval, exc)
            else:
                level = logging.INFO if done != SweepResult() else logging.DEBUG
                _log.log(level, "swept %s: %s", self._tasks.names.prefix, done)
            due = time.monotonic() + self._interval
            while not self._stopped and time.monotonic() < due:
                self._store.pause(min(_SLICE, max(0.0, due - time.monotonic())))

    def stop(self) -> None:
        """Let `run` return after the task at hand. From any thread or signal handler."""
        self._stopped = True

    def sweep(self) -> SweepResult:
        """Look once at every task that may be stuck, and remove what has expired."""
        self._index()
        now_ms = int((self._store.now()).timestamp() * 1000)
        before = self.totals
        for state in (*sorted(HELD), TaskStatus.PENDING):
            for task in self._due(state, now_ms):
                if self._stopped:
                    return self.totals - before
                self.totals += self._handle(task)
        self.totals += SweepResult(purged=self._store.records.purge())
        self._purge_messages()
        self._sweeps += 1
        return self.totals - before

    def metrics(self) -> Metrics:
        """What was done so far as numbers by name, for monitoring."""
        return metrics_of("sweeper", self.totals, sweeps_total=self._sweeps)

    def _purge_messages(self) -> None:
        if self._keep is None or Capability.TRANSPORT not in self._store.capabilities:
            return
        while not self._stopped:
            gone = self._store.transport.purge(self._keep, limit=_PURGE_PAGE)
            self.totals += SweepResult(purged=gone)
            if gone < _PURGE_PAGE:
                break
            self._store.pause(0)

    def _index(self) -> None:
        """See to it that a sweep reads only what is due, where the engine can."""
        if self._indexed or Capability.RECORDS_INDEX not in self._store.capabilities:
            return
        for field in ("timeout_at", "updated_at"):
            self._store.records.create_index(self._tasks.names.prefix, "state", field)
        self._indexed = True

    def _due(self, state: TaskStatus, now_ms: int) -> list[TaskState]:
        """The tasks in that state whose time is up, a page of each kind."""
        records, prefix = self._store.records, self._tasks.names.prefix
        here = ScanFilter("state", "eq", state)
        found: dict[str, TaskState] = {}
        timed_out = (here, ScanFilter("timeout_at", "lt", now_ms))
        page = records.find(prefix, filters=timed_out, limit=_PAGE)
        for key, record in page:
            self._note(found, key, record)
        if len(found) < len(page) == _PAGE:  # what is no task must not hide those behind it
            for key, record in records.scan(prefix, filters=timed_out):
                self._note(found, key, record)
                if len(found) == _PAGE:
                    break
        # A scan, because a page could be full of those that have a timeout and time left.
        silent = (here, ScanFilter("updated_at", "lt", now_ms - self._threshold_ms))
        most = len(found) + _PAGE
        for key, record in records.scan(prefix, filters=silent):
            if "timeout_at" not in record.fields:
                self._note(found, key, record)
                if len(found) == most:
                    break
        return list(found.values())

    def _note(self, found: dict[str, TaskState], key: str, record: Record) -> None:
        try:
            task = TaskState.of(record.fields)
            own = self._tasks.names.key(task.task_type, task.task_id)
        except (Corrupt, InvalidArgument) as exc:
            _log.warning("record %r: %s", key, exc)
            return
        if key == own:
            found[key] = task
        else:
            _log.warning("record %r: it says that it is the task %r", key, own)

    def _handle(self, task: TaskState) -> SweepResult:
        try:
            return self._bring_back(task)
        except InvalidArgument as exc:  # of this task alone: the others go on
            _log.warning("task %r %r: %s", task.task_type, task.task_id, exc)
            return SweepResult()

    def _bring_back(self, task: TaskState) -> SweepResult:
        if task.state is TaskStatus.PENDING:
            return SweepResult(queued=int(self._tasks.queue_again(task)))
        if task.retry_count < task.max_retries:
            return SweepResult(retried=int(self._tasks.retry(task)))
        return SweepResult(failed=int(self._tasks.give_up(task)))

"""The snapshot of a run: its events, folded one by one into what is true now.

A pure fold: the same events give the same snapshot on every engine, whoever folds them and
from wherever they go on. Times are those that the events were emitted at.

    event                               run          step
    RunQueued                           PENDING
    RunApproved                         APPROVED
    RunStarted, RunResumed              RUNNING
    RunPaused                           PAUSED
    RunCompleted, -Failed, -Cancelled   that, for good
    StepStarted                                      RUNNING, one more attempt
    StepCompleted                                    SUCCESS, with its artifacts
    StepFailed                                       FAILED, with its error
    StepSkipped                                      SKIPPED
    StepRetryScheduled                               PENDING
    StepCorrected                                    what its data says instead

Any other type changes nothing but `last_event_seq`. So does whatever comes after the run's
end; it is counted as an anomaly if Holdfast knows its type, but for corrections, which still do
what they do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.facets.events import Event


class RunStatus(StrEnum):
    """Where a run stands."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """True when it stays so."""
        return self in _TERMINAL


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


_TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})

_RUN_TYPES = {
    "RunQueued": RunStatus.PENDING,
    "RunApproved": RunStatus.APPROVED,
    "RunStarted": RunStatus.RUNNING,
    "RunResumed": RunStatus.RUNNING,
    "RunPaused": RunStatus.PAUSED,
    "RunCompleted": RunStatus.COMPLETED,
    "RunFailed": RunStatus.FAILED,
    "RunCancelled": RunStatus.CANCELLED,
}
_STEP_TYPES = {
    "StepStarted": StepStatus.RUNNING,
    "StepCompleted": StepStatus.SUCCESS,
    "StepFailed": StepStatus.FAILED,
    "StepSkipped": StepStatus.SKIPPED,
    "StepRetryScheduled": StepStatus.PENDING,
}
_CORRECTION = "StepCorrected"
_STEPS = frozenset(StepStatus)
_ENDS = frozenset({StepStatus.SUCCESS, StepStatus.FAILED, StepStatus.SKIPPED})

EVENT_TYPES = frozenset({*_RUN_TYPES, *_STEP_TYPES, _CORRECTION}) | {
    *("SignalAccepted", "SignalRejected", "RunClaimed", "RunSleeping", "RunWoken"),
    *("RunRetryScheduled", "RunLeaseExpired", "RunDeadlineExceeded"),
}
"""The types that Holdfast knows. Others are welcome."""


class StepSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step as it is now."""

    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    error: Any = None
    artifacts: Any = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class RunSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run as it is now; `created_at` is of its first event."""

    run_id: str
    status: RunStatus = RunStatus.PENDING
    last_event_seq: int = 0
    steps: dict[str, StepSnapshot] = {}
    error: Any = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    anomalies: int = 0

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end, None until then."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def hash(self) -> str:
        """A SHA-256 in hex: equal for equal snapshots."""
        return hashlib.sha256(_sorted(self)).hexdigest()


_sorted = msgspec.json.Encoder(order="deterministic").encode


def fold(snapshot: RunSnapshot, events: Iterable[Event]) -> RunSnapshot:
    """The snapshot after these events, which are the next ones of the run, in order."""
    folding = _Folding(snapshot)
    for event in events:
        folding.apply(event)
    return RunSnapshot(**vars(folding))


class _Folding:
    """A snapshot that changes in place: a run may have as many steps as events."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        self.run_id = snapshot.run_id
        self.status = snapshot.status
        self.last_event_seq = snapshot.last_event_seq
        self.steps = dict(snapshot.steps)
        self.error = snapshot.error
        self.created_at = snapshot.created_at
        self.started_at = snapshot.started_at
        self.ended_at = snapshot.ended_at
        self.anomalies = snapshot.anomalies

    def apply(self, event: Event) -> None:
        self.last_event_seq = event.run_seq
        if self.created_at is None:
            self.created_at = event.emitted_at
        kind = event.event_type
        if kind == _CORRECTION:
            self._change_step(event, _corrected)
        elif self.status.terminal:
            self.anomalies += kind in EVENT_TYPES
        elif kind in _STEP_TYPES:
            self._change_step(event, _moved)
        elif kind in _RUN_TYPES:
            self._change_run(event)

    def _change_run(self, event: Event) -> None:
        self.status = _RUN_TYPES[event.event_type]
        if event.event_type == "RunStarted" and self.started_at is None:
            self.started_at = event.emitted_at
        if self.status.terminal:
            self.ended_at = event.emitted_at
            self.error = _part(event, "error") if self.status is RunStatus.FAILED else None

    def _change_step(
        self, event: Event, change: Callable[[StepSnapshot, Event], StepSnapshot]
    ) -> None:
        if event.step_id is None:
            self.anomalies += 1
        else:
            step = self.steps.get(event.step_id, _NO_STEP)
            self.steps[event.step_id] = change(step, event)


_NO_STEP = StepSnapshot()


def _moved(step: StepSnapshot, event: Event) -> StepSnapshot:
    status = _STEP_TYPES[event.event_type]
    started = status is StepStatus.RUNNING
    return StepSnapshot(
        status,
        step.attempts + started,
        _part(event, "error") if status is StepStatus.FAILED else None,
        _part(event, "artifacts") if status is StepStatus.SUCCESS else step.artifacts,
        event.emitted_at if started and step.started_at is None else step.started_at,
        event.emitted_at if status in _ENDS else None,
    )


def _corrected(step: StepSnapshot, event: Event) -> StepSnapshot:
    data = event.event_data if isinstance(event.event_data, dict) else {}
    status = data.get("status")
    return msgspec.structs.replace(
        step,
        status=StepStatus(status) if isinstance(status, str) and status in _STEPS else step.status,
        error=data.get("error", step.error),
        artifacts=data.get("artifacts", step.artifacts),
    )


def _part(event: Event, name: str) -> Any:  # noqa: ANN401 - any JSON value
    """What the event's data has under that name; the data itself is nobody's contract."""
    return event.event_data.get(name) if isinstance(event.event_data, dict) else None

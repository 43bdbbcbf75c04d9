"""What the daemons tell about their work."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from operator import add, sub

import msgspec
from msgspec.structs import asdict, astuple

from holdfast.facets.transport import GroupStatus

Metrics = dict[str, float]
"""Numbers by name, as monitoring systems want them; those that only grow end in `_total`."""


def metrics_of(daemon: str, totals: msgspec.Struct, **now: float) -> Metrics:
    """What the daemon has done since it was made, and how things are now."""
    done = {f"holdfast_{daemon}_{name}_total": float(n) for name, n in asdict(totals).items()}
    return done | {f"holdfast_{daemon}_{name}": float(n) for name, n in now.items()}


class SweepResult(msgspec.Struct, frozen=True):
    """What a sweep did: tasks retried, failed, queued again; records and messages purged."""

    retried: int = 0
    failed: int = 0
    queued: int = 0
    purged: int = 0

    def __add__(self, other: SweepResult) -> SweepResult:
        return SweepResult(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: SweepResult) -> SweepResult:
        return SweepResult(*map(sub, astuple(self), astuple(other)))


class ArchiveTotals(msgspec.Struct, frozen=True):
    """What an archiver has written: messages, their compressed bytes, batches."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0

    def __add__(self, other: ArchiveTotals) -> ArchiveTotals:
        return ArchiveTotals(*map(add, astuple(self), astuple(other)))


class ArchiverStatus(msgspec.Struct, frozen=True):
    """How far the group of archivers is, and what this one has done."""

    group: GroupStatus
    lag: timedelta
    """How long the oldest message that is in no file yet has been waiting."""
    totals: ArchiveTotals


class Resync(StrEnum):
    """From where a run is read anew when events are missing or too late."""

    FULL = "FULL"
    FROM_SNAPSHOT = "FROM_SNAPSHOT"


class MarkKind(StrEnum):
    """What is wrong with a view of a run."""

    STALE = "STALE"
    FAILED = "FAILED"


class RunMark(msgspec.Struct, frozen=True):
    """A view of a run that the projector could not bring up to date, or not yet."""

    run_id: str
    view: str
    kind: MarkKind
    run_seq: int
    """The event at which it happened."""
    reason: str


class ProjectTotals(msgspec.Struct, frozen=True):
    """What a projector did: events folded, views kept, runs resynced, gaps found, views failed.

    An event counts once for each view.
    """

    events: int = 0
    kept: int = 0
    resyncs: int = 0
    gaps: int = 0
    failed: int = 0

    def __add__(self, other: ProjectTotals) -> ProjectTotals:
        return ProjectTotals(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: ProjectTotals) -> ProjectTotals:
        return ProjectTotals(*map(sub, astuple(self), astuple(other)))


class ProjectorAlert(msgspec.Struct, frozen=True):
    """The views are too far behind; told once, until they have caught up."""

    lag: timedelta
    code: str = "PROJECTOR_LAG_HIGH"
    severity: str = "P2"


class ProjectorStatus(msgspec.Struct, frozen=True):
    """How far the views of a projector's own shards are, and what it has done."""

    shards: int
    """How many it looks after now."""
    lag: timedelta
    """How long the oldest event that is in no kept view yet has been stored."""
    alert: ProjectorAlert | None
    """What was told and still holds."""
    totals: ProjectTotals

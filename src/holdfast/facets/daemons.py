"""What the daemons tell about their work."""

from __future__ import annotations

from datetime import timedelta
from operator import add, sub

import msgspec
from msgspec.structs import astuple

from holdfast.facets.transport import GroupStatus


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

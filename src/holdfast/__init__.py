"""Holdfast: durable state for distributed work.

with holdfast.open("sqlite:///app.db") as store:
    store.cells.set("greeting", "hello")

async with holdfast.open_async("postgresql://localhost/app") as store:
    await store.cells.set("greeting", "hello")

`from holdfast import *` leaves Python's own `open` as it is: write `holdfast.open`.
"""

from holdfast import events
from holdfast.aio.archiver import AsyncArchiver
from holdfast.aio.projector import AsyncProjector
from holdfast.aio.store import AsyncStore
from holdfast.aio.sweeper import AsyncSweeper
from holdfast.aio.transaction import AsyncTransaction
from holdfast.aio.transport import AsyncConsumer, AsyncDelivery
from holdfast.aio.watch import AsyncWatch
from holdfast.archive import read_archive
from holdfast.claim_check import AsyncClaimCheck, ClaimCheck
from holdfast.config import StoreConfig
from holdfast.errors import (
    AlreadyCompleted,
    Conflict,
    Corrupt,
    Database,
    InvalidArgument,
    InvalidState,
    LockConflict,
    NotFound,
    PreconditionFailed,
    ProjectionFailed,
    Serialization,
    StoreClosed,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from holdfast.facets.backend import Capability
from holdfast.facets.branches import Branch, Change, MergeResult
from holdfast.facets.cells import Cell, CellChange
from holdfast.facets.daemons import (
    ArchiverStatus,
    ArchiveTotals,
    MarkKind,
    ProjectorAlert,
    ProjectorStatus,
    ProjectTotals,
    Resync,
    RunMark,
    SweepResult,
)
from holdfast.facets.events import AppendResult, Event, FeedEvent, idempotency_key
from holdfast.facets.projection import RunSnapshot, RunStatus, StepSnapshot, StepStatus
from holdfast.facets.records import Record, RecordChange, RecordIndex, Stamp
from holdfast.facets.records_scan import ScanFilter
from holdfast.facets.search import SearchHit
from holdfast.facets.tasks import TaskState, TaskStatus
from holdfast.facets.transport import DeadLetter, GroupStatus, Message
from holdfast.facets.views import Projection, View
from holdfast.facets.watch import CAUGHT_UP, CaughtUp
from holdfast.opening import migrate, open_async
from holdfast.opening import open as open  # noqa: A004 - public, but not in __all__
from holdfast.sync.archiver import Archiver
from holdfast.sync.projector import Projector
from holdfast.sync.store import Store
from holdfast.sync.sweeper import Sweeper
from holdfast.sync.transaction import Transaction
from holdfast.sync.transport import Consumer, Delivery
from holdfast.sync.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "CAUGHT_UP",
    "AlreadyCompleted",
    "AppendResult",
    "ArchiveTotals",
    "Archiver",
    "ArchiverStatus",
    "AsyncArchiver",
    "AsyncClaimCheck",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProjector",
    "AsyncStore",
    "AsyncSweeper",
    "AsyncTransaction",
    "AsyncWatch",
    "Branch",
    "Capability",
    "CaughtUp",
    "Cell",
    "CellChange",
    "Change",
    "ClaimCheck",
    "Conflict",
    "Consumer",
    "Corrupt",
    "Database",
    "DeadLetter",
    "Delivery",
    "Event",
    "FeedEvent",
    "GroupStatus",
    "InvalidArgument",
    "InvalidState",
    "LockConflict",
    "MarkKind",
    "MergeResult",
    "Message",
    "NotFound",
    "PreconditionFailed",
    "ProjectTotals",
    "Projection",
    "ProjectionFailed",
    "Projector",
    "ProjectorAlert",
    "ProjectorStatus",
    "Record",
    "RecordChange",
    "RecordIndex",
    "Resync",
    "RunMark",
    "RunSnapshot",
    "RunStatus",
    "ScanFilter",
    "SearchHit",
    "Serialization",
    "Stamp",
    "StepSnapshot",
    "StepStatus",
    "Store",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "SweepResult",
    "Sweeper",
    "TaskState",
    "TaskStatus",
    "Timeout",
    "Transaction",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "View",
    "Watch",
    "events",
    "idempotency_key",
    "migrate",
    "open_async",
    "read_archive",
]

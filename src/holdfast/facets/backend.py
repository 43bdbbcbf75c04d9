"""The contract between the public API and an engine, and what an engine says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NoReturn, Protocol, TypeVar

from holdfast.errors import InvalidState, Unsupported
from holdfast.facets.branches import BranchesBackend
from holdfast.facets.cells import CellLog, CellsBackend
from holdfast.facets.events import EventLog, EventsBackend
from holdfast.facets.records import RecordIndexes, RecordLog, RecordsBackend
from holdfast.facets.search import SearchBackend
from holdfast.facets.sessions import Order
from holdfast.facets.transport import TransportBackend
from holdfast.facets.watch import Listener

T = TypeVar("T")


class Capability(StrEnum):
    """An ability that an engine has or lacks. The value is `facet: ability`, for people.

    A call that needs a missing one raises Unsupported at once.
    """

    SHARED = "store: several processes may open it"
    REMOTE = "store: several machines may open it"
    BACKUP = "store: online backup by the library"
    TRANSACTIONS = "store: transactions over all facets and the caller's tables"
    JOIN = "store: takes part in the caller's own transaction"
    NAMESPACES = "store: tells its namespaces"
    MOVABLE_CLOCK = "store: tests can move the clock"
    CELLS = "cells: init, get, set, cas, delete, list"
    CELLS_ATOMIC = "cells: set_many is one atomic commit"
    CELLS_WATCH = "cells: watch, from a cursor too"
    CELLS_HISTORY = "cells: getv, get_at and retention"
    BRANCHES = "cells: branches, fork, diff and merge"
    CELLS_SEARCH = "cells: search by words"
    RECORDS = "records: fields with a time to live, compare-and-set, scan"
    RECORDS_INDEX = "records: scans by an index"
    RECORDS_WATCH = "records: watch, from a cursor too"
    TRANSPORT = "transport: publish, consumer groups, dead letters"
    EVENTS = "events: append, fetch, snapshots, feed"
    SESSIONS = "cells: sessions, which read one snapshot"


Params = Mapping[str, Any] | Sequence[Any]
"""Of the caller's own statement, as the engine's driver takes them."""

Progress = Callable[[int, int], None]
"""Called with pages done and pages in all."""


class Able(Protocol):
    """What says what it can do."""

    @property
    def engine(self) -> str:
        """The engine's name, for people."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store can do."""


def require(backend: Able, capability: Capability) -> None:
    """Raise Unsupported when the engine lacks the ability."""
    if capability not in backend.capabilities:
        raise Unsupported(
            f"{backend.engine} lacks the ability '{capability.value}'",
            engine=backend.engine,
            capability=capability.name,
        )


def missing() -> Any:  # noqa: ANN401 - stands for whatever the engine lacks
    """In place of a facet that an engine lacks: its capability is missing, so nobody asks it."""
    return _Missing()


class _Missing:
    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"asked for {name!r}, which this engine lacks: require() it first")


def no_watch(where: str) -> InvalidState:
    """The error for a watch inside a transaction or session."""
    return InvalidState(f"nobody waits for changes inside a {where}: do so through the store")


class Engine(Able, Protocol):
    """What every facade asks of a store, a transaction or a session."""

    async def pause(self, seconds: float = 0) -> None:
        """Let others run: between the pages of a long scan, before a repeat."""


class CellFacets(Engine, Protocol):
    """What cells need."""

    @property
    def cells(self) -> CellsBackend:
        """The engine's cells."""

    @property
    def search(self) -> SearchBackend:
        """The engine's search in cells."""

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """The log of the namespace's cells, and one who hears of news; not in a transaction."""

    def session(self, order: Order) -> OpenSession:
        """A session of cells, which asks nothing yet; InvalidState inside a transaction."""


class RecordFacets(Engine, Protocol):
    """What records need."""

    @property
    def records(self) -> RecordsBackend:
        """The engine's records."""

    @property
    def record_indexes(self) -> RecordIndexes:
        """The engine's indexes over records."""

    def follow_records(self, namespace: str) -> tuple[RecordLog, Listener]:
        """The log of the namespace's records, and one who hears of news."""


class TransportFacets(Engine, Protocol):
    """What the transport needs."""

    @property
    def transport(self) -> TransportBackend:
        """The engine's transport."""

    def follow_transport(self, namespace: str) -> Listener:
        """One who hears of messages in the namespace; not in a transaction."""


class EventFacets(Engine, Protocol):
    """What events need."""

    @property
    def events(self) -> EventsBackend:
        """The engine's events."""

    def follow_events(self, namespace: str) -> tuple[EventLog, Listener]:
        """The log of the namespace's events, and one who hears of news; not in a transaction."""


class Facets(CellFacets, RecordFacets, TransportFacets, EventFacets, Protocol):
    """What facades work on: a store, or one transaction of it."""


class OpenTransaction(Facets, Protocol):
    """A transaction that has begun. Every error of the engine ends it; so do the last two calls."""

    async def execute(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        """The rows of the caller's own statement."""

    async def commit(self) -> None:
        """Make everything durable, or raise and leave nothing behind."""

    async def rollback(self) -> None:
        """Leave nothing behind."""


class OpenSession(CellFacets, Protocol):
    """A session of cells: its first read opens the snapshot, and the last two calls end it.

    So does a failed read, and the snapshot's age: every call is a Timeout from then on.
    Whatever ends it, and also when it is forgotten, it leaves nothing open.
    """

    async def commit(self) -> dict[str, int]:
        """Write everything in one atomic commit: the new version of each cell with a value.

        Conflict, retryable and with the names as `cells`, when others changed what was read.
        """

    async def rollback(self) -> None:
        """Leave nothing behind."""


class Backend(Facets, Protocol):
    """One open store on some engine."""

    @property
    def branches(self) -> BranchesBackend:
        """The engine's branches."""

    async def begin(self, limit: float) -> OpenTransaction:
        """A transaction that may take so many seconds, the wait for it included."""

    async def join(self, connection: object) -> OpenTransaction:
        """The transaction that the caller has begun on a connection of its own."""

    async def offload(self, work: Callable[[], T]) -> T:
        """The result of long blocking work; under asyncio it is done on another thread."""

    async def ping(self) -> None:
        """Return when the store answers; raise what stands in the way."""

    async def list_namespaces(self) -> list[str]:
        """The namespaces in which there is something, in byte order."""

    async def now_us(self) -> int:
        """The store's clock."""

    async def move_clock(self, by_us: int) -> None:
        """Shift the store's clock for everyone who uses it. For tests."""

    async def backup(self, path: str, progress: Progress | None) -> None:
        """Write a consistent copy of the store, as of now, to a new file."""

    async def close(self) -> None:
        """Finish what is in flight and free everything; every call returns when that is done."""

"""Events on an SQL engine: a row for each run, and one for each event."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.batching import Batch
from holdfast.backends.sql.db import Db
from holdfast.backends.sql.feed import Feed
from holdfast.facets.events import (
    LOG,
    Append,
    EventRow,
    Keep,
    Outcome,
    RunKey,
    RunState,
    StoredEvent,
    StoredSnapshot,
)
from holdfast.facets.feed import Page, Position
from holdfast.facets.names import next_name


class Gone(NamedTuple):
    """A run to delete; see EventsBackend.delete."""

    run: RunKey
    limit: int
    generation: int
    last_seq: int | None


class EventBatches(NamedTuple):
    """The writing operations, as each engine does them."""

    append: Batch[Append, Outcome]
    delete: Batch[Gone, bool | None]
    put: Batch[Keep, bool]


class EventQueries(NamedTuple):
    """Queries that engines word differently."""

    fetch: str
    runs: str
    state: str
    position: str
    end: str
    changes: str

    @classmethod
    def of(cls, own: Mapping[str, str]) -> EventQueries:
        """An engine's own queries by their names."""
        return cls(
            fetch=own["fetch_events"],
            runs=own["list_runs"],
            state=own["get_state"],
            position=own["find_position"],
            end=own.get("find_end", own["find_position"]),
            changes=own["read_changes"],
        )


class SqlEvents:
    """See EventsBackend and EventLog."""

    def __init__(self, db: Db, batches: EventBatches, own: EventQueries) -> None:
        self._db = db
        self._batches = batches
        self._own = own
        self._feed = Feed(db, position=own.position, end=own.end, changes=own.changes)
        self.position = self._feed.position
        self.end = self._feed.end

    def append(self, appends: Sequence[Append], size: int) -> Awaitable[Sequence[Outcome]]:
        """See EventsBackend."""
        return self._db.write(self._batches.append, appends, size, (LOG, appends[0].run[0]))

    async def fetch(
        self, run: RunKey, *, after: int, limit: int, generation: int | None = None
    ) -> list[EventRow]:
        """See EventsBackend."""
        params = {
            "namespace": run[0],
            "run_id": run[1],
            "after": after,
            "limit": limit,
            "generation": 0 if generation is None else generation,
        }
        rows: list[Any] = await self._db.fetch(self._own.fetch, params)
        return rows

    async def runs(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        """See EventsBackend."""
        params = {"namespace": namespace, "first": next_name(after), "limit": limit}
        return [run_id for (run_id,) in await self._db.fetch(self._own.runs, params)]

    async def delete(
        self, run: RunKey, limit: int, *, generation: int, last_seq: int | None = None
    ) -> bool | None:
        """See EventsBackend."""
        gone = Gone(run, limit, generation, last_seq)
        (done,) = await self._db.write(self._batches.delete, [gone])
        return done

    async def state(self, run: RunKey, view: str) -> RunState | None:
        """See EventsBackend."""
        params = {"namespace": run[0], "run_id": run[1], "view": view}
        rows = await self._db.fetch(self._own.state, params)
        if not rows:
            return None
        generation, last_seq, kept_seq, payload = rows[0]
        kept = None if payload is None else StoredSnapshot(kept_seq, payload)
        return RunState(generation, last_seq, kept)

    async def keep(self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot) -> bool:
        """See EventsBackend."""
        (kept,) = await self._db.write(self._batches.put, [Keep(run, view, generation, snapshot)])
        return kept

    async def keep_all(self, keeps: Sequence[Keep]) -> Sequence[bool]:
        """See EventsBackend."""
        return await self._db.write(self._batches.put, keeps)

    async def start(self) -> Position:
        """See EventLog."""
        return Position(1, 0, 0)

    async def changes(
        self, namespace: str, *, after: Position, limit: int
    ) -> Page[tuple[Position, StoredEvent]]:
        """See EventLog."""
        page = await self._feed.read(after, limit, {"namespace": namespace})
        return page.of([(place, StoredEvent._make(row)) for place, row in page.changes])

"""Sessions of cells on SQL: facets/sessions.py, fed from a snapshot.

The snapshot is given back before the commit, which needs only what was
remembered: a session never waits for a second connection while it holds one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, Protocol

from holdfast.backends.sql.branches import Spelling
from holdfast.backends.sql.cells import SqlCells
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.snapshot import OVER, Snapshot
from holdfast.errors import InvalidState, Timeout, Unavailable
from holdfast.facets.backend import Capability, CellFacets, OpenSession, no_watch
from holdfast.facets.branches import EVERYTHING, MAIN_ID
from holdfast.facets.cells import CellKey, CellLog, CellOutcome, CellWrite, StoredCell, no_branch
from holdfast.facets.names import next_name, prefix_end
from holdfast.facets.search import SearchBackend
from holdfast.facets.sessions import (
    NEVER_SEEN,
    Order,
    Overlay,
    Seen,
    SessionCommit,
    changed,
    no_session_here,
    refuse_op_id,
)
from holdfast.facets.watch import Listener
from holdfast.runtime import Runtime

Opened = tuple[Snapshot, SqlCells]
"""A snapshot, and the cells in it."""


class Ended(NamedTuple):
    """What became of a commit; `known`: this operation was done before."""

    outcome: Literal["done", "known", "changed", "no branch"]
    cells: Sequence[str]  # that others changed
    repeat: bool  # it was the store's own second try


class SessionEngine(Protocol):
    """What each engine does its own way for sessions."""

    @property
    def runtime(self) -> Runtime:
        """The colour."""

    @property
    def own(self) -> Spelling:
        """The engine's queries."""

    async def open(self, limit: float) -> Opened:
        """A snapshot, which begins with its first read, and the cells in it."""

    async def commit(self, commit: SessionCommit, size: int) -> Ended:
        """Check everything, and write if nothing has changed, in one transaction."""

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """The rows of a statement that reads the store as it is now."""


class SqlSession:
    """See OpenSession."""

    def __init__(self, store: CellFacets, engine: SessionEngine, order: Order) -> None:
        self.engine: str = store.engine
        self.capabilities: frozenset[Capability] = store.capabilities
        self.cells = SessionCells(engine, order)
        self.pause = store.pause
        self.commit = self.cells.commit
        self.rollback = self.cells.rollback

    @property
    def search(self) -> SearchBackend:
        """See CellFacets."""
        raise InvalidState("there is no search inside a session: search through the store")

    def follow_cells(self, namespace: str) -> tuple[CellLog, Listener]:
        """See CellFacets."""
        del namespace
        raise no_watch("session")

    def session(self, order: Order) -> OpenSession:
        """See CellFacets."""
        raise no_session_here(order, "session")


class SessionCells:
    """See CellsBackend: the snapshot's cells, with the session's own writes on top.

    Tasks or threads that share a session take turns.
    """

    def __init__(self, engine: SessionEngine, order: Order) -> None:
        self._engine = engine
        self._order = order
        self._overlay = Overlay()
        self._turns = engine.runtime.limiter(1)
        self._opened: Opened | None = None
        self._branch_id: int | None = None
        self._over = False

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        name = key[-1]
        async with self._turn():
            await self._look([name])
            return self._overlay.get(name)

    async def get_many(
        self, namespace: str, branch: str, names: Sequence[str]
    ) -> dict[str, StoredCell]:
        """See CellsBackend."""
        del namespace, branch  # they are the session's
        async with self._turn():
            await self._look(names)
            found = {name: self._overlay.get(name) for name in names}
        return {name: cell for name, cell in found.items() if cell is not None}

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """See CellsBackend. What the session wrote itself has no time yet."""
        async with self._turn():
            _, cells = await self._look([key[-1]])
            return await cells.get_at(key, at_us)

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """See CellsBackend. What the session wrote comes first, as one version."""
        async with self._turn():
            _, cells = await self._look([key[-1]])
            own = self._overlay.own(key[-1]) if before_commit is None else None
            if own is None:
                return await cells.history(key, before_commit=before_commit, limit=limit)
            return [own, *await cells.history(key, before_commit=None, limit=limit)][:limit]

    async def names(
        self, namespace: str, branch: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """See CellsBackend."""
        async with self._turn():
            _, cells = await self._open()
            found, last = await cells.names(
                namespace, branch, prefix=prefix, after=after, limit=limit
            )
            first = max(prefix, next_name(after))
            end = prefix_end(prefix) if last is None else next_name(last)
            return self._overlay.names(first, end, found), last

    async def write(self, writes: Sequence[CellWrite], size: int) -> Sequence[CellOutcome]:
        """See CellsBackend: kept for the commit."""
        del size
        if any(write.op_given for write in writes):
            raise refuse_op_id()
        async with self._turn():
            await self._look([write.key[-1] for write in writes])
            return self._overlay.write(writes)

    async def prune(
        self, namespace: str, branch: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """See CellsBackend. Never called: a session's facade has no such operation."""
        raise NotImplementedError(namespace, branch, after, limit)

    async def commit(self) -> dict[str, int]:
        """See OpenSession."""
        async with self._turn():
            self._over = True
            await self._close()
            commit = self._overlay.commit(self._order, self._branch_id or MAIN_ID)
            return {} if commit is None else await self._commit(commit)

    async def rollback(self) -> None:
        """See OpenSession."""
        # Not in turn: who was interrupted in the middle of a read may not have left yet.
        self._over = True
        await self._close()

    async def _commit(self, commit: SessionCommit) -> dict[str, int]:
        ended = await self._engine.commit(commit, self._overlay.size)
        if ended.outcome == "known" and commit.operation.given:
            return await self._first_answer(commit)
        if ended.outcome == "no branch":
            raise no_branch(commit.branch)
        if ended.outcome == "changed" and ended.repeat:
            raise Unavailable(
                "session: the connection was lost, and what became of the first try cannot be told",
                outcome_unknown=True,
            )
        if ended.outcome == "changed":
            raise changed(ended.cells)
        return commit.versions

    async def _first_answer(self, commit: SessionCommit) -> dict[str, int]:
        own = self._engine.own
        params = {
            "namespace": commit.namespace,
            "branch_id": commit.branch_id,
            "op_id": own.op_id(commit.operation.id),
        }
        rows = await self._engine.fetch(own.list_merged, params)
        return {name: version for name, version, deleted in rows if not deleted}

    async def _look(self, names: Sequence[str]) -> Opened:
        """The snapshot and its cells, once all of the names have been seen."""
        _, cells = opened = await self._open()
        unseen = self._overlay.unseen(names)
        if not unseen:
            return opened
        if self._branch_id is None:
            lineage = await cells.lineages.of(self._order.namespace, self._order.branch)
            self._branch_id = lineage[0][0]
        lineage = ((self._branch_id, EVERYTHING),)
        rows = await cells.states(self._order.namespace, unseen, lineage)
        found = {name: Seen(*seen) for name, *seen, _ in rows}
        self._overlay.see(dict.fromkeys(unseen, NEVER_SEEN) | found)
        return opened

    async def _open(self) -> Opened:
        """The snapshot, which the first call opens, and its cells."""
        if self._opened is None:
            self._opened = await self._engine.open(self._order.max_age)
        return self._opened

    async def _close(self) -> None:
        if self._opened is not None:
            await self._opened[0].close()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        self._check()
        place = await self._turns.acquire(self._order.max_age)
        if place is None:
            raise Timeout(f"the session was busy for {self._order.max_age:g} s")
        try:
            self._check()
            yield
        finally:
            place.release()

    def _check(self) -> None:
        if self._over:
            raise InvalidState(f"the session is over: {OVER}")
        if self._opened is not None:
            self._opened[0].check()

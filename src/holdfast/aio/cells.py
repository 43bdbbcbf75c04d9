"""Cells: named values with a version counter, changed by compare-and-swap.

    version = await store.cells.set("config", {"limit": 10})
    cell = await store.cells.get_versioned("config")
    if await store.cells.cas("config", cell.version, {"limit": 20}) is None:
        ...  # somebody else changed it first: read again and decide

Values are any JSON value, and bytes. Every version is kept unless the store's
`history` says otherwise. A write takes an `op_id`: the same id again changes
nothing and returns the first answer, for as long as that version is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar, overload
from uuid import UUID

from holdfast import codec
from holdfast.aio.retry import repeated
from holdfast.aio.sessions import AsyncCellsSession
from holdfast.aio.watch import AsyncWatch
from holdfast.clock import Duration, to_us
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument
from holdfast.facets.backend import Capability, CellFacets, Progress, require
from holdfast.facets.branches import Operation
from holdfast.facets.cells import (
    ABSENT,
    ANY,
    LOG,
    MAIN,
    MAX_COMMIT_BYTES,
    Cell,
    CellChange,
    CellKey,
    CellWrite,
    StoredCell,
    check_cell_name,
    check_expected,
)
from holdfast.facets.cells_watch import CellSource, Written
from holdfast.facets.feed import from_cursor
from holdfast.facets.names import check_name, check_prefix, operation_id
from holdfast.facets.search import SearchHit, check_hits, parse_words
from holdfast.facets.sessions import MAX_AGE, Order, check_max_age
from holdfast.facets.watch import CaughtUp, Seen, Watching

T = TypeVar("T")
_log = logging.getLogger("holdfast.cells")
_PAGE = 1000
_PRUNE_PAGE = 100  # cells per transaction, so that others get their turn

# Inside the class, `list` is the method.
Versions = list[Cell]
Names = list[str]
Hits = list[SearchHit]


class AsyncCells:
    """The cells of one namespace, on one branch."""

    def __init__(
        self, backend: CellFacets, namespace: str, config: StoreConfig, branch: str = MAIN
    ) -> None:
        self._backend = backend
        self._cells = backend.cells
        self._namespace = namespace
        self._branch = branch
        self._config = config
        self._large = min(config.payload_warn_bytes, config.payload_max_bytes)

    def on(self, branch: str) -> AsyncCells:
        """The cells as they are on that branch; `store.branches` makes branches.

        Nothing is looked up here: a call on a branch that does not exist raises NotFound.
        """
        require(self._backend, Capability.BRANCHES)
        check_name(branch, what="branch name")
        return AsyncCells(self._backend, self._namespace, self._config, branch)

    def session(
        self, max_age: Duration = MAX_AGE, *, op_id: UUID | str | None = None
    ) -> AsyncCellsSession:
        """A session on these cells, for `async with`: one snapshot to read, one commit at its end.

        The snapshot may become `max_age` seconds old, at most 30: from then on the session
        raises Timeout. `op_id` is the commit's: the same id again changes nothing.
        """
        require(self._backend, Capability.SESSIONS)
        operation = Operation(operation_id(op_id), op_id is not None)
        order = Order(self._namespace, self._branch, check_max_age(max_age), operation)
        opened = self._backend.session(order)
        cells = AsyncCells(opened, self._namespace, self._config, self._branch)
        return AsyncCellsSession(cells, opened)

    async def in_session(
        self,
        work: Callable[[AsyncCellsSession], Awaitable[T]],
        *,
        attempts: int = 10,
        max_age: Duration = MAX_AGE,
        op_id: UUID | str | None = None,
    ) -> T:
        """The work's result, done in a session, again when it meets a retryable Conflict.

        The work is called once for each attempt, so it must have no effect outside.
        """

        async def attempt() -> T:
            async with self.session(max_age, op_id=op_id) as session:
                return await work(session)

        return await repeated(attempt, attempts, self._backend)

    async def init(self, name: str, value: object, *, op_id: UUID | str | None = None) -> int:
        """The cell's version: of the value given here if it did not exist, else of what it has.

        An existing cell is left as it is, so every process can call this at its start.
        """
        write = self._to_write(name, ABSENT, self._encode(name, value), op_id)
        (outcome,) = await self._cells.write([write], len(write.payload or ""))
        return outcome.version

    async def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """The cell's value, or the default when there is no such cell."""
        key = (self._namespace, self._branch, check_cell_name(name))
        stored = await self._cells.get(key)
        return default if stored is None else codec.decode(stored[0])

    async def get_many(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of those of the cells that are there, by name, in the order of the names.

        Up to 1,000 names are one read, of one moment except on NATS; more are read 1,000 at a time.
        """
        if isinstance(names, str | bytes):
            raise InvalidArgument("get_many: wanted several names, found one text; use get")
        wanted = [*dict.fromkeys(map(check_cell_name, names))]
        values: dict[str, Any] = {}
        for begin in range(0, len(wanted), _PAGE):
            if begin:
                await self._backend.pause()
            page = wanted[begin : begin + _PAGE]
            found = await self._cells.get_many(self._namespace, self._branch, page)
            values |= {name: codec.decode(found[name][0]) for name in page if name in found}
        return values

    async def get_versioned(self, name: str) -> Cell | None:
        """The cell's value with its version, or None when there is no such cell."""
        stored = await self._cells.get(self._key(name))
        return None if stored is None else _cell(stored)

    async def get_at(self, name: str, when: datetime | int) -> Cell | None:
        """The version that was current at an instant, or None when there was none.

        The instant is an aware datetime, or microseconds as in `Cell.updated_at`.
        """
        require(self._backend, Capability.CELLS_HISTORY)
        stored = await self._cells.get_at(self._key(name), to_us(when))
        return None if stored is None else _cell(stored)

    async def getv(self, name: str, limit: int | None = None) -> Versions:
        """The versions that are kept, newest first; a deleted cell's too. Empty if it never was."""
        require(self._backend, Capability.CELLS_HISTORY)
        key, left = self._key(name), _check_limit(limit)
        before: int | None = None
        versions: Versions = []
        while left is None or left > 0:
            size = _PAGE if left is None else min(left, _PAGE)
            page = await self._cells.history(key, before_commit=before, limit=size)
            versions.extend(map(_cell, page))
            if len(page) < size:
                break
            before = page[-1][-1]
            left = None if left is None else left - size
            await self._backend.pause()
        return versions

    async def set(self, name: str, value: object, *, op_id: UUID | str | None = None) -> int:
        """The new version, whatever was there before."""
        write = self._to_write(name, ANY, self._encode(name, value), op_id)
        (outcome,) = await self._cells.write([write], len(write.payload or ""))
        return outcome.version

    async def set_many(
        self, values: Mapping[str, object], *, op_id: UUID | str | None = None
    ) -> dict[str, int]:
        """The new version of each cell, all written in one commit or none."""
        require(self._backend, Capability.CELLS_ATOMIC)
        operation = operation_id(op_id)
        writes = [
            CellWrite(self._key(name), ANY, self._encode(name, value), operation, op_id is not None)
            for name, value in values.items()
        ]
        size = sum(len(write.payload or "") for write in writes)
        if size > MAX_COMMIT_BYTES:
            raise InvalidArgument(
                f"set_many: values of {size} bytes, at most {MAX_COMMIT_BYTES} fit into one commit"
            )
        outcomes = await self._cells.write(writes, size) if writes else []
        return {
            write.key[-1]: outcome.version for write, outcome in zip(writes, outcomes, strict=True)
        }

    async def cas(
        self, name: str, expected: int | None, value: object, *, op_id: UUID | str | None = None
    ) -> int | None:
        """The new version if the cell was at `expected`, else None and nothing changes.

        `expected=None` creates the cell if it is absent: of many racers one gets a version.
        """
        version = check_expected(expected, name)
        write = self._to_write(name, version, self._encode(name, value), op_id)
        (outcome,) = await self._cells.write([write], len(write.payload or ""))
        return outcome.version if outcome.applied else None

    async def delete(self, name: str, *, op_id: UUID | str | None = None) -> bool:
        """True if the cell existed. Its counter goes on when it is created again."""
        write = self._to_write(name, ANY, None, op_id)
        (outcome,) = await self._cells.write([write], 0)
        return outcome.applied

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Names:
        """The names that start with the prefix, in byte order.

        All of them, or with `limit` a page; the last name of a page is the next one's `after`.
        """
        check_prefix(prefix)
        if after is not None:
            check_name(after, what="after")
        _check_limit(limit)
        names: Names = []
        size = _PAGE if limit is None else min(limit, _PAGE)
        while size and (limit is None or len(names) < limit):
            page, after = await self._cells.names(
                self._namespace, self._branch, prefix=prefix, after=after, limit=size
            )
            names.extend(page)
            if after is None:
                break
            size = min(2 * size, _PAGE)  # a few names may lie behind many deleted ones
            await self._backend.pause()
        return names[:limit]

    @overload
    def watch(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        after: str | None = None,
        marker: Literal[False] = False,
    ) -> AsyncWatch[CellChange]: ...

    @overload
    def watch(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        after: str | None = None,
        marker: bool,
    ) -> AsyncWatch[CellChange | CaughtUp]: ...

    def watch(
        self,
        prefix: str = "",
        *,
        name: str | None = None,
        after: str | None = None,
        marker: bool = False,
    ) -> AsyncWatch[Any]:
        """The cells whose names start with the prefix, then every change to them as it comes.

        With `name` instead of a prefix it is the one cell of exactly that name.
        With `after`, the cursor of an earlier watch, every change since then, and so on. With
        `marker` the iteration gives `holdfast.CAUGHT_UP` between replay and live changes.
        A version that retention drops before it was read is left out; the newest never is.
        """
        require(self._backend, Capability.CELLS_WATCH)
        check_prefix(prefix)
        if name is not None:
            check_cell_name(name)
            if prefix:
                raise InvalidArgument("watch: give a prefix or a name, not both")
        position, branch_id = (None, None) if after is None else from_cursor(LOG, after)
        log, listener = self._backend.follow_cells(self._namespace)
        source = CellSource(
            log, self._namespace, self._branch, name or prefix, branch_id, exact=name is not None
        )
        return AsyncWatch(Watching(source, listener, position), _told, marker=marker)

    async def search(self, words: str, *, limit: int = 20) -> Hits:
        """The cells that hold all the words in their name or value, best first, ties by name.

        `word*` finds whatever begins so; all other signs only separate words. InvalidState
        until `enable_search` has been called for this store.
        """
        require(self._backend, Capability.CELLS_SEARCH)
        return await self._backend.search.find(
            self._namespace, self._branch, parse_words(words), limit=check_hits(limit)
        )

    async def enable_search(self, *, progress: Progress | None = None) -> None:
        """Make the search index of the whole store, all namespaces, kept by every write since.

        Returns when what was there before is indexed too, page by page beside other work.
        Calling it again finishes what was interrupted, and does nothing to a complete index.
        `progress` is called with how much is done and how much there is in all.
        """
        require(self._backend, Capability.CELLS_SEARCH)
        await self._backend.search.install()
        ready = False
        while not ready:
            done, total, ready = await self._backend.search.build()
            if progress is not None:
                progress(done, total)
            await self._backend.pause()

    async def disable_search(self) -> None:
        """Drop the search index of the whole store; nothing happens if there is none."""
        require(self._backend, Capability.CELLS_SEARCH)
        await self._backend.search.remove()

    async def prune(self) -> int:
        """How many versions were dropped because the store's `history` does not keep them.

        Writing to a cell drops its old versions by itself; this is for cells nobody writes to.
        """
        require(self._backend, Capability.CELLS_HISTORY)
        total = 0
        after: str | None = ""
        while after is not None:
            gone, after = await self._cells.prune(
                self._namespace, self._branch, after=after, limit=_PRUNE_PAGE
            )
            total += gone
            await self._backend.pause()
        return total

    def _to_write(
        self, name: str, expected: int, payload: str | None, op_id: UUID | str | None
    ) -> CellWrite:
        key = (self._namespace, self._branch, check_cell_name(name))
        return CellWrite(key, expected, payload, operation_id(op_id), op_id is not None)

    def _key(self, name: str) -> CellKey:
        return (self._namespace, self._branch, check_cell_name(name))

    def _encode(self, name: str, value: object) -> str:
        payload = codec.encode(value)
        if len(payload) > self._large:
            self._check_size(name, len(payload))
        return payload.decode()

    def _check_size(self, name: str, size: int) -> None:
        limit = self._config.payload_max_bytes
        if size > limit:
            raise InvalidArgument(
                f"cell {name!r}: value of {size} bytes, at most {limit} are allowed; "
                "keep large data elsewhere and store a reference to it (claim check)",
                size=size,
                limit=limit,
            )
        _log.warning("cell %r: value of %d bytes; large values make every read slow", name, size)


def _cell(stored: StoredCell) -> Cell:
    payload, version, updated_at, commit_id = stored
    return Cell(codec.decode(payload), version, updated_at, commit_id)


def _told(seen: Seen[Written], replay: bool, cursor: str | None) -> CellChange:  # noqa: FBT001 - see Tell
    return CellChange(seen.key, seen.change, replay, cursor)


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidArgument(f"limit: wanted a whole number from 0 up, or None; found {limit!r}")
    return limit

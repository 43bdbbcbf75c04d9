"""Cells as something to watch: see facets/watch.py."""

from __future__ import annotations

from holdfast import codec
from holdfast.errors import NotFound
from holdfast.facets.cells import LOG, Cell, CellLog, StoredChange
from holdfast.facets.feed import Page, Position, to_cursor
from holdfast.facets.watch import Present, Seen, next_page_size

Written = Cell | None
"""A cell as it was written, None when it was deleted."""


class CellSource:
    """The cells of a branch whose names start with a prefix, or one cell. See Source."""

    def __init__(
        self,
        log: CellLog,
        namespace: str,
        branch: str,
        prefix: str,
        branch_id: int | None = None,  # the one that a cursor is of
        *,
        exact: bool = False,  # the prefix is the whole name
    ) -> None:
        self._log = log
        self._namespace = namespace
        self._branch = branch
        self._prefix = prefix
        self._exact = exact
        self._branch_id = branch_id
        self._limit = next_page_size(0, 0, 0, more=False)

    async def position(self) -> Position:
        """See Source."""
        return await self._log.position()

    async def end(self) -> Position:
        """See Source."""
        return await self._log.end()

    async def present(self, after: str | None, since: Position) -> Present[Written]:
        """See Source."""
        branch_id, cells, last = await self._log.page(
            self._namespace,
            self._branch,
            prefix=self._prefix,
            exact=self._exact,
            after=after,
            limit=self._limit,
            since=since,
        )
        self._check_branch(branch_id)
        self._set_limit([cell.payload for cell in cells], more=last is not None)
        items: list[Seen[Written]] = []
        recent: dict[str, int] = {}
        for cell in cells:
            name, payload, version, updated_at, commit_id, changed = cell
            written = Cell(codec.decode(payload), version, updated_at, commit_id)
            items.append(Seen(name, commit_id, None, written))
            if changed:
                recent[name] = commit_id
        return Present(items, recent, last)

    async def changes(self, after: Position) -> Page[Seen[Written]]:
        """See Source."""
        branch_id, page = await self._log.changes(
            self._namespace,
            self._branch,
            prefix=self._prefix,
            exact=self._exact,
            after=after,
            limit=self._limit,
        )
        self._check_branch(branch_id)
        self._set_limit([change.payload for change in page.changes], more=page.more)
        return page.of([_seen(change) for change in page.changes])

    def cursor(self, position: Position) -> str:
        """See Source."""
        return to_cursor(LOG, position, self._branch_id or 0)

    def _check_branch(self, branch_id: int) -> None:
        if self._branch_id not in (None, branch_id):
            raise NotFound(
                f"branch {self._branch!r}: the one that was watched is gone, another has its name",
                branch=self._branch,
            )
        self._branch_id = branch_id

    def _set_limit(self, payloads: list[str | None], *, more: bool) -> None:
        """How many the next page takes, after one with these."""
        size = sum(len(payload) for payload in payloads if payload is not None)
        self._limit = next_page_size(self._limit, len(payloads), size, more=more)


def _seen(change: StoredChange) -> Seen[Written]:
    position, name, payload, version, updated_at = change
    cell = None
    if payload is not None:
        cell = Cell(codec.decode(payload), version, updated_at, position.seq)
    return Seen(name, position.seq, position, cell)

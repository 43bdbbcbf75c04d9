"""Reading a log of changes page by page: see facets/feed.py.

A log's query looks at the next changes above a position, within one epoch. Its
rows begin with what is true of the page as a whole:

    closed     the epoch is over: when its changes end, the next one's follow
    looked     how many changes were looked at; those asked for come in the rows
    xid, seq   of the last of them
    held_back  there are more, but an older transaction is still open

then follow xid and seq of a change, and the change. A page without any is one
row with NULLs there; no row at all: there is no such epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.backends.sql.db import Db, Row
from holdfast.facets.feed import Page, Position, unknown_epoch

_OF_THE_PAGE = 5
_XID, _SEQ = 5, 6


class Feed:
    """One log of the store."""

    def __init__(self, db: Db, *, position: str, end: str, changes: str) -> None:
        self._db = db
        self._position = position
        self._end = end
        self._changes = changes

    async def position(self) -> Position:
        """Where it ends: whatever commits from now on lies above."""
        (place,) = await self._db.fetch(self._position, {})
        return Position(*place)

    async def end(self) -> Position:
        """Whatever has been committed so far does not lie above this."""
        (place,) = await self._db.fetch(self._end, {})
        return Position(*place)

    async def read(
        self, after: Position, limit: int, params: Mapping[str, object]
    ) -> Page[tuple[Position, Row]]:
        """Look at the next `limit` changes above the position."""
        while True:
            place = {"epoch": after.epoch, "xid": after.xid, "seq": after.seq, "limit": limit}
            rows = await self._db.fetch(self._changes, {**params, **place})
            if not rows:
                raise unknown_epoch(after)
            closed, looked, xid, seq, held_back = rows[0][:_OF_THE_PAGE]
            if looked or not closed:
                break
            after = Position(after.epoch + 1, 0, 0)
        return Page(
            [
                (Position(after.epoch, row[_XID], row[_SEQ]), row[_SEQ + 1 :])
                for row in rows
                if row[_SEQ] is not None
            ],
            Position(after.epoch, xid, seq) if looked else after,
            more=bool(closed) or looked == limit,
            held_back=bool(held_back),
        )

"""Events as something to follow: see facets/watch.py. There is no present, only the log."""

from __future__ import annotations

from holdfast.facets.events import LOG, EventLog, StoredEvent
from holdfast.facets.feed import BEGINNING, Page, Position, to_cursor
from holdfast.facets.watch import Present, Seen, next_page_size


class EventSource:
    """The events of all runs of a namespace. See Source."""

    def __init__(self, log: EventLog, namespace: str) -> None:
        self._log = log
        self._namespace = namespace
        self._limit = next_page_size(0, 0, 0, more=False)

    async def position(self) -> Position:
        """See Source."""
        return await self._log.position()

    async def end(self) -> Position:
        """See Source."""
        return await self._log.end()

    async def present(self, after: str | None, since: Position) -> Present[StoredEvent]:
        """See Source. Never called: the feed begins with the log."""
        raise NotImplementedError(after, since)

    async def changes(self, after: Position) -> Page[Seen[StoredEvent]]:
        """See Source."""
        if after == BEGINNING:
            after = await self._log.start()
        page = await self._log.changes(self._namespace, after=after, limit=self._limit)
        size = sum(len(event.data) for _, event in page.changes)
        self._limit = next_page_size(self._limit, len(page.changes), size, more=page.more)
        return page.of(
            [Seen(event.run_id, event.run_seq, place, event) for place, event in page.changes]
        )

    def cursor(self, position: Position) -> str:
        """See Source."""
        return to_cursor(LOG, position)

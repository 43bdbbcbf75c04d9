"""Records as something to watch: see facets/watch.py."""

from __future__ import annotations

from holdfast.facets.feed import Page, Position, to_cursor
from holdfast.facets.records import LOG, RecordLog, StoredRecord
from holdfast.facets.watch import Present, Seen, next_page_size

Now = StoredRecord | None
"""A record as it is now, None when it is absent."""


class RecordSource:
    """The records whose keys start with a prefix. See Source."""

    def __init__(self, log: RecordLog, namespace: str, prefix: str) -> None:
        self._log = log
        self._namespace = namespace
        self._prefix = prefix
        self._limit = 0
        self._set_limit([], more=False)

    async def position(self) -> Position:
        """See Source."""
        return await self._log.position()

    async def end(self) -> Position:
        """See Source."""
        return await self._log.end()

    async def present(self, after: str | None, since: Position) -> Present[Now]:
        """See Source."""
        records, last = await self._log.present(
            self._namespace, prefix=self._prefix, after=after, limit=self._limit, since=since
        )
        self._set_limit([record.stored for record in records], more=last is not None)
        return Present(
            [Seen(key, number, None, stored) for key, stored, number, _ in records],
            {key: number for key, _, number, recent in records if recent},
            last,
        )

    async def changes(self, after: Position) -> Page[Seen[Now]]:
        """See Source."""
        page = await self._log.changes(
            self._namespace, prefix=self._prefix, after=after, limit=self._limit
        )
        self._set_limit([change.stored for change in page.changes], more=page.more)
        return page.of(
            [Seen(key, number, place, stored) for place, key, number, stored in page.changes]
        )

    def cursor(self, position: Position) -> str:
        """See Source."""
        return to_cursor(LOG, position)

    def _set_limit(self, records: list[Now], *, more: bool) -> None:
        sizes = (sum(map(len, record.fields.values())) for record in records if record)
        self._limit = next_page_size(self._limit, len(records), sum(sizes), more=more)

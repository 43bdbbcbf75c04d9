"""The half of search that is the same on every SQL engine.

What keeps the index are triggers on `cell_versions`, so it is right whoever
writes, and costs nothing while it is off. Three things tell how it stands:

    search            the index: there while search is on
    search_progress   there until everything older is indexed, too
    the triggers      made together with the index

The index holds what somebody can see: the newest version of a cell on each
branch, and what was newest there when a branch was forked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.backends.batching import Batch
from holdfast.backends.sql.db import Db
from holdfast.backends.sql.lineage import Lineages
from holdfast.errors import InvalidState
from holdfast.facets.branches import Lineage
from holdfast.facets.cells import MAIN
from holdfast.facets.search import Built, SearchHit, Word, search_is_off, search_is_unfinished


class SearchBatches(NamedTuple):
    """The operations of search that each engine writes its own way."""

    install: Batch[None, None]
    build: Batch[None, Built | None]  # None: there is no index
    remove: Batch[None, None]


class SqlSearch:
    """See SearchBackend."""

    def __init__(
        self, db: Db, lineages: Lineages, batches: SearchBatches | None, queries: Mapping[str, str]
    ) -> None:
        self._db = db
        self._lineages = lineages
        self._batches = batches  # None inside a transaction
        self._queries = queries

    async def find(
        self, namespace: str, branch: str, words: Sequence[Word], *, limit: int
    ) -> list[SearchHit]:
        """See SearchBackend."""
        ((there, building),) = await self._db.fetch(self._queries["get_state"], {})
        if not there:
            raise search_is_off()
        if building:
            raise search_is_unfinished()
        lineage = await self._lineages.of(namespace, branch)
        params = self.params(namespace, lineage, words) | {"namespace": namespace, "limit": limit}
        rows = await self._db.fetch(self._queries["search_cells"], params)
        if branch != MAIN:
            await self._lineages.check(namespace, branch, lineage)
        return [SearchHit(name, score) for name, score in rows]

    def params(self, namespace: str, lineage: Lineage, words: Sequence[Word]) -> dict[str, object]:
        """The query and the lineage as the engine takes them."""
        raise NotImplementedError

    async def install(self) -> None:
        """See SearchBackend."""
        await self._db.write(self._outside().install, [None])

    async def build(self) -> Built:
        """See SearchBackend."""
        (built,) = await self._db.write(self._outside().build, [None])
        if built is None:
            raise InvalidState("search was turned off while its index was being built")
        return built

    async def remove(self) -> None:
        """See SearchBackend."""
        await self._db.write(self._outside().remove, [None])

    def _outside(self) -> SearchBatches:
        if self._batches is None:
            raise InvalidState("search is turned on and off outside of transactions")
        return self._batches

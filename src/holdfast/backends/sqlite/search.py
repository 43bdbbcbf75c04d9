"""Search on SQLite: FTS5; see search.sql."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence

from holdfast.backends.sql.lineage import Lineages
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sql.search import SearchBatches, SqlSearch
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.facets.branches import Lineage
from holdfast.facets.search import Built, Word

_OWN = load(__package__, "search.sql", SQLITE)
SEPARATORS = "".join(
    sign for sign in map(chr, range(0x1F000, 0x1FB00)) if unicodedata.category(sign) == "So"
)
"""Emoji: see search.sql."""

_PAGE = 500  # versions in one transaction: the loop waits for it


class SqliteSearch(SqlSearch):
    """See SearchBackend."""

    def __init__(self, db: SqliteScope, lineages: Lineages, *, inside: bool = False) -> None:
        super().__init__(db, lineages, None if inside else _BATCHES, _OWN)

    def params(self, namespace: str, lineage: Lineage, words: Sequence[Word]) -> dict[str, object]:
        """See SqlSearch."""
        # Quoted, so nothing in a word is an operator; there are no quotes in words.
        wanted = " ".join(f'"{word}"{"*" if prefix else ""}' for word, prefix in words)
        place = namespace.encode().hex()
        return {
            "lineage": json.dumps(lineage),
            "query": f'place : "ns{place}" AND words : ({wanted})',
        }


class InstallSearch:
    """Makes the index and its triggers, unless they are there."""

    def apply(self, on: SqliteConnection, items: Sequence[None], *, repeat: bool) -> list[None]:
        """See Batch."""
        del repeat
        there, _ = on.execute(_OWN["get_state"]).get
        if not there:
            on.execute(_OWN["install"].replace("{emoji}", SEPARATORS))
        return list(items)


class BuildSearch:
    """Indexes the next few of the old versions."""

    def apply(
        self, on: SqliteConnection, items: Sequence[None], *, repeat: bool
    ) -> list[Built | None]:
        """See Batch."""
        del repeat
        return [self._step(on) for _ in items]

    def _step(self, on: SqliteConnection) -> Built | None:
        there, building = on.execute(_OWN["get_state"]).get
        if not there:
            return None
        if not building:
            return Built(1, 1, ready=True)
        done, total = on.execute(_OWN["get_progress"]).get
        last = on.execute(_OWN["find_page"], (done, total, _PAGE)).get
        if last is None:
            on.execute(_OWN["finish"])
            return Built(total, total, ready=True)
        on.execute(_OWN["index_page"], (done, last))
        on.execute(_OWN["set_progress"], (last,))
        return Built(last, total, ready=False)


class RemoveSearch:
    """Drops the index and its triggers."""

    def apply(self, on: SqliteConnection, items: Sequence[None], *, repeat: bool) -> list[None]:
        """See Batch."""
        del repeat
        on.execute(_OWN["remove"])
        return list(items)


_BATCHES = SearchBatches(InstallSearch(), BuildSearch(), RemoveSearch())

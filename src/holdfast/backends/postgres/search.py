"""Search on PostgreSQL: tsvectors of words that we make ourselves; see search.sql."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from holdfast.backends.postgres.arrays import bigints
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.connector import IDLE_IN_TRANSACTION
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.lineage import Lineages
from holdfast.backends.sql.queries import Dialect, load
from holdfast.backends.sql.search import SearchBatches, SqlSearch
from holdfast.facets.branches import Lineage
from holdfast.facets.search import Built, Word, fold_character, is_word_character

_PAGE = 100  # cells in one transaction: their writers wait for it
_LONGEST = 400  # characters of a word: the same number as in search.sql
_BEYOND_ASCII = range(0x80, 0x34000)  # no letter lies above, but for private use
_PRIVATE = "\\U000f0000-\\U0010fffd"
# Who waits for another builder waits as long as a statement may take; for writers, as usual.
_ONE_AT_A_TIME = """
    SELECT
        set_config('holdfast.lock_timeout', current_setting('lock_timeout'), true),
        set_config('lock_timeout', '0', true);
    SELECT pg_advisory_xact_lock(hashtextextended('holdfast search {}', -1));
    SELECT set_config('lock_timeout', current_setting('holdfast.lock_timeout'), true)
"""


class PostgresSearch(SqlSearch):
    """See SearchBackend."""

    def __init__(
        self, db: PostgresScope, dialect: Dialect, lineages: Lineages, *, inside: bool = False
    ) -> None:
        queries = load(__package__, "search.sql", dialect)
        super().__init__(db, lineages, None if inside else _batches(queries, dialect), queries)

    def params(self, namespace: str, lineage: Lineage, words: Sequence[Word]) -> dict[str, object]:
        """See SqlSearch."""
        # Words hold letters and digits only; a namespace may hold anything.
        place = namespace.replace("\\", "\\\\").replace("'", "''")
        return {
            "branches": bigints(branch_id for branch_id, _ in lineage),
            "uptos": bigints(upto for _, upto in lineage),
            "place": f"':{place}'",
            "words": " & ".join(
                f"'{word[:_LONGEST]}'{':*' if prefix else ''}" for word, prefix in words
            ),
        }


def _batches(queries: dict[str, str], dialect: Dialect) -> SearchBatches:
    alone = _ONE_AT_A_TIME.format(dialect.home.strip('".'))
    return SearchBatches(
        InstallSearch(queries["get_state"], queries["install"], alone),
        BuildSearch(queries, alone),
        RemoveSearch(queries["remove"], alone),
    )


class InstallSearch:
    """Makes the index and its triggers, unless they are there."""

    def __init__(self, state: str, script: str, alone: str) -> None:
        self._state = state
        self._script = script
        self._alone = alone

    async def apply(self, on: PgConnection, items: Sequence[None], *, repeat: bool) -> list[None]:
        """See Batch."""
        del repeat
        ((there, _),) = await on.fetch(self._state, {})
        if there:
            return list(items)
        script = _with_characters(self._script)  # before the lock: it takes its time
        await on.begin(IDLE_IN_TRANSACTION)
        await on.run(self._alone)
        ((there, _),) = await on.fetch(self._state, {})
        if not there:
            await on.run(script)
        await on.run("COMMIT")
        return list(items)


class BuildSearch:
    """Indexes the next old cells."""

    def __init__(self, queries: dict[str, str], alone: str) -> None:
        self._queries = queries
        self._alone = alone

    async def apply(
        self, on: PgConnection, items: Sequence[None], *, repeat: bool
    ) -> list[Built | None]:
        """See Batch."""
        del repeat
        return [await self._step(on) for _ in items]

    async def _step(self, on: PgConnection) -> Built | None:
        await on.begin(IDLE_IN_TRANSACTION)
        await on.run(self._alone)
        ((there, building),) = await on.fetch(self._queries["get_state"], {})
        built = Built(1, 1, ready=True) if there else None
        if building:
            ((more,),) = await on.fetch(self._queries["build"], {"limit": _PAGE})
            ((done, total),) = await on.fetch(self._queries["get_progress"], {})
            built = Built(done, total, ready=not more)
            if not more:
                await on.run(self._queries["finish"])
        await on.run("COMMIT")
        return built


class RemoveSearch:
    """Drops the index and its triggers."""

    def __init__(self, script: str, alone: str) -> None:
        self._script = script
        self._alone = alone

    async def apply(self, on: PgConnection, items: Sequence[None], *, repeat: bool) -> list[None]:
        """See Batch."""
        del repeat
        await on.begin(IDLE_IN_TRANSACTION)
        await on.run(self._alone)
        await on.run(self._script)
        await on.run("COMMIT")
        return list(items)


def _with_characters(script: str) -> str:
    """The script with what it must know about characters.

    The server's own idea of letters and case depends on the database's locale; in "C" it ends
    with ASCII.
    """
    for place, characters in _characters().items():
        script = script.replace(place, characters)
    return script


@cache
def _characters() -> dict[str, str]:
    """What belongs into the script's places: once per process, a look at them all takes 0.2 s."""
    beyond = list(map(chr, _BEYOND_ASCII))
    capitals = list(filter(_folds, beyond))
    return {
        "{letters}": f"0-9A-Za-z{_PRIVATE}{_ranges(beyond, is_word_character)}",
        "{capitals}": _ranges(beyond, _folds),
        "{upper}": "".join(capitals),
        "{lower}": "".join(map(fold_character, capitals)),
    }


def _folds(character: str) -> bool:
    return fold_character(character) != character


def _ranges(characters: Iterable[str], wanted: Callable[[str], bool]) -> str:
    """The wanted ones for a regular expression's brackets.

    What is no character (yet) belongs to the range around it, which keeps them few.
    """
    ranges: list[list[str]] = []
    open_range = False
    for character in characters:
        if unicodedata.category(character) in {"Cn", "Cs"}:
            continue
        if wanted(character):
            if open_range:
                ranges[-1][1] = character
            else:
                ranges.append([character, character])
        open_range = wanted(character)
    return "".join(f"{_escaped(first)}-{_escaped(last)}" for first, last in ranges)


def _escaped(character: str) -> str:
    return f"\\U{ord(character):08x}"

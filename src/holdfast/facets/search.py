"""Search: which cells hold these words.

A cell is found by the words of its name and of its value: every text, number and
key inside it; bytes are left out. A word is a run of letters and digits of any
script, without regard to case; everything else separates words. A query is made
of words in the same way: all must be there, and `word*` means any that begins so.

    cells    'user/17'  {"name": "Ada Lovelace", "born": 1815}
    words    user 17 name ada lovelace born 1815
    found by "ada 1815", "LOVE*", "user", but not by "love" or "ada 1816"
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from holdfast.errors import InvalidArgument, InvalidState

MAX_VALUE_BYTES = 256 * 1024
"""Of a value whose JSON is longer only the cell's name is indexed."""

MAX_WORDS = 32
"""In one query."""

MAX_HITS = 1000

# Accents that are characters of their own, and do not end a word: those that SQLite's FTS5 takes.
_ACCENTS = frozenset(
    "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u030f\u0311\u031b"
    "\u0323\u0324\u0325\u0326\u0327\u0328\u032d\u032e\u0330\u0331"
)


class SearchHit(msgspec.Struct, frozen=True):
    """A cell that was found. Higher scores are better, within one result only."""

    name: str
    score: float


class Word(NamedTuple):
    """A word to look for, folded; with `prefix` any that begins like it."""

    text: str
    prefix: bool


class Built(NamedTuple):
    """How far the index is, in steps of the engine's own."""

    done: int
    total: int
    ready: bool


class SearchBackend(Protocol):
    """What a backend must do for search. One index serves all namespaces of a store."""

    async def find(
        self, namespace: str, branch: str, words: Sequence[Word], *, limit: int
    ) -> list[SearchHit]:
        """The best cells that hold all words, as the branch sees them; ties by name.

        InvalidState while there is no complete index, NotFound without such a branch.
        """

    async def install(self) -> None:
        """From now on every write keeps the index; what was written before is not in it yet."""

    async def build(self) -> Built:
        """Index some more of what was written before; each call is a transaction of its own."""

    async def remove(self) -> None:
        """Drop the index, and what keeps it."""


def parse_words(text: str) -> list[Word]:
    """The words of a query, each once."""
    if not isinstance(text, str):
        raise InvalidArgument(f"words: wanted text, found {type(text).__name__}")
    words = dict.fromkeys(
        Word(fold(run.rstrip("*")), run.endswith("*")) for run in _runs(text) if run.strip("*")
    )
    if not words:
        raise InvalidArgument(f"words: no letter or digit in {text[:40]!r}")
    if len(words) > MAX_WORDS:
        raise InvalidArgument(f"words: {len(words)} of them, at most {MAX_WORDS} are allowed")
    return list(words)


def is_word_character(character: str) -> bool:
    """True for letters and digits of any script, their accents, and what is for private use."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co" or character in _ACCENTS


def fold(word: str) -> str:
    """The word without regard to case, character by character: engines know no other way."""
    return "".join(map(fold_character, word))


def fold_character(character: str) -> str:
    """The character without its case if that leaves one character, else itself."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


def check_hits(limit: int) -> int:
    """The limit itself, when a search may have it."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_HITS:
        raise InvalidArgument(f"limit: wanted a whole number from 1 to {MAX_HITS}, found {limit!r}")
    return limit


def search_is_off() -> InvalidState:
    """The error for a search without an index."""
    return InvalidState(
        "search is off; store.cells.enable_search() turns it on, once for the whole store"
    )


def search_is_unfinished() -> InvalidState:
    """The error for a search in an index that lacks old cells."""
    return InvalidState(
        "the search index is not complete; call store.cells.enable_search() again to finish it"
    )


def _runs(text: str) -> list[str]:
    """Runs of a word's characters, and a * where it ends one."""
    kept = [
        character if is_word_character(character) else ("* " if character == "*" else " ")
        for character in text
    ]
    return "".join(kept).split()

"""What is PostgreSQL's own about search: what the index holds, who keeps it, who may search."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import StoreConfig
from holdfast.facets.search import parse_words
from holdfast.testing.servers import PostgresServer

Url = Callable[[], str]
OBJECTS = """
    SELECT 'class', relname FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s)
    UNION ALL
    SELECT 'function', proname FROM pg_proc WHERE pronamespace = to_regnamespace(%(schema)s)
    UNION ALL
    SELECT 'trigger', t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = to_regnamespace(%(schema)s)
    ORDER BY 1, 2
"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


@pytest.fixture(scope="module")
def url(database: str) -> Url:
    numbers = itertools.count()
    return lambda: f"{database}?schema=search{next(numbers)}"


def _rows(url: str, sql: str) -> list[tuple[object, ...]]:
    database, _, schema = url.partition("?schema=")
    with psycopg.connect(database) as raw:
        return raw.execute(sql.replace("hf.", f"{schema}.").encode(), {"schema": schema}).fetchall()


def _indexed(url: str) -> list[object]:
    """Values in the index, in the order in which they were written."""
    rows = _rows(
        url,
        "SELECT v.value FROM hf.search AS s LEFT JOIN hf.cell_versions AS v "
        "USING (namespace, branch_id, name, commit_id) ORDER BY s.commit_id",
    )
    return [value for (value,) in rows]


def test_nothing_of_search_is_in_the_schema_while_it_is_off(url: Url) -> None:
    at = url()
    with holdfast.open(at) as store:
        before = _rows(at, OBJECTS)
        assert not [row for row in before if "search" in str(row)]
        triggers = [str(name) for kind, name in before if kind == "trigger"]
        assert all(name.startswith(("events_", "clock_")) for name in triggers)
        store.cells.enable_search()
        assert _rows(at, OBJECTS) != before
        store.cells.disable_search()
        assert _rows(at, OBJECTS) == before


@pytest.mark.parametrize("early", [True, False], ids=["kept", "built"])
def test_index_holds_what_somebody_sees_and_nothing_else(url: Url, *, early: bool) -> None:
    at = url()
    with holdfast.open(at) as store:
        if early:
            store.cells.enable_search()
        store.cells.set("x", 1)
        store.cells.set("x", 2)
        store.branches.fork("b")
        store.cells.set("x", 3)
        store.cells.set("x", 4)
        store.cells.on("b").set("x", 5)
        store.cells.on("b").set("y", 6)
        store.cells.on("b").delete("y")
        store.cells.set("gone", 7)
        store.cells.delete("gone")
        store.cells.enable_search()
        assert _indexed(at) == ["2", "4", "5"]


def test_retention_and_deleted_branches_leave_nothing_in_the_index(url: Url) -> None:
    at = url()
    with holdfast.open(at, config=StoreConfig(history=1)) as store:
        store.cells.enable_search()
        store.cells.set("x", 1)
        store.branches.fork("b")
        store.cells.on("b").set_many({f"y{number}": 2 for number in range(50)})
        store.cells.set("x", 3)
        store.cells.set("x", 4)
        assert _indexed(at) == ["1", *["2"] * 50, "4"]
        store.branches.delete("b")
        store.cells.set("x", 5)
        store.cells.prune()
        assert _indexed(at) == ["5"]


def test_role_that_may_use_the_cells_may_keep_and_search_the_index(url: Url, database: str) -> None:
    at = url()
    schema = at.rpartition("=")[2]
    with holdfast.open(at) as store, psycopg.connect(database, autocommit=True) as raw:
        raw.execute("CREATE ROLE app LOGIN")
        # As docs/configuration.md has it, before search is turned on.
        for right in (
            "USAGE ON SCHEMA {}",
            "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {}",
            "USAGE ON ALL SEQUENCES IN SCHEMA {}",
        ):
            raw.execute(f"GRANT {right.format(schema)} TO app".encode())
        store.cells.set("old", "word")
        store.cells.enable_search()
        with holdfast.open(at.replace("postgres@", "app@")) as plain:
            plain.cells.set("x", "word")
            assert [hit.name for hit in plain.cells.search("word")] == ["old", "x"]
            with pytest.raises(holdfast.Unauthorized):
                plain.cells.disable_search()


@pytest.fixture(scope="module")
def words(url: Url) -> Iterator[Callable[[str], set[str]]]:
    """The words that the server makes of a text."""
    at = url()
    database, _, schema = at.partition("?schema=")
    with holdfast.open(at) as store, psycopg.connect(database, autocommit=True) as raw:
        store.cells.enable_search()
        query = f"SELECT tsvector_to_array({schema}.search_words('n', %s, NULL))".encode()

        def ask(text: str) -> set[str]:
            row = raw.execute(query, [text]).fetchone()
            assert row is not None
            return set(row[0]) - {":n"}

        yield ask


def test_server_makes_the_same_words_as_a_query(words: Callable[[str], set[str]]) -> None:
    known = [
        chr(point)
        for point in [*range(1, 0x34000), *range(0xE0000, 0xE1000), 0xF0000, 0x10FFFD]
        if unicodedata.category(chr(point)) not in {"Cn", "Cs"}
    ]
    for at in range(0, len(known), 10_000):
        text = " ".join(f"a{character}B" for character in known[at : at + 10_000])
        assert words(text) == _query(text)


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\0")))
@settings(max_examples=100, deadline=None)
def test_any_text_makes_the_same_words_as_a_query(
    words: Callable[[str], set[str]], text: str
) -> None:
    assert words(text) == _query(text)


def _query(text: str) -> set[str]:
    """The words of a text as parse_words makes them, which takes a few at a time."""
    found: set[str] = set()
    pieces = text.split(" ")
    for piece in pieces:
        found |= {word.text for word in parse_words(f"stop {piece}")}
    return found - {"stop"} | ({"stop"} if "stop" in pieces else set())

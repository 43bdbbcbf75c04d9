"""Named queries: one text, spelt for each engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.backends.sql.queries import SQLITE, load, postgres

PG = postgres("mine")


@pytest.mark.parametrize(
    ("text", "sqlite", "pg"),
    [
        ("SELECT :name", "SELECT :name", "SELECT %(name)s"),
        ("(:a,:b_2)", "(:a,:b_2)", "(%(a)s,%(b_2)s)"),
        (":at::bigint", ":at::bigint", "%(at)s::bigint"),
        ("x::text[]", "x::text[]", "x::text[]"),
        ("'12:30'", "'12:30'", "'12:30'"),
        ("a:b", "a:b", "a:b"),
        ("i := i + 1", "i := i + 1", "i := i + 1"),
        ("FROM hf.cells", "FROM holdfast_cells", 'FROM "mine".cells'),
        ("(hf.now_us())", "(holdfast_now_us())", '("mine".now_us())'),
        ("half.cells, x_hf.y, hf", "half.cells, x_hf.y, hf", "half.cells, x_hf.y, hf"),
        ("hf.a JOIN hf.b", "holdfast_a JOIN holdfast_b", '"mine".a JOIN "mine".b'),
    ],
)
def test_text_is_spelt_for_each_engine(text: str, sqlite: str, pg: str) -> None:
    assert SQLITE.spell(text) == sqlite
    assert PG.spell(text) == pg


def test_scripts_get_their_home_and_keep_their_colons() -> None:
    script = "CREATE TABLE hf.t (a text); SELECT 'x:name'::text, :name"
    assert PG.place(script) == "CREATE TABLE \"mine\".t (a text); SELECT 'x:name'::text, :name"


FILE = """\
-- What the file is about, with a :parameter and hf. in it.

-- name: first
-- Why it is so: about :this.
SELECT a
FROM hf.t
  -- inside, too
WHERE a = :a;

-- name: second_2
DELETE FROM hf.t
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "queries_for_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "some.sql").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    return folder.name


def test_file_is_taken_apart_by_name(package: str) -> None:
    assert load(package, "some.sql", PG) == {
        "first": 'SELECT a\nFROM "mine".t\nWHERE a = %(a)s',
        "second_2": 'DELETE FROM "mine".t',
    }
    assert load(package, "some.sql", SQLITE)["first"].endswith("FROM holdfast_t\nWHERE a = :a")


@pytest.mark.parametrize(
    ("home", "dialect"),
    [
        ("holdfast.backends.sql", SQLITE),
        ("holdfast.backends.sql", PG),
        ("holdfast.backends.sqlite", SQLITE),
        ("holdfast.backends.postgres", PG),
    ],
    ids=["shared, SQLite", "shared, PostgreSQL", "SQLite", "PostgreSQL"],
)
def test_our_own_queries_are_spelt_completely(home: str, dialect: object) -> None:
    queries = load(home, "cells.sql", dialect)  # one of the two above
    assert queries
    for name, text in queries.items():
        assert text, name
        assert "hf." not in text, name
        assert "--" not in text, name
        assert not text.endswith(";"), name
        if dialect is PG:
            # psycopg takes a lone % for a placeholder of its own.
            assert text.count("%") == text.count("%("), name

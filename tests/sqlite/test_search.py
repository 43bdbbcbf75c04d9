"""What is SQLite's own about search: what the index holds, and who keeps it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.backends.sqlite.search import SEPARATORS
from holdfast.facets.search import fold, parse_words

IDEOGRAPHS = range(0x3500, 0xD700)  # tens of thousands, all alike; what lies before is looked at
CHANGED = {0x1885, 0x1886}  # Mongolian letters that became accents since


def _rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _indexed(path: Path) -> list[object]:
    """Values in the index, in the order in which they were written."""
    rows = _rows(
        path,
        "SELECT v.value FROM holdfast_search AS s "
        "LEFT JOIN holdfast_cell_versions AS v ON v.commit_id = s.rowid ORDER BY s.rowid",
    )
    return [value for (value,) in rows]


def _schema(path: Path) -> list[tuple[object, ...]]:
    return _rows(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")


def test_nothing_of_search_is_in_the_file_while_it_is_off(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}") as store:
        before = _schema(path)
        assert not [row for row in before if "search" in str(row)]
        assert not [row for row in before if row[0] == "trigger" and "cell" in str(row)]
        store.cells.enable_search()
        assert _schema(path) != before
        store.cells.disable_search()
        assert _schema(path) == before


@pytest.mark.parametrize("early", [True, False], ids=["kept", "built"])
def test_index_holds_what_somebody_sees_and_nothing_else(tmp_path: Path, *, early: bool) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}") as store:
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
        assert _indexed(path) == ["2", "4", "5"]


def test_retention_and_deleted_branches_leave_nothing_in_the_index(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}", config=StoreConfig(history=1)) as store:
        store.cells.enable_search()
        store.cells.set("x", 1)
        store.branches.fork("b")
        store.cells.on("b").set_many({f"y{at}": 2 for at in range(1200)})
        store.cells.set("x", 3)
        store.cells.set("x", 4)
        assert _indexed(path) == ["1", *["2"] * 1200, "4"]
        store.branches.delete("b")
        store.cells.set("x", 5)
        store.cells.prune()
        assert _indexed(path) == ["5"]


def test_other_tools_keep_the_index_too(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}") as store:
        store.cells.enable_search()
        store.cells.set("x", "ours")
        _rows(
            path,
            "INSERT INTO holdfast_cell_versions"
            " (commit_id, namespace, branch_id, name, version, updated_at, op_id, op_given, value)"
            " SELECT commit_id + 1, namespace, branch_id, name, version + 1, updated_at, op_id, 0,"
            " '\"theirs\"' FROM holdfast_cell_versions",
        )
        assert [hit.name for hit in store.cells.search("theirs")] == ["x"]
        assert store.cells.search("ours") == []


def test_fts5_makes_the_same_words_as_a_query() -> None:
    """Of all characters that both know; what came after Unicode 6.1 FTS5 takes for letters."""
    connection = apsw.Connection(":memory:")
    options = ["remove_diacritics", "0", "separators", SEPARATORS]
    tokenizer = connection.fts5_tokenizer("unicode61", options)
    known = [
        point
        for point in range(0x20, 0x10000)
        if unicodedata.ucd_3_2_0.category(chr(point)) not in {"Cn", "Cs"}
        and point not in IDEOGRAPHS
        and point not in CHANGED
    ]
    for point in [*known, *map(ord, SEPARATORS)]:
        text = f"a{chr(point)}B"
        theirs = tokenizer(
            text.encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        ours = dict.fromkeys(word.text for word in parse_words(text))
        assert list(dict.fromkeys(theirs)) == list(ours), f"U+{point:04X}"
    assert fold("ΣΑΣ") == fold("σας")

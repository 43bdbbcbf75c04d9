"""Events on SQLite are only ever appended, also by those who write SQL themselves."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import CAUGHT_UP, Corrupt, Event

COLUMNS = "commit_id, run, run_seq, key, event_id, event_type, emitted_at, persisted_at, data, more"
UPSERT = "ON CONFLICT (commit_id) DO UPDATE SET data = '7'"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file with two runs that nobody has open."""
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}") as store:
        for run_id in ("a", "b"):
            store.events.append_events([Event(run_id, "Noted", f"{n}", n) for n in range(3)])
    yield path
    with holdfast.open(f"sqlite:///{path}") as store:
        for run_id in ("a", "b"):
            found = store.events.fetch_events(run_id)
            assert [(one.run_seq, one.event_data) for one in found] == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holdfast_events SET data = '7'",
        "UPDATE holdfast_events SET run_seq = 9 WHERE run_seq = 3",
        "UPDATE holdfast_events SET data = data",
        "UPDATE OR REPLACE holdfast_events SET commit_id = 1 WHERE run_seq = 2",
        "DELETE FROM holdfast_events",
        "DELETE FROM holdfast_events WHERE run_seq = 3",
        f"INSERT INTO holdfast_events SELECT {COLUMNS} FROM holdfast_events WHERE true {UPSERT}",
    ],
)
def test_raw_sql_cannot_change_an_event(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    try:
        with pytest.raises(apsw.ConstraintError, match="events are never"):
            connection.execute(statement)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("emitted_at", "data", "more"),
    [
        ("1795000000000000000", "'null'", "NULL"),
        ("'yesterday'", "'null'", "NULL"),
        ("0", "'{'", "NULL"),
        ("0", "'null'", "'[]'"),
    ],
)
def test_an_entry_of_a_foreign_hand_that_cannot_be_read_fails_alone(
    path: Path, tmp_path: Path, emitted_at: str, data: str, more: str
) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    try:
        connection.execute("VACUUM INTO ?", (str(other),))
    finally:
        connection.close()
    connection = apsw.Connection(str(other))
    try:
        connection.execute(
            f"INSERT INTO holdfast_events ({COLUMNS}) "
            "SELECT (SELECT max(commit_id) + 1 FROM holdfast_events), id, 4, 'key', randomblob(16),"
            f"'Noted', {emitted_at}, 0, {data}, {more} FROM holdfast_runs WHERE run_id = 'a'"
        )
    except apsw.ConstraintError:
        return  # the table does not take it at all
    finally:
        connection.close()
    with holdfast.open(f"sqlite:///{other}") as store:
        with pytest.raises(Corrupt, match="run 'a': its event 4 cannot be read"):
            store.events.fetch_events("a")
        assert len(store.events.fetch_events("b")) == 3
        with store.events.feed(skip_corrupt=True, marker=True) as feed:
            told = list(itertools.takewhile(lambda one: one is not CAUGHT_UP, feed))
        assert len(told) == 6
        assert feed.skipped == 1
        store.events.delete_run("a", force=True)
        assert store.events.list_runs() == ["b"]

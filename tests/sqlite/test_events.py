"""Events on SQLite are only ever appended, also by those who write SQL themselves."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Event

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

"""Events on PostgreSQL are only ever appended, also by those who write SQL themselves."""

from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast import Corrupt, Event
from holdfast.testing.servers import PostgresServer

UPSERT = "ON CONFLICT (run, run_seq) DO UPDATE SET data = '7'"
SOURCE = "USING (SELECT 3 AS seq) AS s ON e.run_seq = s.seq"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database with two runs."""
    with PostgresServer("18") as server:
        url = server.create_database()
        with holdfast.open(url) as store:
            for run_id in ("a", "b"):
                store.events.append_events([Event(run_id, "Noted", f"{n}", n) for n in range(3)])
        yield url


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holdfast.events SET data = '7'",
        "UPDATE holdfast.events SET run_seq = 9 WHERE run_seq = 3",
        "UPDATE holdfast.events SET data = data",
        "DELETE FROM holdfast.events",
        "DELETE FROM holdfast.events WHERE run_seq = 3",
        "TRUNCATE holdfast.events",
        f"INSERT INTO holdfast.events SELECT * FROM holdfast.events {UPSERT}",
        f"MERGE INTO holdfast.events AS e {SOURCE} WHEN MATCHED THEN DELETE",
    ],
)
def test_raw_sql_cannot_change_an_event(url: str, statement: str) -> None:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="events are never"),
    ):
        connection.execute(statement.encode())
    with holdfast.open(url) as store:
        for run_id in ("a", "b"):
            found = store.events.fetch_events(run_id)
            assert [(one.run_seq, one.event_data) for one in found] == [(1, 0), (2, 1), (3, 2)]


def test_a_run_whose_last_event_is_gone_is_corrupt(url: str) -> None:
    with holdfast.open(url) as store:
        store.events.append_events([Event("c", "Noted", f"{n}", n) for n in range(3)])
        with psycopg.connect(url) as connection:
            connection.execute("ALTER TABLE holdfast.events DISABLE TRIGGER USER")
            connection.execute(
                "DELETE FROM holdfast.events WHERE run_seq = 3 AND run = "
                "(SELECT id FROM holdfast.runs WHERE run_id = 'c')"
            )
            connection.execute("ALTER TABLE holdfast.events ENABLE TRIGGER USER")
        for read in (store.events.get_snapshot, store.events.project_snapshot):
            with pytest.raises(Corrupt, match="should be at event 3, and none is there after 2"):
                read("c")
        store.events.delete_run("c", force=True)
        assert store.events.list_runs() == ["a", "b"]

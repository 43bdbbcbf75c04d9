"""Events on PostgreSQL: only ever appended, also by those who write SQL; how runs are locked."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

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
        assert "c" not in store.events.list_runs()


def test_what_is_new_and_what_is_known_lock_runs_in_one_order(url: str) -> None:
    """A run that is there, one that is held, one that is new; two batches, two functions."""
    with holdfast.open(url) as store:
        for run_id in "15":
            store.events.append_event(Event(run_id, "Noted", "k0"))
    with psycopg.connect(url) as holder:
        holder.execute(_call("append_new"), _batch("5"))
        with ThreadPoolExecutor(2) as pool:
            new = pool.submit(_alone, url, _call("append_new"), _batch("159"))
            _await_waiting(url, 1)
            some = _call("append_events", "%(calls)s::bigint[], ")
            known = pool.submit(_alone, url, some, _batch("19"))
            _await_waiting(url, 2)
            holder.commit()
            assert len(new.result()) == 1
            assert len(known.result()) == 2


_ARRAYS = (
    "%(namespaces)s::text[], %(run_ids)s::text[], %(expected)s::bigint[], %(keys)s::text[], "
    "%(ids)s::uuid[], %(types)s::text[], %(emitted)s::bigint[], %(data)s::text[], %(more)s::text[]"
)


def _call(function: str, more: str = "") -> str:
    return f"SELECT * FROM holdfast.{function}({more}{_ARRAYS})"


def _batch(run_ids: str) -> dict[str, object]:
    nothing = [None for _ in run_ids]
    return {
        "calls": list(range(len(run_ids))),
        "namespaces": ["default" for _ in run_ids],
        "run_ids": list(run_ids),
        "expected": nothing,
        "keys": [str(uuid4()) for _ in run_ids],
        "ids": [uuid4() for _ in run_ids],
        "types": ["Noted" for _ in run_ids],
        "emitted": nothing,
        "data": ["null" for _ in run_ids],
        "more": nothing,
    }


def _alone(url: str, call: str, batch: dict[str, object]) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(call, batch).fetchall()


def _await_waiting(url: str, count: int) -> None:
    """Return once so many wait for a lock, or one has not had to."""
    with psycopg.connect(url, autocommit=True) as admin:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchone()
            assert row is not None
            if row[0] >= count:
                return
            time.sleep(0.01)
    raise AssertionError("nobody came to wait")

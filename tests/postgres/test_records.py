"""What is PostgreSQL's own about records: what is left in the tables, and what a write touches."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast.runtime.blocking import run
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import move_clock

TWO_DAYS = 2 * 24 * 3600


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


def test_purge_cuts_the_whole_log(url: str) -> None:
    with holdfast.open(f"{url}?schema=cut") as store:
        with store.transaction() as tx:
            for n in range(1000):
                tx.records.put("a", {"x": n})
        run(move_clock(store, TWO_DAYS))  # type: ignore[arg-type]
        assert store.records.purge() == 0
        assert store.records.get("a") is not None
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT count(*) FROM cut.record_changes").fetchall() == [(0,)]


def test_field_writes_stay_in_place(url: str) -> None:
    with holdfast.open(f"{url}?schema=hot") as store:
        store.records.put("a", {"x": 0}, ttl=1000)
        with store.transaction() as tx:
            for n in range(20):
                tx.records.set_field("a", "x", n)
            ((updates, in_place),) = tx.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
                "WHERE schemaname = 'hot' AND relname = 'records'"
            )
    assert (updates, in_place) == (20, 20)


def test_a_repeated_batch_knows_its_own_writes(url: str) -> None:
    with holdfast.open(f"{url}?schema=hot_record") as store, psycopg.connect(url) as raw:
        answers = raw.execute(
            """
            SELECT applied
            FROM hot_record.write_records(
                '{default,default}', '{a,a}', '{NULL,NULL}',
                ARRAY['{"x": "1"}', '{"y": "2"}']::jsonb[], '{NULL,NULL}', '{f,f}', '{f,f}',
                '{-1,-1}', ARRAY[gen_random_uuid(), gen_random_uuid()], '{1000000,1000000}'
            )
            ORDER BY item
            """
        ).fetchall()
        raw.commit()
        assert answers == [(True,), (True,)]
        assert store.records.get("a") == holdfast.Record({"x": b"1", "y": b"2"})

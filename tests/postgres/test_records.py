"""What is PostgreSQL's own about records: what is left in the tables, and what a write touches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast.facets.records_scan import sort_key
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


def test_puts_beside_the_making_of_an_index_are_in_it(url: str) -> None:
    async def work() -> None:
        place = f"{url}?schema=beside"
        async with holdfast.open_async(place) as store, holdfast.open_async(place) as other:
            made = asyncio.Event()

            async def put(writer: holdfast.AsyncStore, name: str) -> int:
                number, more = 0, 20
                while more:  # some of them after the index is there
                    more -= made.is_set()
                    keys = [f"{name}.{number}.{n}" for n in range(5)]
                    await asyncio.gather(*(writer.records.put(key, {"x": 1}) for key in keys))
                    number += 1
                return 5 * number

            writers = [
                asyncio.ensure_future(put(store, "a")),
                asyncio.ensure_future(put(other, "b")),
            ]
            await store.records.put("c", {"x": 1})
            await store.records.create_index("", "x")
            made.set()
            written = sum(await asyncio.gather(*writers)) + 1
            assert await _indexed(store, b"1") == written
            await asyncio.gather(*(other.records.put(f"a.0.{n}", {"x": 2}) for n in range(5)))
            await store.records.put("c", {"y": 2})
            assert (await _indexed(store, b"1"), await _indexed(store, b"2")) == (written - 6, 5)

    asyncio.run(work())


async def _indexed(store: holdfast.AsyncStore, value: bytes) -> int:
    """How many entries the one index has for the value."""
    async with store.transaction() as tx:
        ((found,),) = await tx.execute(
            "SELECT count(*) FROM beside.record_index_entries WHERE sort = %s",
            (sort_key(value),),
        )
    return int(found)


def test_a_look_for_old_entries_reads_none_that_are_new(url: str) -> None:
    with holdfast.open(f"{url}?schema=young") as store:
        with store.transaction(timeout=60) as tx:
            for n in range(3000):
                tx.records.put(f"a{n % 10}", {"x": n})
        with psycopg.connect(url) as raw:
            raw.execute("SELECT young.purge_records(400)")
            found = raw.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
                "WHERE schemaname = 'young' AND relname = 'record_changes'"
            ).fetchall()
    ((read,),) = found
    assert read <= 1  # the oldest


def test_an_expired_records_operation_is_known_for_a_day_after_it_is_buried(url: str) -> None:
    op = uuid4()
    with holdfast.open(f"{url}?schema=buried") as store:
        store.records.put("a", {"x": 1}, ttl=100, op_id=op)
        run(move_clock(store, 101))  # type: ignore[arg-type]
        assert store.records.purge() == 1
        run(move_clock(store, TWO_DAYS / 2 - 100))  # type: ignore[arg-type]
        store.records.put("a", {"x": 1}, op_id=op)
        assert store.records.get("a") is None
        run(move_clock(store, 200))  # type: ignore[arg-type]
        assert store.records.purge() == 1
        store.records.put("a", {"x": 1}, op_id=op)
        assert store.records.get_field("a", "x") == b"1"

"""What is SQLite's own about records: what is left in the file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import apsw

import holdfast
from holdfast.runtime.blocking import run
from holdfast.testing.world import move_clock

TWO_DAYS = 2 * 24 * 3600
RECORDS, ROUNDS = 100, 20


def _count(path: Path, table: str) -> int:
    connection = apsw.Connection(str(path))
    try:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").get
        return count
    finally:
        connection.close()


def test_purge_cuts_the_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}") as store:
        with store.transaction() as tx:
            for n in range(1000):
                tx.records.put("a", {"x": n})
        run(move_clock(store, TWO_DAYS))  # type: ignore[arg-type]
        assert store.records.purge() == 0
        assert store.records.get("a") is not None
    assert _count(path, "holdfast_record_changes") == 1  # the newest stays: ids go on from it


def test_what_writes_leave_goes_as_fast_as_it_comes_in_large_batches_too(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async def rounds() -> None:
        async with holdfast.open_async(f"sqlite:///{path}") as store:
            for day in range(ROUNDS):
                keys = [f"{day}.{n}" for n in range(RECORDS)]
                await asyncio.gather(*(store.records.put(key, {"x": 1}, ttl=1) for key in keys))
                await move_clock(store, TWO_DAYS)

    asyncio.run(rounds())
    # Buried in the round after, dropped in the next.
    assert _count(path, "holdfast_records") <= 4 * RECORDS
    assert _count(path, "holdfast_record_changes") <= 4 * RECORDS


def test_an_expired_records_operation_is_known_for_a_day_after_it_is_buried(tmp_path: Path) -> None:
    op = uuid4()
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
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

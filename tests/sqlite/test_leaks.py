"""What has failed is forgotten: errors hold frames, and frames hold what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import apsw

import holdfast


def _held(path: Path) -> apsw.Connection:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    return other


def _errors() -> int:
    gc.collect()
    return sum(isinstance(one, holdfast.Timeout) for one in gc.get_objects())


def test_calls_that_failed_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}?busy_timeout=0.001") as store:
        store.cells.set("c", 0)
        before = _errors()  # of other tests, whose reports hold them
        with contextlib.closing(_held(path)):
            for _ in range(5):
                with contextlib.suppress(holdfast.Timeout):
                    store.cells.set("c", 1)
        assert _errors() <= before


def test_tasks_that_failed_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async def scene() -> None:
        async with holdfast.open_async(f"sqlite:///{path}?busy_timeout=0.001") as store:
            await store.cells.set("c", 0)
            before = _errors()
            with contextlib.closing(_held(path)):
                sets = [store.cells.set("c", number) for number in range(5)]
                outcomes = await asyncio.gather(*sets, return_exceptions=True)
                assert all(isinstance(one, holdfast.Timeout) for one in outcomes)
                del sets, outcomes
            await asyncio.sleep(0)  # the loop's last turn held what was gathered
            assert _errors() <= before

    asyncio.run(scene())

"""A worker that stands still in the middle of a call gets hold of nobody else's task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast import TaskState
from holdfast.aio.tasks import AsyncTasks


def test_a_step_that_took_too_long_gives_nobody_elses_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/x.db") as store:
            tasks = store.tasks
            await tasks.create("mail", "1")
            mine = await tasks.claim("mail", "1", "w1", timeout=30)
            assert mine is not None
            get = AsyncTasks.get

            async def stand_still(self: AsyncTasks, kind: str, name: str) -> TaskState | None:
                monkeypatch.setattr(AsyncTasks, "get", get)
                running = await tasks.get("mail", "1")
                assert running is not None
                assert await tasks.retry(running)  # as the sweeper does
                assert await tasks.claim("mail", "1", "w2", timeout=30) is not None
                return await get(self, kind, name)

            monkeypatch.setattr(AsyncTasks, "get", stand_still)
            assert await tasks.step(mine, timeout=30) is None

    asyncio.run(main())

"""Work that many call and that runs once: everybody returns when it is done."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.runtime.aio import AsyncioRuntime
from holdfast.runtime.blocking import BlockingRuntime, run


def test_every_task_returns_when_the_work_is_done() -> None:
    async def main() -> None:
        go, runs = asyncio.Event(), list[int]()

        async def work() -> None:
            runs.append(1)
            await go.wait()
            runs.append(2)

        once = AsyncioRuntime().once(work)
        callers = [asyncio.ensure_future(once()) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(caller.done() for caller in callers)
        callers[0].cancel()  # who leaves does not take the work along
        await asyncio.wait([callers[0]])
        go.set()
        await asyncio.wait_for(asyncio.gather(*callers[1:]), 30)
        await once()
        assert runs == [1, 2]

    asyncio.run(main())


def test_every_thread_returns_when_the_work_is_done() -> None:
    start, begun, go, runs = threading.Barrier(4), threading.Event(), threading.Event(), list[int]()
    seen = list[list[int]]()

    async def work() -> None:
        runs.append(1)
        begun.set()
        go.wait(30)
        runs.append(2)

    once = BlockingRuntime().once(work)

    def call() -> None:
        start.wait(30)
        run(once())
        seen.append(list(runs))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait(30)
    assert begun.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)
    assert seen == [[1, 2]] * 3


def test_interrupted_work_is_begun_again_by_the_next_caller() -> None:
    runs = list[int]()

    async def work() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise KeyboardInterrupt

    once = BlockingRuntime().once(work)
    with pytest.raises(KeyboardInterrupt):
        run(once())
    run(once())
    run(once())
    assert runs == [0, 1]

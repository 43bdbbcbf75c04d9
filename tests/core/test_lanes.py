"""Lanes: a few callers share a flush; of many, some are prepared while others are under way."""

from __future__ import annotations

import asyncio

from holdfast.runtime.aio import AsyncioRuntime, resume
from holdfast.runtime.contract import Coalescer, Unit


class Server:
    """Answers when it is told to."""

    def __init__(self, *, early: bool = False) -> None:
        self.early = early  # callers go on where the answer is read, before the flush ends
        self.flushes: list[int] = []
        self.under_way = self.most_under_way = 0
        self.gate = asyncio.Event()
        self.one_at_a_time = asyncio.Lock()
        self.lanes: Coalescer = AsyncioRuntime().lanes(self.flush, 8)

    async def flush(self, units: list[Unit]) -> None:
        self.flushes.append(len(units))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.gate.wait()
        async with self.one_at_a_time:
            await asyncio.sleep(0.001 if self.early else 0)
        self.under_way -= 1
        for unit in units:
            unit.answers = unit.items
            unit.settled = True
        if self.early:
            resume(units)
            await asyncio.sleep(0)

    async def call(self, item: int) -> int:
        unit = Unit(None, (item,))
        await self.lanes.submit(unit)
        (answer,) = unit.result()
        return int(answer)


async def _calls(server: Server, count: int) -> list[asyncio.Task[int]]:
    calls = [asyncio.create_task(server.call(item)) for item in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return calls


def test_few_callers_share_one_flush() -> None:
    async def scene() -> None:
        server = Server()
        calls = await _calls(server, 10)
        server.gate.set()
        assert await asyncio.gather(*calls) == list(range(10))
        assert server.flushes == [10]

    asyncio.run(scene())


def test_of_many_callers_two_flushes_are_under_way_at_once() -> None:
    async def scene() -> None:
        server = Server()
        calls = await _calls(server, 100)
        assert server.under_way == 2
        assert sum(server.flushes) == 100
        assert min(server.flushes) >= 40
        server.gate.set()
        assert await asyncio.gather(*calls) == list(range(100))
        assert server.most_under_way == 2

    asyncio.run(scene())


def test_callers_that_went_on_early_are_the_next_flush_of_their_lane() -> None:
    async def scene() -> None:
        server = Server(early=True)
        server.gate.set()

        async def caller(item: int) -> list[int]:
            return [await server.call(item) for _ in range(10)]

        answers = await asyncio.gather(*(caller(item) for item in range(100)))
        assert answers == [[item] * 10 for item in range(100)]
        assert sum(server.flushes) == 1000
        assert len(server.flushes) <= 22, server.flushes

    asyncio.run(scene())


def test_callers_that_are_told_at_the_same_moment_stay_two_flushes() -> None:
    async def scene() -> None:
        flushes: list[int] = []

        async def flush(units: list[Unit]) -> None:
            flushes.append(len(units))
            await asyncio.sleep(0)
            for unit in units:
                unit.settled = True

        lanes = AsyncioRuntime().lanes(flush, 8)

        async def caller() -> None:
            for _ in range(10):
                await lanes.submit(Unit(None, (1,)))

        await asyncio.gather(*(caller() for _ in range(100)))
        assert flushes == [50] * 20

    asyncio.run(scene())


def test_whoever_gave_up_first_leaves_the_others_their_answers() -> None:
    async def scene() -> None:
        server = Server()
        first, *others = await _calls(server, 10)
        first.cancel()
        await asyncio.sleep(0)
        server.gate.set()
        async with asyncio.timeout(30):
            assert await asyncio.gather(*others) == list(range(1, 10))
        assert first.cancelled()

    asyncio.run(scene())


def test_draining_waits_for_every_lane() -> None:
    async def scene() -> None:
        server = Server()
        calls = await _calls(server, 100)
        draining = asyncio.create_task(server.lanes.drain())
        await asyncio.sleep(0.01)
        assert not draining.done()
        server.gate.set()
        await draining
        assert server.under_way == 0
        await asyncio.gather(*calls)

    asyncio.run(scene())

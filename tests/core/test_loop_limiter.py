"""The limiter of an event loop: no place is lost, and none is given twice."""

from __future__ import annotations

import asyncio

from holdfast.runtime.aio import AsyncioRuntime

PATIENCE = 30.0


def test_places_are_taken_and_given_back() -> None:
    async def work() -> None:
        limiter = AsyncioRuntime().limiter(2)
        first, second = await limiter.acquire(0), await limiter.acquire(0)
        assert first is not None
        assert second is not None
        assert await limiter.acquire(0) is None
        first.release()
        first.release()  # the second time nothing happens
        third = await limiter.acquire(0)
        assert third is not None
        assert await limiter.acquire(0) is None

    asyncio.run(work())


def test_who_waited_first_is_first() -> None:
    async def work() -> None:
        limiter = AsyncioRuntime().limiter(1)
        place = await limiter.acquire(0)
        order: list[int] = []

        async def wait(number: int) -> None:
            got = await limiter.acquire(PATIENCE)
            assert got is not None
            order.append(number)
            await asyncio.sleep(0)
            got.release()

        tasks = [asyncio.create_task(wait(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert place is not None
        place.release()
        assert await limiter.acquire(0) is None  # it is theirs
        await asyncio.gather(*tasks)
        assert order == list(range(5))

    asyncio.run(work())


def test_a_place_of_one_who_is_cancelled_goes_to_the_next() -> None:
    async def work() -> None:
        limiter = AsyncioRuntime().limiter(1)
        for steps in range(3):  # while it waits, and when it has been given the place
            place = await limiter.acquire(0)
            assert place is not None
            task = asyncio.create_task(limiter.acquire(PATIENCE))
            for _ in range(steps):
                await asyncio.sleep(0)
            place.release()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                got = task.result()
                assert got is not None
                got.release()

        place = await limiter.acquire(0)
        assert place is not None
        assert await limiter.acquire(0) is None

    asyncio.run(work())

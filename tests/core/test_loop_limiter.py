"""Places under asyncio: as many callers are in as there are places, whoever gives up."""

from __future__ import annotations

import asyncio

from holdfast.runtime.aio import AsyncioRuntime
from holdfast.runtime.contract import Limiter, Place

LONG = 60.0


async def _taken(limiter: Limiter) -> Place:
    place = await limiter.acquire(LONG)
    assert place is not None
    return place


async def _left(limiter: Limiter) -> int:
    """How many places are free."""
    taken = []
    while (place := limiter.at_once()) is not None:
        taken.append(place)
    for place in taken:
        place.release()
    return len(taken)


def test_who_has_waited_longest_gets_the_next_place() -> None:
    async def main() -> list[int]:
        limiter = AsyncioRuntime().limiter(1)
        order: list[int] = []

        async def enter(number: int) -> None:
            place = await _taken(limiter)
            order.append(number)
            await asyncio.sleep(0)
            place.release()

        await asyncio.gather(*(enter(number) for number in range(5)))
        assert await _left(limiter) == 1
        return order

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_place_is_released_once() -> None:
    async def main() -> int:
        limiter = AsyncioRuntime().limiter(2)
        place = await _taken(limiter)
        place.release()
        place.release()
        return await _left(limiter)

    assert asyncio.run(main()) == 2


def test_no_place_in_time_is_none_and_takes_none() -> None:
    async def main() -> int:
        limiter = AsyncioRuntime().limiter(1)
        place = await _taken(limiter)
        assert limiter.at_once() is None
        assert await limiter.acquire(0.001) is None
        place.release()
        return await _left(limiter)

    assert asyncio.run(main()) == 1


def test_place_handed_to_who_is_cancelled_goes_to_the_next() -> None:
    async def main() -> int:
        limiter = AsyncioRuntime().limiter(1)
        place = await _taken(limiter)
        first = asyncio.create_task(_taken(limiter))
        second = asyncio.create_task(_taken(limiter))
        await asyncio.sleep(0)
        place.release()  # handed to the first, which has yet to be told
        first.cancel()
        (await second).release()
        assert first.cancelled()
        return await _left(limiter)

    assert asyncio.run(main()) == 1


def test_who_is_cancelled_while_it_waits_is_passed_over() -> None:
    async def main() -> int:
        limiter = AsyncioRuntime().limiter(1)
        place = await _taken(limiter)
        first = asyncio.create_task(_taken(limiter))
        second = asyncio.create_task(_taken(limiter))
        await asyncio.sleep(0)
        first.cancel()
        place.release()
        (await second).release()
        return await _left(limiter)

    assert asyncio.run(main()) == 1

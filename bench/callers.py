"""The callers: how a number of operations is spread over threads or tasks, and run.

A program gives each caller a function of its own; the callers here know neither databases
nor clocks. Each operation has a number of its own, and whoever is free takes the next: as many
callers as there are stay at work until the last one is taken.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle

Step = Callable[[int], object]
AsyncStep = Callable[[int], Awaitable[object]]


def run_blocking(steps: Sequence[Step], numbers: range) -> None:
    """Run these operations: on this thread if there is one caller, else on a thread each."""
    if len(steps) == 1:
        _walk(steps[0], iter(numbers))
        return
    failures: list[BaseException] = []
    ready = threading.Barrier(len(steps))
    left = iter(numbers)

    def work(step: Step) -> None:
        try:
            ready.wait()
            _walk(step, left)
        except BaseException as failure:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


async def run_async(steps: Sequence[AsyncStep], numbers: range) -> None:
    """Run these operations, one task per caller."""
    left = iter(numbers)
    if len(steps) == 1:
        await _walk_async(steps[0], left)
        return
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(_walk_async(step, left))


async def run_starved(
    steps: Sequence[AsyncStep], seconds: float, first: int, *, burn_ms: Sequence[float]
) -> int:
    """Run each caller for so long beside a task that burns CPU; return how many operations.

    By time, because how many fit into it cannot be told before: who waits for a thread makes
    hundreds at once, and then a few dozen in a second.
    """
    until = time.perf_counter() + seconds

    async def walk(step: AsyncStep) -> int:
        number = first
        while time.perf_counter() < until:
            await step(number)
            number += 1
        return number - first

    burner = asyncio.create_task(_burn([slice_ms / 1000 for slice_ms in burn_ms]))
    try:
        return sum(await asyncio.gather(*map(walk, steps)))
    finally:
        burner.cancel()


def _walk(step: Step, numbers: Iterator[int]) -> None:
    for number in numbers:
        step(number)


async def _walk_async(step: AsyncStep, numbers: Iterator[int]) -> None:
    for number in numbers:
        await step(number)


async def _burn(slices: Sequence[float]) -> None:
    for slice_secs in cycle(slices):
        until = time.perf_counter() + slice_secs
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)

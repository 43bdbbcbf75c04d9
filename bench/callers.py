"""The callers: how a number of operations is spread over threads or tasks, and run.

A program gives each caller a function of its own; the callers here know neither databases
nor clocks. Every caller runs the same number of operations, each with a number of its own.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle

Step = Callable[[int], object]
AsyncStep = Callable[[int], Awaitable[object]]


def share(operations: int, callers: int) -> int:
    """How many operations each caller runs, at least one."""
    return max(1, -(-operations // callers))


def run_blocking(steps: Sequence[Step], each: int, first: int) -> None:
    """Run `each` operations per caller: on this thread if there is one, else a thread each."""
    if len(steps) == 1:
        _walk(steps[0], range(first, first + each))
        return
    failures: list[BaseException] = []
    ready = threading.Barrier(len(steps))

    def work(step: Step, numbers: range) -> None:
        try:
            ready.wait()
            _walk(step, numbers)
        except BaseException as failure:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(failure)

    threads = [
        threading.Thread(target=work, args=(step, _numbers(caller, each, first)))
        for caller, step in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


async def run_async(steps: Sequence[AsyncStep], each: int, first: int) -> None:
    """Run `each` operations per caller, one task per caller."""
    if len(steps) == 1:
        await _walk_async(steps[0], range(first, first + each))
        return
    async with asyncio.TaskGroup() as group:
        for caller, step in enumerate(steps):
            group.create_task(_walk_async(step, _numbers(caller, each, first)))


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


def _numbers(caller: int, each: int, first: int) -> range:
    return range(first + caller * each, first + (caller + 1) * each)


def _walk(step: Step, numbers: range) -> None:
    for number in numbers:
        step(number)


async def _walk_async(step: AsyncStep, numbers: range) -> None:
    for number in numbers:
        await step(number)


async def _burn(slices: Sequence[float]) -> None:
    for slice_secs in cycle(slices):
        until = time.perf_counter() + slice_secs
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)

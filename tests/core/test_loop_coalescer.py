"""The asyncio coalescer: what is queued together is flushed together, in order, for everybody."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.runtime.aio import LoopCoalescer
from holdfast.runtime.contract import MAX_BATCH_ITEMS, Unit

Scene = Callable[["Flusher"], Coroutine[Any, Any, None]]


class Flusher:
    """Answers every unit with its items; stops before that while the gate is closed."""

    def __init__(self, *, inline: bool) -> None:
        self.batches: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self.error: BaseException | None = None
        self.coalescer = LoopCoalescer(asyncio.get_running_loop(), self.flush, inline=inline)

    async def flush(self, units: list[Unit]) -> None:
        self.batches.append([unit.items[0] for unit in units])
        self.entered.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        for unit in units:
            unit.answers = list(unit.items)
            unit.settled = True

    async def call(self, *items: object) -> list[Any]:
        unit = Unit(None, items)
        await self.coalescer.submit(unit)
        return list(unit.result())

    def start(self, *items: object) -> asyncio.Task[list[Any]]:
        return asyncio.create_task(self.call(*items))

    async def start_and_stop_inside(self, *items: object) -> asyncio.Task[list[Any]]:
        """A call whose flush has begun and does not go on."""
        self.gate.clear()
        task = self.start(*items)
        await self.entered.wait()
        return task


def in_a_loop(scene: Scene) -> Callable[[bool], None]:
    return _run(scene, [False, True])


def only_inline(scene: Scene) -> Callable[[bool], None]:
    return _run(scene, [True])


def only_in_a_task(scene: Scene) -> Callable[[bool], None]:
    return _run(scene, [False])


def _run(scene: Scene, ways: list[bool]) -> Callable[[bool], None]:
    @pytest.mark.parametrize("inline", ways, ids=lambda way: "inline" if way else "task")
    def test(inline: bool) -> None:  # noqa: FBT001 - a parameter of the test
        async def body() -> None:
            async with asyncio.timeout(30):
                await scene(Flusher(inline=inline))

        asyncio.run(body())

    test.__name__ = scene.__name__
    return test


@in_a_loop
async def test_calls_of_one_turn_are_one_flush_in_order(flusher: Flusher) -> None:
    assert await asyncio.gather(*(flusher.call(number) for number in range(100))) == [
        [number] for number in range(100)
    ]
    assert flusher.batches == [list(range(100))]


@in_a_loop
async def test_calls_during_a_flush_form_the_next_one(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    others = [flusher.start(number) for number in range(5)]
    await asyncio.sleep(0)
    assert flusher.batches == [["first"]]
    flusher.gate.set()
    assert await asyncio.gather(first, *others) == [["first"], [0], [1], [2], [3], [4]]
    assert flusher.batches == [["first"], [0, 1, 2, 3, 4]]


@in_a_loop
async def test_answered_callers_meet_again_in_the_next_flush(flusher: Flusher) -> None:
    async def busy(number: int) -> None:
        for _ in range(3):
            await flusher.call(number)

    await asyncio.gather(*(busy(number) for number in range(10)))
    assert flusher.batches == [list(range(10))] * 3


@in_a_loop
async def test_flush_takes_so_many_items_and_no_more(flusher: Flusher) -> None:
    sizes = [MAX_BATCH_ITEMS - 1, 1, 1, MAX_BATCH_ITEMS + 5, MAX_BATCH_ITEMS, 1]
    calls = [flusher.call(*([number] * size)) for number, size in enumerate(sizes)]
    answers = await asyncio.gather(*calls)
    assert [len(answer) for answer in answers] == sizes
    # A single call may be larger than a flush should be: it goes alone.
    assert flusher.batches == [[0, 1], [2], [3], [4], [5]]


@in_a_loop
async def test_failing_flush_answers_everybody(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    others = [flusher.start(number) for number in range(3)]
    await asyncio.sleep(0)
    flusher.error = RuntimeError("a defect")
    flusher.gate.set()
    outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["a defect"] * 4
    flusher.error = None
    assert await flusher.call("next") == ["next"]


@only_in_a_task
async def test_cancelled_flush_leaves_nobody_waiting(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    other = flusher.start("other")
    await asyncio.sleep(0)
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast flush")
    task.cancel()
    outcomes = await asyncio.gather(first, other, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2


@only_in_a_task
async def test_flush_cancelled_before_it_began_is_begun_again(flusher: Flusher) -> None:
    for again in (lambda: flusher.call("next"), flusher.coalescer.drain):
        first = flusher.start("first")
        await asyncio.sleep(0)
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast flush")
        task.cancel()
        await asyncio.sleep(0)
        assert not first.done()
        await again()
        assert await first == ["first"]


@in_a_loop
async def test_caller_cancelled_while_it_waits_is_not_flushed(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    gone, stays = flusher.start("gone"), flusher.start("stays")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    flusher.gate.set()
    assert (await first, await stays) == (["first"], ["stays"])
    assert flusher.batches == [["first"], ["stays"]]


@only_inline
async def test_caller_cancelled_while_it_flushes_hands_over(flusher: Flusher) -> None:
    flusher.gate.clear()
    gone = flusher.start("gone")
    others = [flusher.start(number) for number in range(3)]
    await flusher.entered.wait()
    late = flusher.start("late")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    flusher.gate.set()
    assert await asyncio.gather(*others, late) == [[0], [1], [2], ["late"]]
    assert flusher.batches == [["gone", 0, 1, 2], [0, 1, 2, "late"]]
    await flusher.coalescer.drain()


@only_inline
async def test_caller_cancelled_before_it_flushes_is_not_written(flusher: Flusher) -> None:
    gone = flusher.start("gone")
    await asyncio.sleep(0)
    other = flusher.start("other")
    gone.cancel()
    assert await other == ["other"]
    assert gone.cancelled()
    assert flusher.batches == [["other"]]


@only_inline
async def test_what_is_ready_runs_before_a_lone_caller_goes_on(flusher: Flusher) -> None:
    loop = asyncio.get_running_loop()
    ran: list[int] = []
    for lone in range(1, 5):
        for _ in range(lone):
            await flusher.call(0)
        loop.call_soon(ran.append, lone)
        await flusher.call(0)
        assert ran[-1:] == [lone], f"not run before the call after {lone} lone ones"


@only_inline
async def test_who_joins_a_lone_caller_shares_its_flush(flusher: Flusher) -> None:
    for lone in range(4):
        for _ in range(lone):
            await flusher.call("lone")
        await asyncio.gather(flusher.call(1), flusher.call(2), flusher.call(3))
        assert flusher.batches[-1] == [1, 2, 3]


@only_inline
async def test_a_lone_caller_does_not_keep_the_loop_from_its_files(flusher: Flusher) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.add_reader(ours, heard.set)
        theirs.send(b"x")
        deadline = time.monotonic() + 5
        while not heard.is_set():
            await flusher.call(0)
            assert time.monotonic() < deadline, "what came from outside was never looked at"
        loop.remove_reader(ours)


@only_inline
async def test_a_lone_caller_does_not_keep_the_loop_from_its_timers(flusher: Flusher) -> None:
    fired = asyncio.Event()
    asyncio.get_running_loop().call_later(0.005, fired.set)
    deadline = time.monotonic() + 5
    while not fired.is_set():
        await flusher.call(0)
        assert time.monotonic() < deadline, "what was due was never looked at"


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts its turns."""

    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


def test_the_loop_turns_for_a_lone_caller_only_if_it_has_something_to_run() -> None:
    async def scene() -> int:
        flusher = Flusher(inline=True)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        await flusher.call(0)
        before = loop.turns
        until = time.monotonic() + 0.1  # a hundred looks
        while time.monotonic() < until:
            await flusher.call(0)
        return loop.turns - before

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        turns = runner.run(scene())
    assert turns <= 10, "without anything to run it turns every hundredth of a second"
    assert turns > 0, "what nobody sees from outside would never be done"


@only_inline
async def test_a_lone_caller_that_is_cancelled_by_itself_ends_soon(flusher: Flusher) -> None:
    async def lone() -> None:
        await flusher.call(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as from a signal's handler: the loop has nothing to run because of it
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            await flusher.call(0)

    task = asyncio.create_task(lone())
    await asyncio.wait([task])
    assert task.cancelled()


@only_inline
async def test_timeouts_of_a_lone_caller_do_not_pile_up(flusher: Flusher) -> None:
    loop: Any = asyncio.get_running_loop()
    for _ in range(20_000):
        async with asyncio.timeout(3600):
            await flusher.call(0)
    assert len(loop._scheduled) < 10_000  # noqa: SLF001 - where asyncio keeps them


@only_inline
async def test_drain_waits_for_who_flushes(flusher: Flusher) -> None:
    call = await flusher.start_and_stop_inside("first")
    draining = asyncio.create_task(flusher.coalescer.drain())
    await asyncio.sleep(0.01)
    assert not draining.done()
    flusher.gate.set()
    await draining
    assert call.done()


@only_in_a_task
async def test_caller_cancelled_during_its_flush_harms_nobody(flusher: Flusher) -> None:
    flusher.gate.clear()
    gone, stays = flusher.start("gone"), flusher.start("stays")
    await flusher.entered.wait()
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    flusher.gate.set()
    assert await stays == ["stays"]
    assert flusher.batches == [["gone", "stays"]]


@in_a_loop
async def test_drain_waits_for_what_is_in_flight_and_queued(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    second = flusher.start("second")
    draining = asyncio.create_task(flusher.coalescer.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    flusher.gate.set()
    await draining
    assert flusher.batches == [["first"], ["second"]]
    assert (await first, await second) == (["first"], ["second"])


@in_a_loop
async def test_drain_of_an_idle_coalescer_returns_at_once(flusher: Flusher) -> None:
    await flusher.coalescer.drain()
    await flusher.call("x")
    await flusher.coalescer.drain()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_unit_without_an_outcome_says_so() -> None:
    with pytest.raises(Exception, match="without an answer"):
        Unit(None, [1]).result()


# Holding the lead


@in_a_loop
async def test_nothing_is_flushed_while_somebody_holds_the_lead(flusher: Flusher) -> None:
    hold = await flusher.coalescer.hold(30)
    assert hold is not None
    waiting = [flusher.start(name) for name in ("a", "b")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert flusher.batches == []
    hold.release()
    assert [await task for task in waiting] == [["a"], ["b"]]
    assert flusher.batches == [["a", "b"]]
    hold.release()  # a second time does nothing
    assert await flusher.call("after") == ["after"]


@in_a_loop
async def test_a_hold_comes_in_turn(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    before = flusher.start("before")
    await asyncio.sleep(0)
    holding = asyncio.create_task(flusher.coalescer.hold(30))
    await asyncio.sleep(0)
    after = flusher.start("after")
    flusher.gate.set()
    assert (await first, await before) == (["first"], ["before"])
    hold = await holding
    assert hold is not None
    assert flusher.batches == [["first"], ["before"]]
    hold.release()
    assert await after == ["after"]


@in_a_loop
async def test_a_hold_that_cannot_be_had_in_time_harms_nobody(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    assert await flusher.coalescer.hold(0.01) is None
    after = flusher.start("after")
    flusher.gate.set()
    assert (await first, await after) == (["first"], ["after"])


@in_a_loop
async def test_a_task_cancelled_while_it_waits_for_a_hold_harms_nobody(flusher: Flusher) -> None:
    first = await flusher.start_and_stop_inside("first")
    holding = asyncio.create_task(flusher.coalescer.hold(30))
    await asyncio.sleep(0)
    holding.cancel()
    await asyncio.wait([holding])
    after = flusher.start("after")
    flusher.gate.set()
    assert (await first, await after) == (["first"], ["after"])

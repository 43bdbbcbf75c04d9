"""Specs for the projector: what it keeps, how several share the runs, lag, marks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import (
    Capability,
    Event,
    MarkKind,
    Projection,
    ProjectorAlert,
    ProjectTotals,
    RunSnapshot,
    StoreConfig,
    View,
)
from holdfast.aio.projector import AsyncProjector
from holdfast.facets.events import RUN_VIEW
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, backend_of

PROJECTOR = needs(Capability.EVENTS, Capability.RECORDS)
SHARED = needs(Capability.EVENTS, Capability.RECORDS, Capability.MOVABLE_CLOCK)

COUNT = Projection("count: \u00e4/*", lambda count, _: count + 1, initial=0)

TOTALS = ("events", "kept", "resyncs", "gaps", "failed")
GAUGES = ("shards", "lag_seconds", "lag_high")


def _sum(total: int, event: Event) -> int:
    return total + int(event.event_data)


SUM = Projection("sum", _sum, initial=0)


async def _append(world: World, run_id: str, *data: object) -> None:
    """Events of the run with such data; the key is how many there are."""
    events = world.store.events
    snapshot = await events.get_snapshot(run_id)
    first = 0 if snapshot is None else snapshot.last_event_seq
    for number, one in enumerate(data, first + 1):
        await events.append_event(Event(run_id, "StepStarted", f"{number}", one, step_id="s"))


async def _kept(world: World, run_id: str, view: str) -> tuple[int, Any] | None:
    """What is kept of the view, and up to where."""
    state = await backend_of(world.store).events.state(("default", run_id), view)
    if state is None or state.snapshot is None:
        return None
    return state.snapshot.last_seq, msgspec.json.decode(state.snapshot.payload)["state"]


async def _check_kept(world: World, run_ids: Iterable[str], *projections: Projection[Any]) -> None:
    """What is kept is what a replay of all events gives."""
    for run_id in run_ids:
        replayed = await world.store.events.project_snapshot(run_id)
        found = await _kept(world, run_id, RUN_VIEW)
        assert found is not None, f"nothing is kept of {run_id}"
        last_seq, state = found
        assert msgspec.convert(state, RunSnapshot).hash == replayed.hash
        assert last_seq == replayed.last_event_seq
        for projection in projections:
            view = await world.store.events.view(projection, run_id)
            assert await _kept(world, run_id, projection.view) == (view.last_seq, view.state)


async def _until(
    done: Callable[[], Coroutine[Any, Any, bool]], *projectors: AsyncProjector
) -> None:
    """Let them work in turns until it is done."""
    for _ in range(1000):
        if await done():
            return
        for projector in projectors:
            await projector.project(0.01)
    raise AssertionError(f"not done: {[projector.totals for projector in projectors]}")


async def _until_folded(events: int, *projectors: AsyncProjector) -> None:
    async def done() -> bool:
        return sum(projector.totals.events for projector in projectors) >= events

    await _until(done, *projectors)


async def _until_kept(
    world: World, view: str, wanted: tuple[int, Any], projector: AsyncProjector
) -> None:
    async def done() -> bool:
        return await _kept(world, "r", view) == wanted

    await _until(done, projector)


@PROJECTOR
async def test_what_is_too_large_is_not_counted_as_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=500))
    text = Projection("text", lambda text, _: text + "x" * 200, initial="")
    projector = world.projector([text], store=store)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        for number in range(1, 6):
            await store.events.append_event(Event("r", "Noted", str(number)))
            await projector.drain()
            # The run's snapshot each time, the text twice.
            assert projector.totals.kept == number + min(number, 2)
    told = [record.getMessage() for record in caplog.records]
    assert len([one for one in told if "too many to be kept" in one]) == 1
    assert await store.events.view(text, "r") == View("x" * 1000, 5)


@PROJECTOR
async def test_the_projector_keeps_what_a_replay_gives(world: World) -> None:
    for run in range(5):
        await _append(world, f"r{run}", *range(run + 1))
    projector = world.projector([COUNT])
    await projector.drain()
    assert projector.totals == ProjectTotals(events=30, kept=10)
    await _check_kept(world, [f"r{run}" for run in range(5)], COUNT)
    await _append(world, "r0", 1, 2)
    again = world.projector([COUNT])
    await again.drain()
    assert again.totals == ProjectTotals(events=4, kept=2)
    await _check_kept(world, ["r0"], COUNT)
    assert await projector.marks() == []


@PROJECTOR
async def test_a_running_projector_keeps_what_comes(world: World) -> None:
    projector = world.projector([COUNT], every=0.001)
    await projector.project()
    for number in range(3):
        await _append(world, "r", number)
        await _until_folded(2 * (number + 1), projector)
    await _until_kept(world, COUNT.view, (3, 3), projector)
    await _check_kept(world, ["r"], COUNT)
    status = await projector.status()
    assert (status.shards, status.alert, status.totals.resyncs) == (16, None, 0)
    await projector.close()


@PROJECTOR
async def test_it_runs_until_it_is_stopped(world: World) -> None:
    projector = world.projector([COUNT], every=0.01)

    async def work() -> None:
        try:
            for number in range(3):
                await _append(world, "r", number)
                for _ in range(1000):
                    if await _kept(world, "r", COUNT.view) == (number + 1, number + 1):
                        break
                    await world.store.pause(0.01)
                else:
                    raise AssertionError(f"event {number + 1} is in no kept view")
        finally:
            projector.stop()

    await world.together([projector.run(), work()])
    assert projector.totals.events == 6
    assert (await projector.status()).shards == 0  # given back
    await _check_kept(world, ["r"], COUNT)


@PROJECTOR
async def test_a_new_version_is_built_from_the_first_event_on(world: World) -> None:
    await _append(world, "r", 1, 2, 3)
    await world.projector([COUNT]).drain()
    doubled = Projection(COUNT.name, lambda count, _: count + 2, initial=0, version=2)
    projector = world.projector([doubled])
    await projector.drain()
    assert projector.totals == ProjectTotals(events=3, kept=1)
    assert await _kept(world, "r", doubled.view) == (3, 6)
    assert await _kept(world, "r", COUNT.view) == (3, 3)
    assert await world.store.events.view(doubled, "r") == View(6, 3)


@PROJECTOR
async def test_a_fold_that_raises_is_marked_and_the_others_go_on(world: World) -> None:
    await _append(world, "bad", 1, "two", 3)
    await _append(world, "good", 1, 2)
    projector = world.projector([SUM])
    await projector.drain()
    assert projector.totals.failed == 1
    (mark,) = await projector.marks()
    assert (mark.run_id, mark.view, mark.kind) == ("bad", "sum@1", MarkKind.FAILED)
    assert mark.run_seq == 2
    assert "ValueError" in mark.reason
    assert await _kept(world, "good", SUM.view) == (2, 3)
    await _check_kept(world, ["good", "bad"])
    mended = Projection("sum", lambda total, _: total + 1, initial=0)
    again = world.projector([mended])
    await again.drain()
    assert await again.marks() == []
    assert await _kept(world, "bad", SUM.view) == (3, 3)


@PROJECTOR
async def test_a_run_that_is_there_again_is_another_one(world: World) -> None:
    projector = world.projector([COUNT], every=0.001)
    await _append(world, "r", 1, 2, 3)
    await _until_kept(world, COUNT.view, (3, 3), projector)
    await world.store.events.delete_run("r", force=True)
    await _append(world, "r", 1, 2)
    await _until_kept(world, COUNT.view, (2, 2), projector)
    await _check_kept(world, ["r"], COUNT)
    await projector.close()


# Several


async def _work(world: World, *projectors: AsyncProjector, runs: Iterable[str]) -> None:
    """Let them work in turns until all that is there is kept."""
    for run_id in runs:
        last_seq = (await world.store.events.project_snapshot(run_id)).last_event_seq

        async def done(run_id: str = run_id, last_seq: int = last_seq) -> bool:
            found = await _kept(world, run_id, RUN_VIEW)
            return found is not None and found[0] == last_seq

        await _until(done, *projectors)


async def _shards(*projectors: AsyncProjector) -> list[int]:
    return [(await projector.status()).shards for projector in projectors]


@PROJECTOR
async def test_projectors_share_the_runs_and_do_nothing_twice(world: World) -> None:
    first, second = (world.projector(shards=4, lease=3600, every=0.001) for _ in range(2))
    await first.beat()
    await second.beat()
    assert await _shards(first, second) == [4, 0]
    runs = [f"r{run}" for run in range(12)]
    for run_id in runs:
        await _append(world, run_id, 1, 2)
    await _work(world, first, second, runs=runs)
    assert second.totals == ProjectTotals()
    await first.beat()  # has seen the second one, and gives it its part
    await second.beat()
    assert await _shards(first, second) == [2, 2]
    before = first.totals
    for run_id in runs:
        await _append(world, run_id, 3, 4)
    await _work(world, first, second, runs=runs)
    assert (first.totals - before).events + second.totals.events == 24
    assert min((first.totals - before).events, second.totals.events) > 0
    await _check_kept(world, runs)
    await first.close()  # gives everything back at once
    await second.beat()
    assert await _shards(first, second) == [0, 4]
    await second.close()


@SHARED
async def test_the_runs_of_a_dead_projector_are_taken_when_its_lease_is_over(world: World) -> None:
    dead, other = (world.projector(shards=4, lease=600, every=every) for every in (300, 0.001))
    runs = [f"r{run}" for run in range(8)]
    for run_id in runs:
        await _append(world, run_id, 1)
    await dead.beat()
    await _until_folded(8, dead)
    await dead.beat()
    for run_id in runs:
        await _append(world, run_id, 2)
    await _until_folded(16, dead)
    assert dead.totals.kept == 8  # the rest is in its memory only
    await other.beat()
    assert await _shards(other) == [0]
    await world.move_clock(601)
    await other.beat()
    assert await _shards(other) == [4]
    await _work(world, other, runs=runs)
    await _check_kept(world, runs)
    assert other.totals == ProjectTotals(events=8, kept=8, resyncs=8)  # ten minutes late
    await dead.beat()
    assert await _shards(dead, other) == [0, 4]  # it finds out, and waits for its part
    await other.beat()
    await dead.beat()
    assert await _shards(dead, other) == [2, 2]
    for run_id in runs:
        await _append(world, run_id, 3)
    await _until_folded(32, dead, other)
    await dead.close()
    await other.close()
    await _check_kept(world, runs)


# Lag


@SHARED
async def test_a_lag_is_told_once_until_it_is_over(world: World) -> None:
    told: list[ProjectorAlert] = []
    projector = world.projector(on_alert=told.append, lease=3600, every=0.001, resync_after=1e6)
    await projector.beat()
    for episode in (1, 2):
        for run in range(3):
            await _append(world, f"{episode}-{run}", 1)
        await world.move_clock(6)
        for run in range(3):
            await _work(world, projector, runs=[f"{episode}-{run}"])
        assert len(told) == episode
        alert = told[-1]
        assert (alert.code, alert.severity) == ("PROJECTOR_LAG_HIGH", "P2")
        assert 6 <= alert.lag.total_seconds() < 60
        assert (await projector.status()).alert == alert

        async def caught_up() -> bool:
            return not (await projector.status()).lag

        await _until(caught_up, projector)
        assert (await projector.status()).alert is None
    assert projector.totals.resyncs == 0
    await projector.close()


@SHARED
async def test_metrics_are_the_status_in_numbers(world: World) -> None:
    projector = world.projector([COUNT], lease=3600, every=600)
    nothing = {
        **dict.fromkeys((f"holdfast_projector_{name}_total" for name in TOTALS), 0.0),
        **dict.fromkeys((f"holdfast_projector_{name}" for name in GAUGES), 0.0),
    }
    assert await projector.metrics() == nothing
    await projector.beat()
    await _append(world, "r", 1, 2, 3)
    await _until_folded(6, projector)
    await world.move_clock(6)
    found = await projector.metrics()
    assert 6 <= found.pop("holdfast_projector_lag_seconds") < 60
    assert found.pop("holdfast_projector_lag_high") == 1
    assert found.pop("holdfast_projector_shards") == 16
    assert found.pop("holdfast_projector_events_total") == 6
    assert set(found.values()) == {0}
    await projector.drain()
    done = {"holdfast_projector_events_total": 6.0, "holdfast_projector_kept_total": 2.0}
    assert await projector.metrics() == nothing | done


@SHARED
async def test_what_has_waited_for_a_drain_is_no_lag_after_it(world: World) -> None:
    told: list[ProjectorAlert] = []
    await _append(world, "r", 1, 2)
    await world.move_clock(60)
    projector = world.projector(on_alert=told.append, lease=3600)
    await projector.drain()
    status = await projector.status()
    assert (status.lag, status.alert, told) == (timedelta(0), None, [])
    assert status.totals.kept == 1


@SHARED
async def test_a_drain_ends_an_alert_and_the_next_lag_is_told(world: World) -> None:
    told: list[ProjectorAlert] = []
    projector = world.projector(on_alert=told.append, lease=3600, every=0.001)
    for episode in (1, 2):
        await projector.beat()
        await _append(world, f"r{episode}", 1)
        await world.move_clock(6)
        await _work(world, projector, runs=[f"r{episode}"])
        assert len(told) == episode
        await projector.drain()
        status = await projector.status()
        assert (status.lag, status.alert) == (timedelta(0), None)


@SHARED
async def test_a_projector_that_is_closed_at_the_end_of_the_feed_has_no_lag(world: World) -> None:
    projector = world.projector(lease=3600, every=600)
    await projector.beat()
    await _append(world, "r", 1)
    await _until_folded(1, projector)
    await projector.project()
    await world.move_clock(3)
    assert (await projector.status()).lag >= timedelta(seconds=3)
    await projector.close()
    assert (await projector.status()).lag == timedelta(0)


@SHARED
async def test_a_run_that_lags_too_far_is_read_to_its_end(world: World) -> None:
    await _append(world, "r", *range(30))
    await world.move_clock(11)
    projector = world.projector([COUNT], lease=3600)
    await projector.drain()
    assert projector.totals == ProjectTotals(events=60, kept=2, resyncs=2)
    await _check_kept(world, ["r"], COUNT)
    await _append(world, "r", 1)
    again = world.projector([COUNT], lease=3600)
    await again.drain()
    assert again.totals == ProjectTotals(events=2, kept=2)

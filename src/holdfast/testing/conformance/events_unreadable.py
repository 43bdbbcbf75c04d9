"""Specs for events that could not be read back: refused; and if one is there, it fails alone."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from holdfast import CAUGHT_UP, Capability, Corrupt, Event, FeedEvent, InvalidArgument, MarkKind
from holdfast.facets.events import Append, NewEvent
from holdfast.testing.conformance.events import event, new
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, backend_of

EVENTS = needs(Capability.EVENTS)
PROJECTOR = needs(Capability.EVENTS, Capability.RECORDS)
SOON = 10.0  # seconds until an event must have been told

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
BEFORE_YEAR_1 = datetime(1, 1, 1, 13, 59, 59, 999_999, EAST)
AFTER_YEAR_9999 = datetime(9999, 12, 31, 12, tzinfo=WEST)
FIRST = datetime(1, 1, 1, 14, tzinfo=EAST)
LAST = datetime(9999, 12, 31, 11, 59, 59, 999_999, WEST)

NO_TIMES: list[Any] = [
    1_795_000_000_000_000_000,  # time.time_ns()
    1,
    2**63,
    1.5,
    True,
    "2026-01-01T00:00:00Z",
    datetime(2026, 1, 1),  # noqa: DTZ001 - naive
    BEFORE_YEAR_1,
    AFTER_YEAR_9999,
]


async def _plant(world: World, run_id: str, key: str, kind: str = "Noted") -> None:
    """Append an event with a time that no datetime has."""
    bad = NewEvent(key, uuid4().bytes, kind, NO_TIMES[0], "null", None)
    run = ("default", run_id)
    (outcome,) = await backend_of(world.store).events.append([Append(run, (bad,), None)], 0)
    assert isinstance(outcome, range | list)


async def _plant_runs(world: World) -> None:
    """Run a has an entry that cannot be read between others; b is well."""
    events = world.store.events
    await events.append_event(event("1", "a", "RunStarted"))
    await _plant(world, "a", "2")
    await events.append_event(event("1", "b", "RunStarted"))
    await events.append_event(event("3", "a", "RunCompleted"))


@EVENTS
@pytest.mark.parametrize("at", NO_TIMES, ids=str)
async def test_a_time_that_could_not_be_read_back_is_refused(world: World, at: Any) -> None:  # noqa: ANN401 - what callers may give
    events = world.store.events
    bad = event("k", emitted_at=at)
    with pytest.raises(InvalidArgument, match=r"time zone|emitted_at: "):
        await events.append_event(bad)
    with pytest.raises(InvalidArgument, match=r"time zone|emitted_at: "):
        await events.append_events([event("first"), bad])
    assert await events.list_runs() == []


@EVENTS
async def test_the_first_and_the_last_time_are_read_back(world: World) -> None:
    events = world.store.events
    given = [event("1", emitted_at=FIRST), event("2", emitted_at=LAST)]
    assert await events.append_events(given) == [new(1), new(2)]
    found = await events.fetch_events("r")
    assert [one.emitted_at for one in found] == [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    file = io.BytesIO()
    await events.export_runs(file)
    file.seek(0)
    there = world.store.namespace("there").events
    await there.import_runs(file)
    assert [one.emitted_at for one in await there.fetch_events("r")] == [
        one.emitted_at for one in found
    ]


@EVENTS
@pytest.mark.parametrize("at", [BEFORE_YEAR_1, AFTER_YEAR_9999, datetime(2026, 1, 1)], ids=str)  # noqa: DTZ001 - naive
async def test_an_imported_line_with_such_a_time_is_refused(world: World, at: datetime) -> None:
    events = world.store.events
    await events.append_event(event("k"))
    file = io.BytesIO()
    await events.export_runs(file)
    first, line, last = file.getvalue().splitlines()
    fields = {**json.loads(line), "emitted_at": at.isoformat()}
    damaged = b"\n".join([first, json.dumps(fields).encode(), last, b""])
    there = world.store.namespace("there").events
    with pytest.raises(InvalidArgument, match="line 2: ") as caught:
        await there.import_runs(io.BytesIO(damaged))
    assert caught.value.line == 2
    assert await there.list_runs() == []


@EVENTS
async def test_an_entry_that_cannot_be_read_is_corrupt_and_named(world: World) -> None:
    await _plant_runs(world)
    events = world.store.events
    calls = [
        events.fetch_events("a"),
        events.get_snapshot("a"),
        events.project_snapshot("a"),
        events.keep_snapshot("a"),
        events.export_runs(io.BytesIO()),
    ]
    for call in calls:
        with pytest.raises(Corrupt, match="run 'a': its event 2 cannot be read") as caught:
            await call
        assert (caught.value.run_id, caught.value.run_seq) == ("a", 2)


@EVENTS
async def test_what_lies_beside_an_unreadable_entry_is_read(world: World) -> None:
    await _plant_runs(world)
    events = world.store.events
    assert [one.run_seq for one in await events.fetch_events("a", limit=1)] == [1]
    assert [one.run_seq for one in await events.fetch_events("a", after_seq=2)] == [3]
    assert len(await events.fetch_events("b")) == 1
    assert await events.get_snapshot("b") is not None
    assert (await events.export_runs(io.BytesIO(), ["b"])).events == 1
    assert await events.append_event(event("4", "a")) == new(4)
    assert await events.last_seq("a") == 4
    assert await events.list_runs() == ["a", "b"]


@EVENTS
async def test_a_feed_goes_on_behind_an_unreadable_entry(world: World) -> None:
    await _plant_runs(world)
    told = []
    async with world.store.events.feed() as feed:
        assert isinstance(await feed.next(SOON), FeedEvent)
        with pytest.raises(Corrupt, match="run 'a': its event 2 cannot be read"):
            await feed.next(SOON)
        cursor = feed.cursor
        while isinstance(one := await feed.next(SOON), FeedEvent):
            told.append((one.event.run_id, one.event.run_seq))
    assert told == [("b", 1), ("a", 3)]
    async with world.store.events.feed(after=cursor) as feed:
        one = await feed.next(SOON)
        assert isinstance(one, FeedEvent)
        assert one.event.run_id == "b"


@EVENTS
async def test_a_feed_can_pass_over_unreadable_entries(world: World) -> None:
    await _plant_runs(world)
    await _plant(world, "c", "1")
    told: list[object] = []
    async with world.store.events.feed(skip_corrupt=True, marker=True) as feed:
        async for one in feed:
            if one is CAUGHT_UP:
                break
            assert isinstance(one, FeedEvent)
            told.append((one.event.run_id, one.event.run_seq))
        assert told == [("a", 1), ("b", 1), ("a", 3)]
        assert feed.skipped == 2
        assert await feed.next(0.01) is None
        await _plant(world, "c", "2")
        await world.store.events.append_event(event("3", "c"))
        last = await feed.next(SOON)
        assert isinstance(last, FeedEvent)
        assert (last.event.run_id, last.event.run_seq) == ("c", 3)
        assert feed.skipped == 3


@EVENTS
async def test_a_run_with_an_unreadable_entry_can_be_deleted(world: World) -> None:
    await _plant_runs(world)
    await _plant(world, "c", "1")
    events = world.store.events
    await events.delete_run("a")  # it has ended, say the others
    with pytest.raises(Corrupt, match="run 'c': its event 1"):
        await events.delete_run("c")
    await events.delete_run("c", force=True)
    assert await events.list_runs() == ["b"]


@PROJECTOR
async def test_a_projector_marks_such_a_run_and_projects_the_others(world: World) -> None:
    await _plant_runs(world)
    await _plant(world, "c", "1")
    projector = world.projector()
    await projector.drain()
    marks = [(mark.run_id, mark.kind, mark.run_seq) for mark in await projector.marks()]
    assert marks == [("a", MarkKind.FAILED, 2), ("c", MarkKind.FAILED, 1)]
    state = await backend_of(world.store).events.state(("default", "b"), "run")
    assert state is not None
    assert state.snapshot is not None
    await world.store.events.append_event(Event("b", "RunCompleted", "end"))
    await world.projector().drain()
    state = await backend_of(world.store).events.state(("default", "b"), "run")
    assert state is not None
    assert state.snapshot is not None
    assert state.snapshot.last_seq == 2

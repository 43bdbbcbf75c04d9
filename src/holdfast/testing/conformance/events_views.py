"""Specs for the views of a run: projections, what is kept of them, and appends that keep them."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from holdfast import (
    Capability,
    Conflict,
    Event,
    InvalidArgument,
    Projection,
    ProjectionFailed,
    RunStatus,
    StoreConfig,
    Unsupported,
    View,
)
from holdfast.facets.events import RUN_VIEW, EventsBackend, Keep, RunKey, RunState, StoredSnapshot
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, backend_of

EVENTS = needs(Capability.EVENTS)
RUN: RunKey = ("default", "r")


async def _begun(world: World, *keys: str) -> tuple[EventsBackend, int]:
    """The engine's events, and the generation of a run with such events."""
    for key in keys:
        await world.store.events.append_event(Event("r", "Noted", key))
    events = backend_of(world.store).events
    state = await events.state(RUN, RUN_VIEW)
    assert state is not None
    return events, state.generation


@EVENTS
async def test_the_views_of_a_run_are_kept_apart(world: World) -> None:
    events, generation = await _begun(world, "1", "2")
    assert await events.state(RUN, "a") == RunState(generation, 2, None)
    first, second = StoredSnapshot(1, '{"a":1}'), StoredSnapshot(2, '{"b":"\u00e4"}')
    assert await events.keep(RUN, "a", generation, first)
    for view in ("b", "A", "a@1", "a.b", "a *", "\u00e4/:"):
        assert await events.keep(RUN, view, generation, second)
        assert await events.state(RUN, view) == RunState(generation, 2, second)
    assert await events.state(RUN, "a") == RunState(generation, 2, first)
    assert await events.state(RUN, RUN_VIEW) == RunState(generation, 2, None)


@EVENTS
async def test_a_view_never_goes_back(world: World) -> None:
    events, generation = await _begun(world, "1", "2")
    later, again = StoredSnapshot(2, "2"), StoredSnapshot(2, '"again"')
    assert await events.keep(RUN, "a", generation, later)
    assert await events.keep(RUN, "a", generation, StoredSnapshot(1, "1"))
    assert await events.state(RUN, "a") == RunState(generation, 2, later)
    assert await events.keep(RUN, "a", generation, again)  # as far: replaced
    assert await events.state(RUN, "a") == RunState(generation, 2, again)


@EVENTS
async def test_views_go_with_their_run(world: World) -> None:
    events, generation = await _begun(world, "1", "2")
    for view in ("a", "b"):
        assert await events.keep(RUN, view, generation, StoredSnapshot(2, "2"))
    await world.store.events.keep_snapshot("r")
    await world.store.events.delete_run("r", force=True)
    assert await events.state(RUN, "a") is None
    assert not await events.keep(RUN, "a", generation, StoredSnapshot(2, "2"))
    _, another = await _begun(world, "1")
    assert another != generation
    for view in (RUN_VIEW, "a", "b"):
        assert await events.state(RUN, view) == RunState(another, 1, None)
    assert not await events.keep(RUN, "a", generation, StoredSnapshot(2, "2"))
    assert await events.state(RUN, "a") == RunState(another, 1, None)


@EVENTS
async def test_several_views_are_kept_each_by_itself(world: World) -> None:
    _, gone = await _begun(world, "1")
    await world.store.events.delete_run("r", force=True)
    events, generation = await _begun(world, "1", "2")
    await world.store.events.append_event(Event("other", "Noted", "1"))
    other: RunKey = ("default", "other")
    state = await events.state(other, "a")
    assert state is not None
    keeps = [
        Keep(RUN, "a", generation, StoredSnapshot(1, "1")),
        Keep(RUN, "b", generation, StoredSnapshot(2, "2")),
        Keep(RUN, "a", gone, StoredSnapshot(2, "2")),
        Keep(other, "a", state.generation, StoredSnapshot(1, '"other"')),
        Keep(("default", "never"), "a", generation, StoredSnapshot(1, "1")),
    ]
    assert list(await events.keep_all(keeps)) == [True, True, False, True, False]
    for run, view, of, snapshot in (keeps[0], keeps[1], keeps[3]):
        found = await events.state(run, view)
        assert found is not None
        assert (found.generation, found.snapshot) == (of, snapshot)


# Projections


@dataclass(frozen=True)
class Bill:
    """A state that is no plain value."""

    cents: int = 0
    items: tuple[str, ...] = field(default=())


def _bill(bill: Bill, event: Event) -> Bill:
    data = event.event_data
    return replace(bill, cents=bill.cents + data["cents"], items=(*bill.items, data["item"]))


BILL = Projection("bill", _bill, initial=Bill())
TYPES: Projection[dict[str, int]] = Projection(
    "types",
    lambda counts, event: {**counts, event.event_type: counts.get(event.event_type, 0) + 1},
    initial={},
)


def bought(item: str, cents: object, run_id: str = "r") -> Event:
    """An event that BILL can fold if `cents` is a number."""
    return Event(run_id, "Bought", item, {"item": item, "cents": cents})


@EVENTS
async def test_a_view_is_what_the_fold_makes_of_all_events(world: World) -> None:
    events = world.store.events
    assert await events.view(BILL, "r") == View(Bill(), 0)
    await events.append_events([bought("pen", 120), bought("ink", 480)])
    two = View(Bill(600, ("pen", "ink")), 2)
    assert await events.view(BILL, "r") == two
    assert await events.keep_view(BILL, "r") == two
    await events.append_event(bought("pad", 250))
    three = View(Bill(850, ("pen", "ink", "pad")), 3)
    for _ in range(2):
        assert await events.view(BILL, "r") == three
        assert await events.keep_view(BILL, "r") == three
    assert await events.view(TYPES, "r") == View({"Bought": 3}, 3)
    assert await events.view(BILL, "other") == View(Bill(), 0)


@EVENTS
async def test_a_kept_view_is_gone_on_from(world: World) -> None:
    events = world.store.events
    folded: list[int] = []

    def count(total: int, event: Event) -> int:
        folded.append(event.run_seq)
        return total + 1

    counting = Projection("count", count, initial=0)
    await events.append_events([bought(str(number), 1) for number in range(5)])
    assert (await events.keep_view(counting, "r")).state == 5
    await events.append_event(bought("more", 1))
    assert await events.view(counting, "r") == View(6, 6)
    assert folded == [1, 2, 3, 4, 5, 6]
    anew = Projection("count", count, initial=100, version=2)
    assert await events.view(anew, "r") == View(106, 6)
    assert folded[6:] == [1, 2, 3, 4, 5, 6]
    assert (await events.keep_view(anew, "r")).state == 106
    assert await events.view(counting, "r") == View(6, 6)  # the old code may still be running


@EVENTS
async def test_a_fold_that_changes_its_state_in_place_spoils_nobody_elses(world: World) -> None:
    def note(seen: list[str], event: Event) -> list[str]:
        seen.append(event.idempotency_key)
        return seen

    noting: Projection[list[str]] = Projection("notes", note, initial=[])
    for run_id in ("a", "b"):
        await world.store.events.append_event(bought("pen", 1, run_id))
        assert await world.store.events.view(noting, run_id) == View(["pen"], 1)


@EVENTS
async def test_a_fold_that_raises_is_told_with_its_place(world: World) -> None:
    events = world.store.events
    await events.append_events([bought("pen", 120), bought("ink", "a lot")])
    with pytest.raises(ProjectionFailed, match=r"at event 2 .*TypeError") as caught:
        await events.view(BILL, "r")
    assert (caught.value.view, caught.value.run_id, caught.value.run_seq) == ("bill@1", "r", 2)
    assert isinstance(caught.value.__cause__, TypeError)
    odd: Projection[object] = Projection("odd", lambda _, __: {1}, initial=None)
    with pytest.raises(ProjectionFailed, match="cannot be kept"):
        await events.keep_view(odd, "r")


@EVENTS
async def test_what_is_no_projection_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="Projection"):
        await world.store.events.view(_bill, "r")  # type: ignore[arg-type]
    for wrong in ({"name": ""}, {"version": 0}, {"version": True}, {"name": "x" * 300}):
        with pytest.raises(InvalidArgument):
            Projection(**{"name": "n", "fold": _bill, "initial": Bill(), **wrong})  # type: ignore[arg-type]


@EVENTS
async def test_a_view_that_is_too_large_is_right_all_the_same(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=500))
    text = Projection("text", lambda text, _: text + "é" * 100, initial="")  # 200 bytes
    for number in range(4):
        await store.events.append_event(bought(str(number), 1))
        view = await store.events.keep_view(text, "r")
        assert view == View("é" * 100 * (number + 1), number + 1)
        assert await store.events.view(text, "r") == view
    state = await backend_of(store).events.state(("default", "r"), text.view)
    assert state is not None
    assert state.snapshot is not None
    assert state.snapshot.last_seq == 2  # the third is above 500 bytes


@EVENTS
async def test_a_view_that_is_too_large_is_warned_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=200))
    large = Projection("large", lambda text, _: text + "x" * 300, initial="")
    inline = Capability.TRANSACTIONS in store.capabilities
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        for number in range(3):
            for run in ("r", "s"):
                events = store.events.inline(large) if inline else store.events
                await events.append_event(Event(run, "Noted", str(number)))
                await store.events.keep_view(large, run)
                await store.namespace("default").events.keep_view(large, run)
    told = [record.getMessage() for record in caplog.records]
    assert ["'r'" in one for one in told] == [True, False]


# Inline: in the transaction of the append


async def _kept(world: World, view: str, run_id: str = "r") -> object:
    """What is kept of a view, without what came later."""
    state = await backend_of(world.store).events.state(("default", run_id), view)
    if state is None or state.snapshot is None:
        return None
    return state.snapshot.last_seq, msgspec.json.decode(state.snapshot.payload)["state"]


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_an_inline_view_is_kept_with_the_append(world: World) -> None:
    events = world.store.events.inline(BILL, TYPES)
    await world.store.events.append_event(bought("pen", 120))  # before: folded by the next one
    assert await _kept(world, "bill@1") is None
    await events.append_events([bought("ink", 480), bought("pad", 250)])
    assert await _kept(world, "bill@1") == (3, {"cents": 850, "items": ["pen", "ink", "pad"]})
    assert await _kept(world, "types@1") == (3, {"Bought": 3})
    result = await events.append_event(bought("ink", 480))
    assert (result.idempotent, result.run_seq) == (True, 2)
    with pytest.raises(Conflict):
        await events.append_event(bought("cup", 1), expected_seq=1)
    assert await events.view(BILL, "r") == View(Bill(850, ("pen", "ink", "pad")), 3)


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_an_append_whose_inline_view_fails_leaves_nothing(world: World) -> None:
    events = world.store.events.inline(TYPES, BILL)
    await events.append_event(bought("pen", 120))
    with pytest.raises(ProjectionFailed, match=r"'bill@1'.* event 3 "):
        await events.append_events([bought("ink", 480), bought("pad", "a lot")])
    assert len(await events.fetch_events("r")) == 1
    assert await _kept(world, "types@1") == (1, {"Bought": 1})
    assert (await events.append_event(bought("ink", 480))).run_seq == 2
    assert await _kept(world, "bill@1") == (2, {"cents": 600, "items": ["pen", "ink"]})


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_inline_views_commit_with_the_callers_transaction(world: World) -> None:
    async with world.store.transaction() as tx:
        await tx.events.inline(BILL).append_event(bought("pen", 120))
        await tx.cells.set("a", 1)
    assert await _kept(world, "bill@1") == (1, {"cents": 120, "items": ["pen"]})
    with contextlib.suppress(ZeroDivisionError):
        async with world.store.transaction() as tx:
            await tx.events.inline(BILL).append_event(bought("ink", 480))
            raise ZeroDivisionError
    assert await _kept(world, "bill@1") == (1, {"cents": 120, "items": ["pen"]})


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_inline_appends_at_the_same_time_miss_nothing(world: World) -> None:
    events = world.store.events.inline(BILL)
    await world.together(
        events.append_event(bought(f"{number:02}", number, f"r{number % 2}"))
        for number in range(16)
    )
    for run in range(2):
        found = await events.view(BILL, f"r{run}")
        assert (found.last_seq, found.state.cents) == (8, sum(range(run, 16, 2)))
        kept = {"cents": found.state.cents, "items": list(found.state.items)}
        assert await _kept(world, "bill@1", f"r{run}") == (8, kept)


@EVENTS
async def test_inline_needs_transactions(world: World) -> None:
    if Capability.TRANSACTIONS in world.store.capabilities:
        world.store.events.inline(BILL)
    else:
        with pytest.raises(Unsupported, match="transactions"):
            world.store.events.inline(BILL)


# Snapshots that may be a little older


@needs(Capability.EVENTS, Capability.SHARED)
async def test_a_snapshot_may_be_as_old_as_the_caller_allows(world: World) -> None:
    events, others = world.store.events, (await world.open()).events
    assert await events.get_snapshot("r", max_age=3600) is None
    await others.append_event(Event("r", "RunStarted", "1"))
    assert await events.get_snapshot("r", max_age=3600) is None
    fresh = await events.get_snapshot("r")
    assert fresh is not None
    assert fresh.status is RunStatus.RUNNING
    assert await events.get_snapshot("r", max_age=0) == fresh


@EVENTS
async def test_own_writes_are_in_every_snapshot(world: World) -> None:
    events = world.store.events
    for number in range(3):
        await events.append_event(Event("r", "Noted", f"{number}"))
        for reader in (events, world.store.namespace("default").events):
            snapshot = await reader.get_snapshot("r", max_age=3600)
            assert snapshot is not None
            assert snapshot.last_event_seq == number + 1
    await events.delete_run("r", force=True)
    assert await events.get_snapshot("r", max_age=3600) is None


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_writes_of_own_transactions_are_in_every_snapshot(world: World) -> None:
    events = world.store.events
    await events.append_event(Event("r", "Noted", "1"))
    async with world.store.transaction() as tx:
        await tx.events.append_event(Event("r", "Noted", "2"))
        inside = await tx.events.get_snapshot("r", max_age=3600)
        assert inside is not None
        assert inside.last_event_seq == 2
    snapshot = await events.get_snapshot("r", max_age=3600)
    assert snapshot is not None
    assert snapshot.last_event_seq == 2

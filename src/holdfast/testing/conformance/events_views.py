"""Specs for the views of a run: what a projector keeps, and what is asked of it."""

from __future__ import annotations

from holdfast import Capability, Event
from holdfast.facets.events import RUN_VIEW, EventsBackend, RunKey, RunState, StoredSnapshot
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
    assert await events.keep(RUN, "b", generation, second)
    assert await events.state(RUN, "a") == RunState(generation, 2, first)
    assert await events.state(RUN, "b") == RunState(generation, 2, second)
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

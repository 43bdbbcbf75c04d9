"""Specs for the feed: the events of all runs in one order, then as they come."""

from __future__ import annotations

import pytest

from holdfast import CAUGHT_UP, Capability, Event, FeedEvent, InvalidArgument, InvalidState
from holdfast.aio.watch import AsyncWatch
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

EVENTS = needs(Capability.EVENTS)
SOON = 10.0  # seconds until an event must have been told

Told = tuple[str, int]


async def _next(feed: AsyncWatch[FeedEvent]) -> Told:
    told = await feed.next(SOON)
    assert isinstance(told, FeedEvent), f"no event was told, but {told}"
    return told.event.run_id, told.event.run_seq


async def _append(world: World, run_id: str, *keys: str) -> None:
    for key in keys:
        await world.store.events.append_event(Event(run_id, "Noted", key))


@EVENTS
async def test_the_feed_tells_all_events_then_a_marker_then_new_ones(world: World) -> None:
    await _append(world, "a", "1", "2")
    await _append(world, "b", "1")
    await _append(world, "a", "3", "1")  # the last one is known
    async with world.store.events.feed() as feed:
        assert [await _next(feed) for _ in range(4)] == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]
        assert not feed.caught_up
        assert await feed.next(SOON) is CAUGHT_UP
        await _append(world, "b", "1", "2")
        assert await _next(feed) == ("b", 2)
        assert await feed.next(0.05) is None


@EVENTS
async def test_the_feed_from_its_end_tells_only_what_is_new(world: World) -> None:
    await _append(world, "a", "1", "2")
    end = await world.store.events.feed_end()
    await _append(world, "b", "1")
    async with world.store.events.feed(after=end) as feed:
        assert await _next(feed) == ("b", 1)
        assert await feed.next(SOON) is CAUGHT_UP


@EVENTS
async def test_the_feed_tells_events_as_they_are_fetched(world: World) -> None:
    events = world.store.events
    await events.append_event(Event("a", "Noted", "1", {"raw": b"\xff"}, step_id="s"))
    async with events.feed() as feed:
        told = await feed.next(SOON)
        assert isinstance(told, FeedEvent)
        assert [told.event] == await events.fetch_events("a")
        assert told.replay
        assert await feed.next(SOON) is CAUGHT_UP
        await events.append_event(Event("a", "Noted", "2"))
        told = await feed.next(SOON)
        assert isinstance(told, FeedEvent)
        assert not told.replay
        assert told.cursor == feed.cursor


@EVENTS
async def test_the_feed_goes_on_from_every_cursor(world: World) -> None:
    events = world.store.events
    for number in range(60):
        await _append(world, f"r{number % 7}", str(number))
    async with events.feed() as feed:
        told = [await feed.next(SOON) for _ in range(60)]
    seen = [(one.event.run_id, one.event.run_seq) for one in told if isinstance(one, FeedEvent)]
    assert len(seen) == 60
    for at in range(0, 60, 13):
        one = told[at]
        assert isinstance(one, FeedEvent)
        async with events.feed(after=one.cursor) as feed:
            assert [await _next(feed) for _ in range(59 - at)] == seen[at + 1 :]
            assert await feed.next(SOON) is CAUGHT_UP


@EVENTS
async def test_the_feed_keeps_to_its_namespace(world: World) -> None:
    there = world.store.namespace("there").events
    await there.append_event(Event("t", "Noted", "1"))
    await _append(world, "a", "1")
    async with world.store.events.feed() as feed:
        assert await _next(feed) == ("a", 1)
        assert await feed.next(SOON) is CAUGHT_UP
        await there.append_event(Event("t", "Noted", "2"))
        await _append(world, "a", "2")
        assert await _next(feed) == ("a", 2)


@EVENTS
async def test_a_deleted_run_is_no_longer_told(world: World) -> None:
    events = world.store.events
    await _append(world, "a", "1")
    await _append(world, "b", "1", "2")
    await events.delete_run("b", force=True)
    await _append(world, "b", "1")
    async with events.feed() as feed:
        assert [await _next(feed) for _ in range(2)] == [("a", 1), ("b", 1)]
        assert await feed.next(SOON) is CAUGHT_UP
        await _append(world, "a", "2")
        assert await _next(feed) == ("a", 2)


@EVENTS
async def test_a_cursor_of_another_log_is_refused(world: World) -> None:
    for cursor in ("", "nonsense", "cells:1.0.0"):
        with pytest.raises(InvalidArgument, match="cursor"):
            world.store.events.feed(after=cursor)


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_what_a_transaction_appends_is_told_when_it_commits(world: World) -> None:
    store = world.store
    async with store.events.feed() as feed:
        assert await feed.next(SOON) is CAUGHT_UP
        async with store.transaction() as tx:
            await tx.events.append_event(Event("a", "Noted", "1"))
            await tx.events.append_event(Event("b", "Noted", "1"))
            with pytest.raises(InvalidState):
                tx.events.feed()
        assert [await _next(feed) for _ in range(2)] == [("a", 1), ("b", 1)]

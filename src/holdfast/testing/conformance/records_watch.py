"""Specs for watching records: replay, marker, then each record that changes."""

from __future__ import annotations

import pytest

from holdfast import CAUGHT_UP, Capability, InvalidArgument, Record, RecordChange
from holdfast.aio.watch import AsyncWatch
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

WATCH = needs(Capability.RECORDS, Capability.RECORDS_WATCH)
SOON = 30.0  # seconds until a change must have been told

Told = tuple[str, dict[str, bytes] | None]


async def _next(watch: AsyncWatch[RecordChange]) -> Told:
    change = await watch.next(SOON)
    assert isinstance(change, RecordChange), f"no change was told, but {change}"
    return change.key, None if change.record is None else change.record.fields


async def _marker(watch: AsyncWatch[RecordChange]) -> None:
    assert await watch.next(SOON) is CAUGHT_UP


@WATCH
async def test_a_watch_tells_what_is_there_then_a_marker_then_changes(world: World) -> None:
    records = world.store.records
    await records.put("a.1", {"x": 1})
    await records.put("a.2", {"x": 2}, ttl=1000)
    await records.put("b", {"x": 3})
    async with records.watch("a.") as watch:
        assert await _next(watch) == ("a.1", {"x": b"1"})
        assert await _next(watch) == ("a.2", {"x": b"2"})
        assert not watch.caught_up
        await _marker(watch)
        assert watch.caught_up
        await records.set_field("a.1", "y", 2)
        assert await _next(watch) == ("a.1", {"x": b"1", "y": b"2"})
        await records.put("b", {"x": 4})
        await records.delete("a.2")
        assert await _next(watch) == ("a.2", None)
        await records.put("a.3", {"x": 5})
        assert await _next(watch) == ("a.3", {"x": b"5"})
        assert await watch.next(0.05) is None


@WATCH
async def test_a_refused_write_is_not_told(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    async with records.watch() as watch:
        assert await _next(watch) == ("a", {"x": b"1"})
        await _marker(watch)
        assert await records.compare_and_swap("a", "x", 2, 3) is False
        assert await records.delete("never") is False
        await records.put("last", {"x": 1})
        assert await _next(watch) == ("last", {"x": b"1"})


@WATCH
async def test_what_leaves_an_absent_record_absent_is_not_told(world: World) -> None:
    records = world.store.records
    async with records.watch() as watch:
        await _marker(watch)
        await records.put("never", {})
        await records.set_field("never", "x", None)
        assert await records.compare_and_swap("never", "x", None, None) is True
        await records.put("last", {"x": 1})
        assert await _next(watch) == ("last", {"x": b"1"})


@WATCH
async def test_a_watch_goes_on_from_a_cursor(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    await records.put("b", {"x": 1})
    async with records.watch() as watch:
        while not watch.caught_up:
            await watch.next(SOON)
        cursor = watch.cursor
    assert cursor is not None
    await records.put("a", {"x": 2})
    await records.delete("b")
    await records.put("c", {"x": 3})
    async with records.watch(after=cursor) as watch:
        assert await _next(watch) == ("a", {"x": b"2"})
        assert await _next(watch) == ("b", None)
        assert await _next(watch) == ("c", {"x": b"3"})
        await _marker(watch)


@WATCH
async def test_a_record_that_changed_often_is_told_as_it_is_now(world: World) -> None:
    records = world.store.records
    async with records.watch() as watch:
        await _marker(watch)
        cursor = watch.cursor
    for number in range(20):
        await records.put("a", {"x": number})
    async with records.watch(after=cursor) as watch:
        assert await _next(watch) == ("a", {"x": b"19"})
        await _marker(watch)


@WATCH
async def test_every_writers_last_word_is_told(world: World) -> None:
    records = world.store.records
    last: dict[str, dict[str, bytes] | None] = {}

    async def write(number: int) -> None:
        for step in range(25):
            await records.put(f"k{number}", {"n": step})
            await records.put(f"k{number}.{step}", {"n": step})
            if step % 2:
                await records.delete(f"k{number}.{step}")
        await records.put(f"done.{number}", {"n": 1})

    async def follow() -> None:
        async with records.watch() as watch:
            # The replay is by key, and may begin with what the writers put last.
            while not (watch.caught_up and all(f"done.{number}" in last for number in range(4))):
                change = await watch.next(SOON)
                assert change is not None, f"not told of everything, but {sorted(last)}"
                if isinstance(change, RecordChange):
                    last[change.key] = None if change.record is None else change.record.fields

    await world.together([*(write(number) for number in range(4)), follow()])
    there = {key: value for key, value in last.items() if value is not None}
    assert there == {key: record.fields async for key, record in records.scan()}


@WATCH
async def test_namespaces_are_watched_apart(world: World) -> None:
    other = world.store.namespace("other").records
    async with world.store.records.watch() as watch:
        await _marker(watch)
        await other.put("a", {"x": 1})
        await world.store.records.put("b", {"x": 1})
        assert await _next(watch) == ("b", {"x": b"1"})


@needs(Capability.RECORDS, Capability.RECORDS_WATCH, Capability.SHARED)
async def test_another_store_hears_of_changes(world: World) -> None:
    other = await world.open()
    async with other.records.watch() as watch:
        await _marker(watch)
        await world.store.records.put("a", {"x": 1})
        assert await _next(watch) == ("a", {"x": b"1"})


@WATCH
async def test_a_cursor_of_something_else_is_refused(world: World) -> None:
    for cursor in ("", "nonsense", "cells:1.0.0"):
        with pytest.raises(InvalidArgument):
            world.store.records.watch(after=cursor)


@needs(Capability.RECORDS, Capability.RECORDS_WATCH, Capability.MOVABLE_CLOCK)
async def test_an_expired_record_is_told_once_it_is_removed(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    async with records.watch() as watch:
        assert await _next(watch) == ("a", {"x": b"1"})
        await _marker(watch)
        await world.move_clock(101)
        await records.purge()
        assert await _next(watch) == ("a", None)


@needs(Capability.RECORDS, Capability.RECORDS_WATCH, Capability.MOVABLE_CLOCK)
async def test_an_expired_record_is_not_replayed(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    await records.put("b", {"x": 1})
    await world.move_clock(101)
    async with records.watch() as watch:
        assert await _next(watch) == ("b", {"x": b"1"})
        await _marker(watch)


@needs(Capability.RECORDS, Capability.RECORDS_WATCH, Capability.TRANSACTIONS)
async def test_a_watch_tells_of_a_transaction_when_it_commits(world: World) -> None:
    async with world.store.records.watch() as watch:
        await _marker(watch)
        async with world.store.transaction() as tx:
            await tx.records.put("a", {"x": 1})
            await tx.records.put("b", {"x": 2})
            await tx.records.set_field("a", "x", 3)
        told = dict([await _next(watch), await _next(watch)])
        assert told == {"a": {"x": b"3"}, "b": {"x": b"2"}}
        assert await watch.next(0.05) is None


@WATCH
async def test_the_marker_can_be_iterated(world: World) -> None:
    await world.store.records.put("a", {"x": 1})
    found = []
    async with world.store.records.watch(marker=True) as watch:
        async for change in watch:
            if change is CAUGHT_UP:
                break
            assert isinstance(change, RecordChange)
            found.append((change.key, change.record, change.replay))
    assert found == [("a", Record({"x": b"1"}), True)]

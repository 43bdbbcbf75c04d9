"""Specs for a record's time to live: nothing expired is ever visible, nothing is revived."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Capability, InvalidArgument, Record, ScanFilter
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

CLOCK = needs(Capability.RECORDS, Capability.MOVABLE_CLOCK)


async def _left(world: World, key: str) -> float | None:
    found = await world.store.records.get(key)
    assert found is not None
    return found.ttl


async def _absent_everywhere(world: World, key: str) -> None:
    records = world.store.records
    assert await records.get(key) is None
    assert await records.get_field(key, "x") is None
    assert [found async for found, _ in records.scan(key)] == []
    assert [found async for found, _ in records.scan(filters=[ScanFilter("x", "eq", 1)])] == []
    assert await records.compare_and_swap(key, "x", 1, 2) is False
    assert await records.compare_and_set(key, expect={"x": 1}, set={"y": 1}) is False
    assert await records.expire(key, 100) is False
    assert await records.delete(key) is False
    assert await records.get(key) is None


@needs(Capability.RECORDS)
async def test_a_record_tells_how_long_it_still_lives(world: World) -> None:
    await world.store.records.put("a", {"x": 1}, ttl=100)
    await world.store.records.put("b", {"x": 1}, ttl=timedelta(minutes=2))
    left, other = await _left(world, "a"), await _left(world, "b")
    assert left is not None
    assert other is not None
    assert 90 < left <= 100
    assert 110 < other <= 120


@CLOCK
async def test_an_expired_record_is_absent_in_every_operation(world: World) -> None:
    await world.store.records.put("a", {"x": 1}, ttl=100)
    await world.move_clock(101)
    await _absent_everywhere(world, "a")


@CLOCK
async def test_a_record_is_there_until_its_time_is_up(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    await world.move_clock(80)
    left = await _left(world, "a")
    assert left is not None
    assert 10 < left <= 20
    await world.move_clock(21)
    assert await records.get("a") is None


PRECISION = 0.01  # seconds, of what a store says is left


@CLOCK
async def test_a_record_lives_to_the_last_hundredth_of_a_second_and_no_longer(
    world: World,
) -> None:
    records = world.store.records
    for _ in range(50):
        await records.put("a", {"x": 1}, ttl=100)
        left = await _left(world, "a")
        assert left is not None
        await world.move_clock(left - 0.5)
        still = await records.get("a")
        end = (await world.store.now()).timestamp()
        left = await _left(world, "a")
        if left is not None:  # its end lies behind both looks: then the first must have found it
            assert still is not None
            assert still.ttl is not None
            assert left <= still.ttl <= 0.5 + PRECISION
            await world.move_clock(left + PRECISION)
            assert await records.get("a") is None
            assert (await world.store.now()).timestamp() > end
            return
    raise AssertionError("half a second was never enough to read a record twice")


@CLOCK
async def test_put_without_ttl_clears_an_old_one(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    await records.put("a", {"x": 2})
    await world.move_clock(1000)
    assert await records.get("a") == Record({"x": b"2"}, None)


@CLOCK
async def test_put_with_ttl_starts_a_new_one(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    await records.put("a", {"x": 2}, ttl=1000)
    await world.move_clock(500)
    assert await records.get_field("a", "x") == b"2"


@CLOCK
async def test_field_writes_and_swaps_keep_the_ttl(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1}, ttl=100)
    await world.move_clock(50)
    await records.set_field("a", "y", 2)
    assert await records.compare_and_swap("a", "x", 1, 3)
    assert await records.compare_and_set("a", expect={"y": 2}, set={"y": None})
    left = await _left(world, "a")
    assert left is not None
    assert left <= 50
    await world.move_clock(51)
    await _absent_everywhere(world, "a")


@CLOCK
async def test_a_field_write_after_expiry_makes_a_new_record_for_ever(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "old": 1}, ttl=100)
    await world.move_clock(101)
    await records.set_field("a", "y", 2)
    assert await records.get("a") == Record({"y": b"2"}, None)
    await world.move_clock(10_000)
    assert await records.get("a") == Record({"y": b"2"}, None)


@CLOCK
async def test_a_swap_after_expiry_sees_no_old_field(world: World) -> None:
    records = world.store.records
    await records.put("a", {"lock": "old", "rest": 1}, ttl=100)
    await world.move_clock(101)
    assert await records.compare_and_swap("a", "lock", None, "new") is True
    assert await records.get("a") == Record({"lock": b"new"}, None)


@CLOCK
async def test_expire_sets_renews_and_clears_the_ttl(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    assert await records.expire("a", 100) is True
    await world.move_clock(50)
    assert await records.expire("a", 100) is True
    await world.move_clock(80)
    assert await records.get_field("a", "x") == b"1"
    assert await records.expire("a", None) is True
    await world.move_clock(1000)
    assert await records.get("a") == Record({"x": b"1"}, None)
    assert await records.expire("a", 1) is True
    await world.move_clock(2)
    assert await records.expire("a", 100) is False
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_expire_of_an_absent_record_is_false(world: World) -> None:
    assert await world.store.records.expire("a", 100) is False
    assert await world.store.records.expire("a", None) is False
    assert await world.store.records.get("a") is None


@needs(Capability.RECORDS)
@pytest.mark.parametrize("ttl", [0, -1, -0.5, timedelta(0)])
async def test_a_ttl_must_be_above_zero(world: World, ttl: float | timedelta) -> None:
    records = world.store.records
    with pytest.raises(InvalidArgument):
        await records.put("a", {"x": 1}, ttl=ttl)
    await records.put("a", {"x": 1})
    with pytest.raises(InvalidArgument):
        await records.expire("a", ttl)
    assert await records.get("a") == Record({"x": b"1"}, None)


@needs(Capability.RECORDS)
async def test_a_very_long_ttl_is_allowed(world: World) -> None:
    await world.store.records.put("a", {"x": 1}, ttl=timedelta(days=365_000))
    assert await world.store.records.get_field("a", "x") == b"1"


@needs(Capability.RECORDS, Capability.MOVABLE_CLOCK, Capability.SHARED)
async def test_the_clock_moves_for_every_store_that_is_open(world: World) -> None:
    other = await world.open()
    await world.store.records.put("a", {"x": 1}, ttl=100)
    assert await other.records.get_field("a", "x") == b"1"
    await world.move_clock(101)
    assert await other.records.get("a") is None


@CLOCK
async def test_purge_takes_only_what_is_out_of_sight(world: World) -> None:
    records = world.store.records
    await records.put("stays", {"x": 1})
    await records.put("later", {"x": 1}, ttl=1000)
    for number in range(5):
        await records.put(f"gone{number}", {"x": 1}, ttl=100)
    await world.move_clock(101)
    await records.purge()
    assert [key async for key, _ in records.scan()] == ["later", "stays"]
    assert await records.purge() == 0

"""Specs for the history of cells: getv, get_at, retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import AsyncStore, Capability, Cell, StoreConfig
from holdfast.clock import to_datetime
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, move_clock


async def _version(store: AsyncStore, name: str) -> Cell:
    cell = await store.cells.get_versioned(name)
    assert cell is not None
    return cell


@needs(Capability.CELLS_HISTORY)
async def test_getv_is_newest_first(world: World) -> None:
    cells = world.store.cells
    for value in ("a", "b", "c"):
        await cells.set("x", value)
    history = await cells.getv("x")
    assert [(cell.value, cell.version) for cell in history] == [("c", 3), ("b", 2), ("a", 1)]
    assert history[0] == await cells.get_versioned("x")
    commits = [cell.commit_id for cell in history]
    assert commits == sorted(set(commits), reverse=True)


@needs(Capability.CELLS_HISTORY)
async def test_getv_takes_a_limit(world: World) -> None:
    cells = world.store.cells
    for value in range(5):
        await cells.set("x", value)
    assert [cell.value for cell in await cells.getv("x", 2)] == [4, 3]
    assert [cell.value for cell in await cells.getv("x", limit=99)] == [4, 3, 2, 1, 0]
    assert await cells.getv("x", 0) == []


@needs(Capability.CELLS_HISTORY)
async def test_getv_of_an_unknown_cell_is_empty(world: World) -> None:
    assert await world.store.cells.getv("x") == []


@needs(Capability.CELLS_HISTORY)
async def test_getv_returns_everything_however_much(world: World) -> None:
    cells = world.store.cells
    for _ in range(11):
        await world.together(cells.set("x", number) for number in range(100))
    assert [cell.version for cell in await cells.getv("x")] == list(range(1100, 0, -1))


@needs(Capability.CELLS_HISTORY)
async def test_history_goes_on_past_a_delete(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "a")
    await cells.delete("x")
    await cells.init("x", "b")
    assert [(cell.value, cell.version) for cell in await cells.getv("x")] == [("b", 2), ("a", 1)]


@needs(Capability.CELLS_HISTORY)
@pytest.mark.parametrize("limit", [-1, True, "2", 1.5])
async def test_getv_refuses_a_bad_limit(world: World, limit: int) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="limit"):
        await world.store.cells.getv("x", limit)


@needs(Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_get_at_finds_what_was_current(world: World) -> None:
    store, marks = world.store, []
    for value in ("a", "b", "c"):
        await store.cells.set("x", value)
        marks.append(await _version(store, "x"))
        await world.move_clock(10)
    await store.cells.delete("x")
    for mark in marks:
        assert await store.cells.get_at("x", mark.updated_at) == mark
        assert await store.cells.get_at("x", mark.updated_at + 5_000_000) == mark
        assert await store.cells.get_at("x", to_datetime(mark.updated_at)) == mark
    assert await store.cells.get_at("x", marks[0].updated_at - 1) is None
    assert await store.cells.get_at("x", await store.now()) is None


@needs(Capability.CELLS_HISTORY)
async def test_get_at_takes_any_instant_however_far(world: World) -> None:
    await world.store.cells.set("x", 1)
    assert await world.store.cells.get_at("x", -(10**30)) is None
    cell = await world.store.cells.get_at("x", 10**30)
    assert cell is not None
    assert cell.value == 1


@needs(Capability.CELLS_HISTORY)
async def test_get_at_of_an_unknown_cell_is_none(world: World) -> None:
    assert await world.store.cells.get_at("x", datetime.now(UTC)) is None


@needs(Capability.CELLS_HISTORY)
@pytest.mark.parametrize("when", [datetime(2026, 1, 1), "now", 1.5, True, None])  # noqa: DTZ001
async def test_get_at_refuses_what_is_no_instant(world: World, when: datetime) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="instant"):
        await world.store.cells.get_at("x", when)


@needs(Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_updated_at_never_goes_back(world: World) -> None:
    store = world.store
    await store.cells.set("x", "a")
    first = await _version(store, "x")
    await world.move_clock(-3600)
    await store.cells.set("x", "b")
    second = await _version(store, "x")
    assert second.updated_at >= first.updated_at
    assert await store.cells.get_at("x", second.updated_at) == second


@needs(Capability.CELLS_HISTORY, Capability.CELLS_ATOMIC)
async def test_set_many_is_one_moment_in_history(world: World) -> None:
    names = [f"x{number}" for number in range(20)]
    await world.store.cells.set_many(dict.fromkeys(names, "v"))
    (moment,) = {(await _version(world.store, name)).updated_at for name in names}
    for name in names:
        assert await world.store.cells.get_at(name, moment - 1) is None
        assert await world.store.cells.get_at(name, moment) is not None


# Retention


@needs(Capability.CELLS_HISTORY)
async def test_all_history_is_kept_by_default(world: World) -> None:
    for value in range(50):
        await world.store.cells.set("x", value)
    assert await world.store.cells.prune() == 0
    assert len(await world.store.cells.getv("x")) == 50


@needs(Capability.CELLS_HISTORY)
async def test_the_last_n_versions_are_kept(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=3))
    for value in range(10):
        await store.cells.set("x", value)
    assert [(cell.value, cell.version) for cell in await store.cells.getv("x")] == [
        (9, 10),
        (8, 9),
        (7, 8),
    ]


@needs(Capability.CELLS_HISTORY)
async def test_one_version_kept_is_the_newest(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=1))
    for value in range(5):
        await store.cells.set("x", value)
    assert await store.cells.getv("x") == [await _version(store, "x")]
    assert await store.cells.get("x") == 4


@needs(Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_history_is_kept_for_a_time(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=timedelta(minutes=10)))
    for value in ("a", "b"):
        await store.cells.set("x", value)
        await move_clock(store, 300)
    await store.cells.set("x", "c")  # a was current until 5 minutes ago
    assert [cell.value for cell in await store.cells.getv("x")] == ["c", "b", "a"]
    await move_clock(store, 301)
    await store.cells.set("x", "d")  # now a's time ended more than 10 minutes ago
    assert [cell.value for cell in await store.cells.getv("x")] == ["d", "c", "b"]
    at = await store.now() - timedelta(minutes=10)
    cell = await store.cells.get_at("x", at)
    assert cell is not None
    assert cell.value == "b"


@needs(Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_newest_version_stays_however_old(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=timedelta(seconds=1)))
    await store.cells.set("x", "only")
    await move_clock(store, 86400)
    assert await store.cells.prune() == 0
    assert await store.cells.get("x") == "only"


@needs(Capability.CELLS_HISTORY, Capability.SHARED)
async def test_prune_reaches_cells_that_nobody_writes_to(world: World) -> None:
    for number in range(30):
        await world.store.cells.set_many({f"x{name}": number for name in range(5)})
    await world.store.cells.delete("x0")
    other = world.store.namespace("other")
    await other.cells.set("x1", 1)
    await other.cells.set("x1", 2)
    keeper = await world.open(config=StoreConfig(history=2))
    assert await keeper.cells.prune() == 5 * 28
    assert await keeper.cells.prune() == 0
    assert [cell.value for cell in await keeper.cells.getv("x1")] == [29, 28]
    assert await keeper.cells.get("x0") is None
    assert await keeper.cells.init("x0", "back") == 31
    assert len(await other.cells.getv("x1")) == 2

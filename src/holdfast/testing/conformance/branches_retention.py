"""Specs for what stays: retention keeps what another branch sees, and so does deleting."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast
from holdfast import AsyncStore, Capability, Cell, StoreConfig
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, move_clock

KEEPS_TWO = StoreConfig(history=2)


async def _history(store: AsyncStore, branch: str) -> list[tuple[object, int]]:
    return [(cell.value, cell.version) for cell in await store.cells.on(branch).getv("x")]


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_retention_keeps_what_a_child_sees(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=1))
    forked: dict[str, Cell | None] = {}
    for value in range(12):
        await store.cells.set("x", value)
        if value % 3 == 0:
            await store.branches.fork(f"b{value}")
            forked[f"b{value}"] = await store.cells.get_versioned("x")
    for name, cell in forked.items():
        assert cell is not None
        assert await store.cells.on(name).get_versioned("x") == cell
        assert await store.cells.on(name).getv("x") == [cell]
    assert await store.cells.prune() == 0


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_what_is_kept_for_a_child_is_gone_from_the_parents_history(world: World) -> None:
    store = await world.open_fresh(KEEPS_TWO)
    for value in "abc":
        await store.cells.set("x", value)
    await store.branches.fork("b")
    at = await store.now()
    for value in "defg":
        await store.cells.set("x", value)
    assert await _history(store, "main") == [("g", 7), ("f", 6)]
    assert await store.cells.get_at("x", at) is None
    seen = await store.cells.on("b").get_at("x", at)
    assert seen is not None
    assert seen.value == "c"


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_branch_keeps_its_own_last_versions(world: World) -> None:
    store = await world.open_fresh(KEEPS_TWO)
    await store.cells.set("x", "main")
    await store.branches.fork("b")
    branch = store.cells.on("b")
    for value in "abcd":
        await branch.set("x", value)
    assert await _history(store, "b") == [("d", 5), ("c", 4)]
    assert await _history(store, "main") == [("main", 1)]
    await branch.delete("x")
    assert await branch.init("x", "back") == 6


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_time_that_a_branch_no_longer_keeps_is_not_answered_by_its_parent(
    world: World,
) -> None:
    store = await world.open_fresh(StoreConfig(history=1))
    await store.cells.set("x", "main")
    await store.branches.fork("b")
    before = await store.now()
    await move_clock(store, 10)
    for value in "abc":
        await store.cells.on("b").set("x", value)
        await move_clock(store, 10)
    then = await store.now() - timedelta(seconds=15)
    assert await store.cells.on("b").get_at("x", then) is None
    inherited = await store.cells.on("b").get_at("x", before)
    assert inherited is not None
    assert inherited.value == "main"


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY, Capability.SHARED)
async def test_prune_keeps_what_a_child_sees_until_it_is_gone(world: World) -> None:
    store = world.store
    for value in range(30):
        await store.cells.set("x", value)
        if value == 9:
            await store.branches.fork("b")
    await store.cells.on("b").set("y", 1)
    keeper = await world.open(config=KEEPS_TWO)
    assert await keeper.cells.prune() == 28
    assert await _history(store, "main") == [(29, 30), (28, 29)]
    assert await _history(store, "b") == [(9, 10)]
    assert await keeper.cells.prune() == 0
    await store.branches.fork("c", source="b")
    await store.branches.delete("b")
    assert await keeper.cells.prune() == 0
    assert await _history(store, "c") == [(9, 10)]
    assert await store.cells.on("c").get("y") == 1


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY, Capability.SHARED)
async def test_prune_of_a_branch_leaves_main_alone(world: World) -> None:
    store = world.store
    for value in range(5):
        await store.cells.set("x", value)
    await store.branches.fork("b")
    for value in range(5):
        await store.cells.on("b").set("x", value)
    keeper = await world.open(config=KEEPS_TWO)
    assert await keeper.cells.on("b").prune() == 3
    assert len(await _history(store, "main")) == 5
    assert await _history(store, "b") == [(4, 10), (3, 9)]


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_retention_by_age_keeps_what_a_child_sees(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=timedelta(minutes=1)))
    await store.cells.set("x", "old")
    await store.branches.fork("b")
    for value in ("newer", "newest"):
        await move_clock(store, 3600)
        await store.cells.set("x", value)
    assert [cell.value for cell in await store.cells.getv("x")] == ["newest", "newer"]
    assert await store.cells.on("b").get("x") == "old"


# Deleted parents


@needs(Capability.BRANCHES)
async def test_deleted_parent_stays_visible_to_its_children(world: World) -> None:
    store = world.store
    await store.cells.set("x", "main")
    await store.branches.fork("parent")
    await store.cells.on("parent").set("x", "parent")
    await store.branches.fork("child", source="parent")
    await store.branches.fork("grandchild", source="child")
    assert await store.branches.delete("parent")
    assert await store.branches.delete("child")
    assert await store.cells.on("grandchild").get("x") == "parent"
    assert [branch.parent for branch in await store.branches.list()] == ["child"]
    with pytest.raises(holdfast.NotFound):
        await store.cells.on("parent").get("x")
    with pytest.raises(holdfast.NotFound):
        await store.branches.fork("late", source="child")


@needs(Capability.BRANCHES)
async def test_commit_ids_rise_after_the_newest_versions_are_purged(world: World) -> None:
    store = world.store
    await store.cells.set("x", "seen")
    await store.branches.fork("b")
    for value in range(5):
        await store.cells.on("b").set("y", value)
    highest = await store.cells.on("b").get_versioned("y")
    await store.branches.fork("c")
    await store.branches.delete("b")
    await store.cells.set("x", "unseen")
    cell = await store.cells.get_versioned("x")
    assert cell is not None
    assert highest is not None
    assert cell.commit_id > highest.commit_id
    assert await store.cells.on("c").get("x") == "seen"


@needs(Capability.BRANCHES)
async def test_deleting_a_large_branch_leaves_the_others_whole(world: World) -> None:
    store = world.store
    await store.cells.set("kept", 1)
    await store.branches.fork("b")
    await store.cells.on("b").set_many({f"x{number}": number for number in range(1300)})
    await store.branches.fork("c")
    assert await store.branches.delete("b")
    assert await store.cells.list() == ["kept"]
    assert await store.cells.on("c").list() == ["kept"]
    await store.branches.fork("b")
    assert await store.cells.on("b").list() == ["kept"]

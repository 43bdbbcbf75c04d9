"""Specs for the difference of two branches and their three-way merge."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import AsyncStore, Capability, Change, MergeResult, StoreConfig
from holdfast.facets.branches import Strategy
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


async def _forked(store: AsyncStore) -> None:
    """Main and b, both with a, b, c and d; each side has changed some since."""
    await store.cells.set_many(dict.fromkeys("abcde", "base"))
    await store.branches.fork("b")
    branch = store.cells.on("b")
    await branch.set("a", "source")
    await store.cells.set("b", "target")
    await branch.set("c", "source")
    await store.cells.set("c", "target")
    await branch.delete("d")
    await branch.set("new", "source")
    await branch.set("e", "same")
    await store.cells.set("e", "same")


async def _values(store: AsyncStore, branch: str = "main") -> dict[str, object]:
    cells = store.cells.on(branch)
    return {name: await cells.get(name) for name in await cells.list()}


# diff


@needs(Capability.BRANCHES)
async def test_diff_tells_who_changed_what(world: World) -> None:
    await _forked(world.store)
    assert await world.store.branches.diff("b", "main") == [
        Change("a", "source", 2, 1),
        Change("b", "target", 1, 2),
        Change("c", "both", 2, 2),
        Change("d", "source", None, 1),
        Change("new", "source", 1, None),
    ]
    assert await world.store.branches.diff("main", "b") == [
        Change("a", "target", 1, 2),
        Change("b", "source", 2, 1),
        Change("c", "both", 2, 2),
        Change("d", "target", 1, None),
        Change("new", "target", None, 1),
    ]


@needs(Capability.BRANCHES)
async def test_diff_of_a_fresh_fork_is_empty(world: World) -> None:
    await world.store.cells.set_many({f"x{number}": number for number in range(500)})
    await world.store.branches.fork("b")
    assert await world.store.branches.diff("b", "main") == []


@needs(Capability.BRANCHES)
async def test_diff_goes_by_values_and_not_by_versions(world: World) -> None:
    store = world.store
    await store.cells.set("x", 1)
    await store.branches.fork("b")
    await store.cells.on("b").set("x", 2)
    await store.cells.on("b").set("x", 1)
    assert await store.branches.diff("b", "main") == []
    await store.cells.set("x", 3)
    assert await store.branches.diff("b", "main") == [Change("x", "target", 3, 2)]


@needs(Capability.BRANCHES)
async def test_diff_of_siblings_starts_where_they_parted(world: World) -> None:
    store = world.store
    await store.cells.set_many({"x": 1, "y": 1, "z": 1})
    await store.branches.fork("a")
    await store.cells.on("a").set("x", 2)
    await store.branches.fork("left", source="a")
    await store.branches.fork("right", source="a")
    await store.cells.on("left").set("y", 2)
    await store.cells.on("right").delete("z")
    assert await store.branches.diff("left", "right") == [
        Change("y", "source", 2, 1),
        Change("z", "target", 1, None),
    ]


@needs(Capability.BRANCHES)
async def test_diff_finds_every_change_however_many(world: World) -> None:
    store = world.store
    names = [f"{number:04}" for number in range(1000)]
    await store.cells.set_many(dict.fromkeys(names, 0))
    await store.branches.fork("b")
    await store.cells.on("b").set_many(dict.fromkeys(names[::2], 1))
    await store.cells.set_many(dict.fromkeys(names[::3], 2))
    kinds = {
        name: ("both" if n % 6 == 0 else "source" if n % 2 == 0 else "target")
        for n, name in enumerate(names)
        if n % 2 == 0 or n % 3 == 0
    }
    changes = await store.branches.diff("b", "main")
    assert {change.name: change.kind for change in changes} == kinds
    assert [change.name for change in changes] == sorted(kinds)


@needs(Capability.BRANCHES)
async def test_diff_and_merge_need_two_branches_that_exist(world: World) -> None:
    branches = world.store.branches
    await branches.fork("b")
    for call in (branches.diff, branches.merge):
        with pytest.raises(holdfast.InvalidArgument, match="same branch"):
            await call("b", "b")
        with pytest.raises(holdfast.NotFound, match="'gone'"):
            await call("gone", "b")
        with pytest.raises(holdfast.NotFound, match="'gone'"):
            await call("b", "gone")


# merge


@needs(Capability.BRANCHES)
async def test_strict_merge_raises_with_the_names_and_writes_nothing(world: World) -> None:
    store = world.store
    await _forked(store)
    before = await _values(store)
    with pytest.raises(holdfast.Conflict, match="'c'") as raised:
        await store.branches.merge("b")
    assert raised.value.cells == ["c"]
    assert await _values(store) == before
    await store.cells.set("c", "source")
    assert (await store.branches.merge("b")).merged == {"a": 3, "new": 2}


@needs(Capability.BRANCHES)
async def test_merge_writes_what_the_source_changed_and_keeps_the_rest(world: World) -> None:
    store = world.store
    await _forked(store)
    await store.cells.on("b").set("c", "base")
    result = await store.branches.merge("b")
    assert result == MergeResult(merged={"a": 3, "new": 2}, deleted=["d"])
    assert await _values(store) == {
        "a": "source",
        "b": "target",
        "c": "target",
        "e": "same",
        "new": "source",
    }
    assert await store.branches.merge("b") == MergeResult(merged={}, deleted=[])


@needs(Capability.BRANCHES)
@pytest.mark.parametrize(
    ("strategy", "value", "version"), [("source_wins", "source", 3), ("target_wins", "target", 2)]
)
async def test_the_winning_sides_value_stays(
    world: World, strategy: Strategy, value: str, version: int
) -> None:
    store = world.store
    await _forked(store)
    result = await store.branches.merge("b", strategy=strategy)
    cell = await store.cells.get_versioned("c")
    assert cell is not None
    assert (cell.value, cell.version) == (value, version)
    assert ("c" in result.merged) == (strategy == "source_wins")
    assert await store.cells.get("a") == "source"


@needs(Capability.BRANCHES)
async def test_merged_cell_gets_a_version_above_both(world: World) -> None:
    store = world.store
    await store.cells.set("x", 0)
    await store.branches.fork("b")
    for value in range(5):
        await store.cells.on("b").set("x", value)
    for value in range(2):
        await store.cells.set("y", value)
        await store.cells.on("b").set("y", f"b{value}")
    assert await store.branches.merge("b", strategy="source_wins") == MergeResult(
        merged={"x": 7, "y": 3}, deleted=[]
    )
    assert await store.cells.set("x", "next") == 8


@needs(Capability.BRANCHES)
async def test_merged_delete_keeps_the_larger_counter(world: World) -> None:
    store = world.store
    await store.cells.set("x", 0)
    await store.branches.fork("b")
    for value in range(5):
        await store.cells.on("b").set("x", value)
    await store.cells.on("b").delete("x")
    assert (await store.branches.merge("b")).deleted == ["x"]
    assert await store.cells.get("x", "absent") == "absent"
    assert await store.cells.init("x", "back") == 7


@needs(Capability.BRANCHES)
async def test_delete_against_a_change_is_a_conflict(world: World) -> None:
    store = world.store
    await store.cells.set_many({"x": 0, "y": 0})
    await store.branches.fork("b")
    await store.cells.on("b").delete("x")
    await store.cells.set("x", 1)
    await store.cells.delete("y")
    await store.cells.on("b").set("y", 1)
    with pytest.raises(holdfast.Conflict) as raised:
        await store.branches.merge("b")
    assert raised.value.cells == ["x", "y"]
    assert await store.branches.merge("b", strategy="source_wins") == MergeResult(
        merged={"y": 3}, deleted=["x"]
    )


@needs(Capability.BRANCHES)
async def test_next_merge_starts_from_the_last_one(world: World) -> None:
    store = world.store
    await store.cells.set_many({"x": 0, "y": 0})
    await store.branches.fork("b")
    branch = store.cells.on("b")
    await branch.set("x", 1)
    await store.branches.merge("b")
    await store.cells.set("x", 2)  # the branch has not changed it since
    await branch.set("y", 1)
    assert (await store.branches.merge("b")).merged == {"y": 3}
    assert await _values(store) == {"x": 2, "y": 1}
    # The other way round: what main has since, and nothing that came from the branch.
    assert (await store.branches.merge("main", "b")).merged == {"x": 5}
    assert await _values(store, "b") == {"x": 2, "y": 1}
    assert await store.branches.diff("b", "main") == []


@needs(Capability.BRANCHES)
async def test_conflict_decided_once_is_decided(world: World) -> None:
    store = world.store
    await _forked(store)
    await store.branches.merge("b", strategy="target_wins")
    assert await store.branches.merge("b") == MergeResult(merged={}, deleted=[])
    await store.cells.on("b").set("c", "again")  # it has not seen what main holds
    with pytest.raises(holdfast.Conflict):
        await store.branches.merge("b")
    await store.branches.merge("main", "b", strategy="source_wins")
    await store.cells.on("b").set("c", "now it has")
    assert list((await store.branches.merge("b")).merged) == ["c"]


@needs(Capability.BRANCHES)
async def test_branch_catches_up_with_main(world: World) -> None:
    store = world.store
    await _forked(store)
    result = await store.branches.merge("main", "b", strategy="source_wins")
    assert list(result.merged) == ["b", "c"]
    assert await _values(store, "b") == {
        "a": "source",
        "b": "target",
        "c": "target",
        "e": "same",
        "new": "source",
    }
    assert (await store.branches.merge("b")).deleted == ["d"]


@needs(Capability.BRANCHES)
async def test_merge_repeated_under_its_operation_id_is_one_merge(world: World) -> None:
    store, op = world.store, uuid4()
    await _forked(store)
    first = await store.branches.merge("b", strategy="source_wins", op_id=op)
    await store.cells.on("b").set("late", 1)
    assert await store.branches.merge("b", strategy="source_wins", op_id=op) == first
    assert await store.cells.get("late", "absent") == "absent"
    await store.branches.merge("b")
    await store.cells.on("b").set("later", 1)
    assert await store.branches.merge("b", strategy="source_wins", op_id=op) == first
    assert await store.cells.get("later", "absent") == "absent"


@needs(Capability.BRANCHES)
async def test_merge_without_changes_is_remembered_under_its_operation_id(world: World) -> None:
    store, op = world.store, uuid4()
    await store.branches.fork("b")
    nothing = MergeResult(merged={}, deleted=[])
    assert await store.branches.merge("b", op_id=op) == nothing
    await store.cells.on("b").set("late", 1)
    assert await store.branches.merge("b", op_id=op) == nothing
    assert await store.cells.list() == []


@needs(Capability.BRANCHES)
@pytest.mark.parametrize("strategy", ["", "theirs", None])
async def test_merge_refuses_an_unknown_strategy(world: World, strategy: Strategy) -> None:
    await world.store.branches.fork("b")
    with pytest.raises(holdfast.InvalidArgument, match="strategy"):
        await world.store.branches.merge("b", strategy=strategy)


@needs(Capability.BRANCHES)
async def test_merge_is_one_moment_in_history(world: World) -> None:
    store = world.store
    await store.branches.fork("b")
    names = [f"x{number:03}" for number in range(450)]
    await store.cells.on("b").set_many(dict.fromkeys(names, "v"))
    assert list((await store.branches.merge("b")).merged) == names
    cells = [await store.cells.get_versioned(name) for name in names[::50]]
    (moment,) = {cell.updated_at for cell in cells if cell is not None}
    assert await store.cells.get_at(names[0], moment - 1) is None


@needs(Capability.BRANCHES)
async def test_target_that_changes_meanwhile_loses_nothing(world: World) -> None:
    store = world.store
    await store.cells.set_many({f"x{number}": 0 for number in range(20)})
    await store.branches.fork("b")
    for number in range(20):
        await store.cells.on("b").set(f"x{number}", "merged")
    calls: list[Coroutine[Any, Any, Any]] = [store.branches.merge("b", strategy="target_wins")]
    calls += [store.cells.set(f"x{number}", "main") for number in range(20)]
    merge, *sets = await world.together(calls)
    assert isinstance(merge, MergeResult)
    for number, version in enumerate(sets):
        history = {c.version: c.value for c in await store.cells.getv(f"x{number}")}
        assert history[version] == "main"
        # Whoever came first: what main wrote before the merge won, what it wrote after is newest.
        assert await store.cells.get(f"x{number}") == "main"


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_base_of_a_merge_outlives_retention(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=1))
    await store.cells.set_many({"x": 0, "y": 0})
    await store.branches.fork("b")
    branch = store.cells.on("b")
    await branch.set("x", 1)
    await store.branches.merge("b")
    for value in (2, 3, 1):  # ends where the base was, so the branch changed nothing
        await branch.set("x", value)
    for value in range(5):
        await store.cells.set("x", f"main {value}")
        await store.cells.set("y", f"main {value}")
    assert await store.branches.merge("b") == MergeResult(merged={}, deleted=[])
    assert await store.cells.get("x") == "main 4"

"""Specs for branches of cells: fork, list, delete, and reading and writing through the chain."""

from __future__ import annotations

from itertools import pairwise
from uuid import uuid4

import pytest

import holdfast
from holdfast import AsyncStore, Branch, Capability
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


async def _chain(store: AsyncStore, levels: int) -> list[str]:
    """Branches b1, b2 …, each forked from the one before; b1 from main."""
    names = ["main", *(f"b{level}" for level in range(1, levels + 1))]
    for source, name in pairwise(names):
        await store.branches.fork(name, source=source)
    return names[1:]


# fork, list, delete


@needs(Capability.BRANCHES)
async def test_fork_tells_parent_commit_and_time(world: World) -> None:
    store = world.store
    await store.cells.set("x", 1)
    cell = await store.cells.get_versioned("x")
    assert cell is not None
    branch = await store.branches.fork("b")
    assert (branch.name, branch.parent) == ("b", "main")
    assert branch.fork_commit >= cell.commit_id
    assert branch.created_at >= cell.updated_at
    assert await store.branches.list() == [branch]


@needs(Capability.BRANCHES)
async def test_branches_are_listed_by_name_without_main(world: World) -> None:
    store = world.store
    assert await store.branches.list() == []
    for name in ("b", "a%", "ä", "a"):
        await store.branches.fork(name)
    child = await store.branches.fork("c", source="b")
    assert [branch.name for branch in await store.branches.list()] == ["a", "a%", "b", "c", "ä"]
    assert child.parent == "b"


@needs(Capability.BRANCHES)
async def test_fork_of_a_name_that_exists_is_a_conflict(world: World) -> None:
    first = await world.store.branches.fork("b")
    with pytest.raises(holdfast.Conflict, match="'b'"):
        await world.store.branches.fork("b")
    assert await world.store.branches.list() == [first]


@needs(Capability.BRANCHES)
async def test_of_many_forks_of_one_name_one_wins(world: World) -> None:
    store = world.store
    await store.branches.fork("other")
    forks = [store.branches.fork("b", source=("main", "other")[n % 2]) for n in range(10)]
    outcomes = await world.colour.together(forks)
    won = [outcome for outcome in outcomes if isinstance(outcome, Branch)]
    assert len(won) == 1
    assert sum(isinstance(outcome, holdfast.Conflict) for outcome in outcomes) == 9


@needs(Capability.BRANCHES)
async def test_fork_repeated_under_its_operation_id_is_one_fork(world: World) -> None:
    store, op = world.store, uuid4()
    first = await store.branches.fork("b", op_id=op)
    await store.cells.set("x", 1)
    assert await store.branches.fork("b", op_id=op) == first
    assert await store.branches.fork("other name", op_id=op) == first
    assert await store.cells.on("b").get("x") is None


@needs(Capability.BRANCHES)
@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1025, "main", 5])
async def test_fork_refuses_what_cannot_be_a_branch(world: World, name: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="branch name"):
        await world.store.branches.fork(name)


@needs(Capability.BRANCHES)
async def test_fork_of_a_missing_source_is_not_found(world: World) -> None:
    with pytest.raises(holdfast.NotFound, match="'nowhere'"):
        await world.store.branches.fork("b", source="nowhere")


@needs(Capability.BRANCHES)
async def test_namespaces_have_their_own_branches(world: World) -> None:
    other = world.store.namespace("other")
    await world.store.branches.fork("b")
    await world.store.cells.on("b").set("x", 1)
    assert await other.branches.list() == []
    with pytest.raises(holdfast.NotFound):
        await other.cells.on("b").get("x")
    await other.branches.fork("b")
    assert await other.cells.on("b").get("x") is None


@needs(Capability.BRANCHES)
async def test_delete_tells_whether_there_was_a_branch(world: World) -> None:
    store = world.store
    await store.branches.fork("b")
    assert await store.branches.delete("b")
    assert not await store.branches.delete("b")
    assert await store.branches.list() == []


@needs(Capability.BRANCHES)
async def test_main_cannot_be_deleted(world: World) -> None:
    with pytest.raises(holdfast.InvalidState, match="'main'"):
        await world.store.branches.delete("main")


@needs(Capability.BRANCHES)
async def test_branch_recreated_under_its_name_shares_nothing_with_the_old_one(
    world: World,
) -> None:
    store, old = world.store, world.store.cells.on("b")
    await store.cells.set("x", "main")
    await store.branches.fork("b")
    await old.set("x", "old")
    await old.set("y", "old")
    await store.branches.delete("b")
    await store.branches.fork("b")
    assert await old.list() == ["x"]
    assert [(cell.value, cell.version) for cell in await old.getv("x")] == [("main", 1)]
    assert await old.getv("y") == []
    assert await old.set("y", "new") == 1


# A missing branch


@needs(Capability.BRANCHES, Capability.CELLS_ATOMIC, Capability.CELLS_HISTORY)
@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("get", ("x",)),
        ("get_versioned", ("x",)),
        ("getv", ("x",)),
        ("get_at", ("x", 2**60)),
        ("list", ()),
        ("prune", ()),
        ("set", ("x", 1)),
        ("init", ("x", 1)),
        ("cas", ("x", 1, 1)),
        ("delete", ("x",)),
        ("set_many", ({"x": 1, "y": 2},)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_missing_branch_is_not_found(
    world: World, method: str, args: tuple[object, ...]
) -> None:
    await world.store.cells.set("x", 1)
    with pytest.raises(holdfast.NotFound, match="'gone'") as raised:
        await getattr(world.store.cells.on("gone"), method)(*args)
    assert raised.value.branch == "gone"
    await world.store.branches.fork("gone")
    await world.store.branches.delete("gone")
    with pytest.raises(holdfast.NotFound, match="'gone'"):
        await getattr(world.store.cells.on("gone"), method)(*args)


@needs(Capability.BRANCHES)
async def test_writes_to_a_missing_branch_harm_no_neighbour(world: World) -> None:
    store = world.store
    await store.branches.fork("b")
    calls = [store.cells.on(("main", "b", "gone")[n % 3]).set(f"x{n}", n) for n in range(30)]
    outcomes = await world.colour.together(calls)
    assert [outcome == 1 for outcome in outcomes] == [n % 3 < 2 for n in range(30)]
    assert all(isinstance(outcome, holdfast.NotFound) for outcome in outcomes[2::3])


@needs(Capability.BRANCHES)
async def test_main_is_a_branch_like_the_others(world: World) -> None:
    await world.store.cells.on("main").set("x", 1)
    assert await world.store.cells.get("x") == 1


@needs(Capability.BRANCHES)
@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1025, None])
async def test_on_refuses_what_is_no_branch_name(world: World, name: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="branch name"):
        world.store.cells.on(name)


# Reading and writing through the chain


@needs(Capability.BRANCHES)
async def test_branch_sees_its_source_as_it_was(world: World) -> None:
    store = world.store
    await store.cells.set("x", "before")
    before = await store.cells.get_versioned("x")
    await store.branches.fork("b")
    await store.cells.set("x", "after")
    await store.cells.set("y", "after")
    branch = store.cells.on("b")
    assert await branch.get_versioned("x") == before
    assert await branch.get("y", "absent") == "absent"
    assert await branch.list() == ["x"]


@needs(Capability.BRANCHES)
async def test_writes_on_a_branch_stay_there(world: World) -> None:
    store = world.store
    await store.cells.set("x", "main")
    await store.branches.fork("b")
    await store.branches.fork("c")
    branch = store.cells.on("b")
    await branch.set("x", "branch")
    await branch.set("y", "branch")
    assert await branch.get("x") == "branch"
    for other in (store.cells, store.cells.on("c")):
        assert await other.get("x") == "main"
        assert await other.list() == ["x"]


@needs(Capability.BRANCHES)
async def test_write_on_a_branch_continues_the_inherited_counter(world: World) -> None:
    store = world.store
    for value in range(3):
        await store.cells.set("x", value)
    await store.branches.fork("b")
    branch = store.cells.on("b")
    assert await branch.init("x", "kept") == 3
    assert await branch.cas("x", 2, "lost") is None
    assert await branch.cas("x", None, "lost") is None
    assert await branch.getv("x") == await store.cells.getv("x")
    assert await branch.cas("x", 3, "won") == 4
    assert await branch.set("x", "more") == 5
    assert await store.cells.set("x", "apart") == 4


@needs(Capability.BRANCHES)
async def test_inherited_cell_can_be_deleted_and_comes_back_with_its_counter(world: World) -> None:
    store = world.store
    await store.cells.set("x", 1)
    await store.cells.set("y", 1)
    await store.branches.fork("b")
    await store.branches.fork("c", source="b")
    branch = store.cells.on("b")
    assert await branch.delete("x")
    assert not await branch.delete("x")
    assert await branch.get("x", "absent") == "absent"
    assert await branch.list() == ["y"]
    await store.branches.fork("d", source="b")
    assert await store.cells.on("d").list() == ["y"]
    assert await store.cells.on("c").list() == ["x", "y"]
    assert await store.cells.list() == ["x", "y"]
    assert await branch.cas("x", 1, "late") is None
    assert await branch.init("x", "back") == 2


@needs(Capability.BRANCHES)
async def test_cell_deleted_before_the_fork_keeps_its_counter_on_the_branch(world: World) -> None:
    store = world.store
    await store.cells.set("x", 1)
    await store.cells.delete("x")
    await store.branches.fork("b")
    branch = store.cells.on("b")
    assert await branch.get("x", "absent") == "absent"
    assert not await branch.delete("x")
    assert await branch.cas("x", None, 2) == 2


@needs(Capability.BRANCHES, Capability.CELLS_ATOMIC)
async def test_set_many_on_a_branch_continues_each_counter(world: World) -> None:
    store = world.store
    await store.cells.set("a", 1)
    await store.cells.set("a", 2)
    await store.branches.fork("b")
    assert await store.cells.on("b").set_many({"a": 3, "z": 1}) == {"a": 3, "z": 1}


@needs(Capability.BRANCHES)
async def test_same_operation_id_on_two_branches_is_two_operations(world: World) -> None:
    store, op = world.store, uuid4()
    await store.branches.fork("b")
    assert await store.cells.set("x", "main", op_id=op) == 1
    assert await store.cells.on("b").set("x", "branch", op_id=op) == 1
    await store.cells.on("b").set("x", "more")
    assert await store.cells.on("b").set("x", "branch", op_id=op) == 1
    assert await store.cells.on("b").get("x") == "more"


@needs(Capability.BRANCHES)
async def test_racing_writers_of_an_inherited_cell_each_get_their_own_version(
    world: World,
) -> None:
    store = world.store
    await store.cells.set("x", "start")
    await store.branches.fork("b")
    branch = store.cells.on("b")
    versions = await world.together(branch.set("x", number) for number in range(30))
    assert sorted(versions) == list(range(2, 32))
    won = await world.together(branch.cas("y", None, number) for number in range(20))
    assert sum(version is not None for version in won) == 1


@needs(Capability.BRANCHES)
async def test_list_merges_the_levels_by_name(world: World) -> None:
    store = world.store
    names = [f"{number:04}" for number in range(2100)]
    await store.cells.set_many(dict.fromkeys(names, "main"))
    await store.branches.fork("b")
    branch = store.cells.on("b")
    await branch.set_many(dict.fromkeys([f"{name}+" for name in names[::7]], "b"))
    gone = names[::3]
    await world.together(branch.delete(name) for name in gone[:300])
    await store.cells.set_many(dict.fromkeys([f"{name}-" for name in names[::5]], "later"))
    wanted = sorted({*names, *(f"{name}+" for name in names[::7])} - set(gone[:300]))
    assert await branch.list() == wanted
    assert await branch.list("00") == [name for name in wanted if name.startswith("00")]
    assert await branch.list(after="0003", limit=5) == [n for n in wanted if n > "0003"][:5]
    pages: list[str] = []
    while page := await branch.list(after=pages[-1] if pages else None, limit=90):
        pages.extend(page)
    assert pages == wanted


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_getv_goes_through_the_chain(world: World) -> None:
    store = world.store
    await store.cells.set("x", "a")
    await store.cells.set("x", "b")
    first, *_ = await _chain(store, 3)
    await store.cells.set("x", "unseen")
    await store.cells.on(first).set("x", "unseen too")
    last = store.cells.on("b3")
    await last.delete("x")
    await last.set("x", "c")
    history = await last.getv("x")
    assert [(cell.value, cell.version) for cell in history] == [("c", 3), ("b", 2), ("a", 1)]
    assert await last.getv("x", 2) == history[:2]
    commits = [cell.commit_id for cell in history]
    assert commits == sorted(set(commits), reverse=True)


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY)
async def test_getv_through_the_chain_returns_everything_however_much(world: World) -> None:
    store = world.store
    await world.together(store.cells.set("x", number) for number in range(1200))
    await store.branches.fork("b")
    await world.together(store.cells.on("b").set("x", number) for number in range(1100))
    history = await store.cells.on("b").getv("x")
    assert [cell.version for cell in history] == list(range(2300, 0, -1))


@needs(Capability.BRANCHES, Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_get_at_goes_through_the_chain(world: World) -> None:
    store, marks = world.store, []
    await store.branches.fork("early")
    for branch, value in (("main", "a"), ("main", "b"), ("b1", "c"), ("b2", "d"), ("b2", "e")):
        if branch != "main" and value in "cd":
            await store.branches.fork(branch, source="main" if branch == "b1" else "b1")
        await store.cells.on(branch).set("x", value)
        marks.append(await store.cells.on(branch).get_versioned("x"))
        await world.move_clock(10)
        if branch != "b2":
            continue
        await store.cells.set("x", f"unseen {value}")
    branch_cells = store.cells.on("b2")
    for mark in marks:
        assert mark is not None
        assert await branch_cells.get_at("x", mark.updated_at) == mark
        assert await branch_cells.get_at("x", mark.updated_at + 5_000_000) == mark
    assert marks[0] is not None
    assert await branch_cells.get_at("x", marks[0].updated_at - 1) is None
    assert await store.cells.on("early").get_at("x", 2**60) is None


@needs(Capability.BRANCHES)
async def test_chain_of_sixteen_forks_reads_to_its_bottom(world: World) -> None:
    store = world.store
    await store.cells.set("x", "bottom")
    names = await _chain(store, 16)
    last = store.cells.on(names[-1])
    assert await last.get("x") == "bottom"
    assert await last.list() == ["x"]
    assert await last.set("x", "top") == 2


@needs(Capability.BRANCHES)
async def test_seventeenth_level_of_forks_is_refused(world: World) -> None:
    names = await _chain(world.store, 16)
    with pytest.raises(holdfast.InvalidState, match="16 forks"):
        await world.store.branches.fork("deeper", source=names[-1])
    assert len(await world.store.branches.list()) == 16


@needs(Capability.BRANCHES)
async def test_commit_ids_rise_over_all_branches(world: World) -> None:
    store, commits = world.store, []
    await store.branches.fork("b")
    for branch in ("main", "b", "main", "b", "b"):
        cells = store.cells.on(branch)
        await cells.set("x", branch)
        cell = await cells.get_versioned("x")
        assert cell is not None
        commits.append(cell.commit_id)
    assert commits == sorted(set(commits))

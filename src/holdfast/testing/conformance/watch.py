# ruff: noqa: PT012 -- what is raised inside must pass the transaction's end
"""Specs for watching cells: replay, marker, live changes, cursors."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast
from holdfast import CAUGHT_UP, AsyncStore, Capability, Cell, CellChange, StoreConfig
from holdfast.aio.watch import AsyncWatch
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

_PATIENCE = 30.0
"""Seconds until a change that does not come is a failure."""


async def _next(watch: AsyncWatch[CellChange]) -> CellChange:
    change = await watch.next(timeout=_PATIENCE)
    assert isinstance(change, CellChange), f"wanted a change, got {change!r}"
    return change


async def _marker(watch: AsyncWatch[CellChange]) -> None:
    assert await watch.next(timeout=_PATIENCE) is CAUGHT_UP


async def _told(watch: AsyncWatch[CellChange], count: int) -> list[tuple[str, object]]:
    """Names and values of the next changes; None for a deleted cell."""
    changes = [await _next(watch) for _ in range(count)]
    return [(change.name, change.cell and change.cell.value) for change in changes]


async def _quiet(watch: AsyncWatch[CellChange]) -> None:
    """Nothing comes: a change made now is the very next one."""
    assert await watch.next(timeout=0) is None


async def _cursor_now(store: AsyncStore) -> str:
    watch = store.cells.watch("a prefix that nothing has")
    await _marker(watch)
    assert watch.cursor is not None
    return watch.cursor


# Replay, marker, live


@needs(Capability.CELLS_WATCH)
async def test_replay_is_what_is_there_by_name_then_the_marker(world: World) -> None:
    cells = world.store.cells
    for name in ("b", "a", "c"):
        await cells.set(name, f"old {name}")
    await cells.set("b", "new b")
    await cells.delete("c")
    async with cells.watch() as watch:
        assert not watch.caught_up
        assert await _told(watch, 2) == [("a", "old a"), ("b", "new b")]
        await _marker(watch)
        assert watch.caught_up
        await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_live_changes_come_once_and_in_order(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 0)
    watch = cells.watch()
    assert await _told(watch, 1) == [("a", 0)]
    await _marker(watch)
    await cells.set("a", 1)
    await cells.cas("a", 2, 2)
    await cells.set_many({"b": 3, "c": 4})
    await cells.delete("a")
    assert await _told(watch, 2) == [("a", 1), ("a", 2)]
    assert sorted(await _told(watch, 2)) == [("b", 3), ("c", 4)]
    assert await _told(watch, 1) == [("a", None)]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_a_change_tells_the_whole_cell(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", [1, {"b": None}])
    watch = cells.watch()
    replayed = await _next(watch)
    assert (replayed.name, replayed.replay) == ("a", True)
    assert replayed.cell == await cells.get_versioned("a")
    await _marker(watch)
    await cells.set("a", b"\x00\xff")
    live = await _next(watch)
    assert isinstance(live.cell, Cell)
    assert live == CellChange("a", await cells.get_versioned("a"), False, watch.cursor)


@needs(Capability.CELLS_WATCH)
async def test_what_is_refused_or_known_is_no_change(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    watch = cells.watch(after=await _cursor_now(world.store))
    await _marker(watch)
    assert await cells.cas("a", 7, 2) is None
    assert await cells.init("a", 2) == 1
    assert not await cells.delete("b")
    operation = "0190a000-0000-7000-8000-000000000001"
    for _ in range(2):
        assert await cells.set("a", 3, op_id=operation) == 2
    assert await _told(watch, 1) == [("a", 3)]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_only_names_with_the_prefix_are_told(world: World) -> None:
    cells = world.store.cells
    names = ("a", "a%b", "a%", "b", "a\U0010ffff", "A")
    for name in names:
        await cells.set(name, "old")
    watch = cells.watch("a%")
    assert await _told(watch, 2) == [("a%", "old"), ("a%b", "old")]
    await _marker(watch)
    for name in names:
        await cells.set(name, "new")
    assert await _told(watch, 2) == [("a%b", "new"), ("a%", "new")]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_one_exact_name_is_told_alone(world: World) -> None:
    cells = world.store.cells
    names = ("cfg", "cfg/", "cfg2", "cf", "cfg\x01")
    for name in names:
        await cells.set(name, "old")
    watch = cells.watch(name="cfg")
    assert await _told(watch, 1) == [("cfg", "old")]
    await _marker(watch)
    cursor = watch.cursor
    for name in names:
        await cells.set(name, "new")
        await cells.delete(name)
    assert await _told(watch, 2) == [("cfg", "new"), ("cfg", None)]
    await _quiet(watch)
    again = cells.watch(name="cfg", after=cursor)
    assert await _told(again, 2) == [("cfg", "new"), ("cfg", None)]
    later = cells.watch(name="later")
    await _marker(later)
    await cells.set("later/x", 1)
    await cells.set("later", 1)
    assert await _told(later, 1) == [("later", 1)]


@needs(Capability.CELLS_WATCH)
async def test_other_namespaces_are_not_told(world: World) -> None:
    other = world.store.namespace("other")
    await other.cells.set("a", "theirs")
    watch = world.store.cells.watch()
    await _marker(watch)
    await other.cells.set("a", "theirs")
    await world.store.cells.set("a", "ours")
    assert await _told(watch, 1) == [("a", "ours")]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_iteration_ends_with_close_and_gives_the_marker_when_asked(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    seen: list[object] = []
    watch = cells.watch(marker=True)
    async for change in watch:
        seen.append(change)
        if change is CAUGHT_UP:
            await cells.set("a", 2)
        elif len(seen) > 1:
            watch.close()
    assert [getattr(change, "replay", change) for change in seen] == [True, CAUGHT_UP, False]
    async for change in cells.watch():
        assert isinstance(change, CellChange)
        break


@needs(Capability.CELLS_WATCH)
async def test_a_replay_of_many_pages_is_whole(world: World) -> None:
    cells = world.store.cells
    names = [f"n{number:04}" for number in range(1203)]
    await cells.set_many(dict.fromkeys(names, 1))
    watch = cells.watch()
    assert [name for name, _ in await _told(watch, len(names))] == names
    await _marker(watch)
    # And so are many changes at once.
    await cells.set_many(dict.fromkeys(names, 2))
    assert sorted(await _told(watch, len(names))) == [(name, 2) for name in names]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_what_changes_during_the_replay_is_told_once(world: World) -> None:
    cells = world.store.cells
    names = [f"n{number:04}" for number in range(1203)]
    await cells.set_many(dict.fromkeys(names, 1))
    watch = cells.watch()
    first = await _next(watch)  # the first page has been read, the others have not
    await cells.set(names[0], 2)
    await cells.set(names[-1], 2)
    await cells.delete(names[-2])
    await cells.set("new", 2)
    replay = [(first.name, 1), *await _told(watch, 1202)]
    assert replay == [(name, 1) for name in names[:-2]] + [(names[-1], 2), ("new", 2)]
    await _marker(watch)
    assert watch.cursor is None  # going on from here would tell of the last two again
    assert await _told(watch, 2) == [(names[0], 2), (names[-2], None)]
    assert watch.cursor is not None
    await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_a_watch_waits_for_what_comes_later(world: World) -> None:
    watch = world.store.cells.watch()
    await _marker(watch)

    async def waiter() -> list[tuple[str, object]]:
        return await _told(watch, 3)

    async def writer() -> None:
        for number in range(3):
            await world.store.cells.set(f"c{number}", number)

    told, _ = await world.together([waiter(), writer()])
    assert told == [("c0", 0), ("c1", 1), ("c2", 2)]


@needs(Capability.CELLS_WATCH, Capability.SHARED)
async def test_another_store_on_the_same_data_wakes_a_watch(world: World) -> None:
    other = await world.open()
    watch = world.store.cells.watch()
    await _marker(watch)

    async def writer() -> None:
        for number in range(5):
            await other.cells.set("c", number)

    async def waiter() -> list[tuple[str, object]]:
        return await _told(watch, 5)

    told, _ = await world.together([waiter(), writer()])
    assert told == [("c", number) for number in range(5)]


@needs(Capability.CELLS_WATCH)
async def test_many_watches_each_get_everything(world: World) -> None:
    watches = [world.store.cells.watch() for _ in range(20)]
    for watch in watches:
        await _marker(watch)
    await world.store.cells.set_many({"a": 1, "b": 2})
    for watch in watches:
        assert sorted(await _told(watch, 2)) == [("a", 1), ("b", 2)]
        await _quiet(watch)


@needs(Capability.CELLS_WATCH)
async def test_next_gives_none_when_nothing_comes_in_time(world: World) -> None:
    watch = world.store.cells.watch()
    await _marker(watch)
    assert await watch.next(timeout=timedelta(milliseconds=20)) is None
    await world.store.cells.set("a", 1)
    assert await _told(watch, 1) == [("a", 1)]


@needs(Capability.CELLS_WATCH)
async def test_one_reader_at_a_time(world: World) -> None:
    watch = world.store.cells.watch()
    await _marker(watch)

    async def reader() -> object:
        try:
            return await watch.next(timeout=_PATIENCE)
        except holdfast.InvalidState:
            await world.store.cells.set("a", 1)
            return "refused"

    outcomes = await world.together([reader(), reader()])
    assert "refused" in outcomes


@needs(Capability.CELLS_WATCH)
async def test_closing_ends_who_waits(world: World) -> None:
    watch = world.store.cells.watch()
    await _marker(watch)

    async def waiter() -> object:
        return await watch.next(timeout=_PATIENCE)

    async def closer() -> object:
        await world.store.ping()
        watch.close()
        return "closed"

    assert await world.together([waiter(), closer()]) == [None, "closed"]
    assert await watch.next(timeout=_PATIENCE) is None


@needs(Capability.CELLS_WATCH)
async def test_closing_the_store_ends_who_waits(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    watch = store.cells.watch()
    await _marker(watch)

    async def waiter() -> object:
        with pytest.raises(holdfast.StoreClosed):
            await watch.next(timeout=_PATIENCE)
        return "told"

    async def closer() -> object:
        await store.ping()
        await store.close()
        return "closed"

    assert await world.together([waiter(), closer()]) == ["told", "closed"]
    with pytest.raises(holdfast.StoreClosed):
        store.cells.watch()


# Cursors


@needs(Capability.CELLS_WATCH)
async def test_a_cursor_resumes_after_its_change(world: World) -> None:
    cells = world.store.cells
    watch = cells.watch(after=await _cursor_now(world.store))
    await _marker(watch)
    for number in range(6):
        await cells.set(f"c{number % 2}", number)
    changes = [await _next(watch) for _ in range(6)]
    assert watch.cursor == changes[-1].cursor
    for at, change in enumerate(changes):
        resumed = cells.watch(after=change.cursor)
        rest = [await _next(resumed) for _ in changes[at + 1 :]]
        assert [later.cell for later in rest] == [later.cell for later in changes[at + 1 :]]
        assert all(later.replay for later in rest)
        await _marker(resumed)
        await _quiet(resumed)


@needs(Capability.CELLS_WATCH)
async def test_a_cursor_after_the_replay_misses_nothing(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1})
    watch = cells.watch()
    await _told(watch, 1)
    assert watch.cursor is None  # in the middle of the replay it can only begin again
    await _told(watch, 1)
    await _marker(watch)
    cursor = watch.cursor
    await cells.set("a", 2)
    resumed = cells.watch(after=cursor)
    assert await _told(resumed, 1) == [("a", 2)]
    await _marker(resumed)


@needs(Capability.CELLS_WATCH)
async def test_a_cursor_moves_past_what_is_not_for_the_watch(world: World) -> None:
    cells = world.store.cells
    watch = cells.watch("a", after=await _cursor_now(world.store))
    await _marker(watch)
    before = watch.cursor
    for number in range(5):
        await cells.set("b", number)
    await _quiet(watch)
    assert watch.cursor != before


@needs(Capability.CELLS_WATCH, Capability.SHARED)
async def test_a_cursor_outlives_the_store_that_gave_it(world: World) -> None:
    store = await world.open()
    cursor = await _cursor_now(store)
    await store.cells.set("a", 1)
    await store.close()
    watch = world.store.cells.watch(after=cursor)
    assert await _told(watch, 1) == [("a", 1)]


@needs(Capability.CELLS_WATCH)
@pytest.mark.parametrize(
    "cursor", ["", "nonsense", "events:1.0.0", "cells:1.0", "cells:1.0.0.0", "cells:g.0.0", 7]
)
async def test_a_bad_cursor_is_refused_at_once(world: World, cursor: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="cursor"):
        world.store.cells.watch(after=cursor)


@needs(Capability.CELLS_WATCH)
async def test_a_cursor_of_another_store_is_refused_when_it_can_be_told(world: World) -> None:
    watch = world.store.cells.watch(after="cells:9.0.0")
    with pytest.raises(holdfast.InvalidArgument, match="another store"):
        await watch.next(timeout=_PATIENCE)


@needs(Capability.CELLS_WATCH)
async def test_bad_arguments_are_refused(world: World) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="prefix"):
        world.store.cells.watch("a\0")
    with pytest.raises(holdfast.InvalidArgument, match="cell name"):
        world.store.cells.watch(name="")
    with pytest.raises(holdfast.InvalidArgument, match="not both"):
        world.store.cells.watch("a", name="a")
    watch = world.store.cells.watch()
    with pytest.raises(holdfast.InvalidArgument, match="timeout"):
        await watch.next(timeout=-1)


# Retention


@needs(Capability.CELLS_WATCH, Capability.CELLS_HISTORY)
async def test_retention_may_drop_what_was_not_read_but_never_the_newest(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=2))
    watch = store.cells.watch()
    await _marker(watch)
    for number in range(1, 21):
        await store.cells.set("a", number)
    told = [value for _, value in await _told(watch, 2)]
    assert told == [19, 20]
    await _quiet(watch)


# Branches


@needs(Capability.CELLS_WATCH, Capability.BRANCHES)
async def test_a_branch_is_replayed_as_it_is_seen_and_tells_its_own_changes(world: World) -> None:
    store = world.store
    await store.cells.set_many({"kept": 1, "changed": 1, "deleted": 1})
    await store.branches.fork("b")
    branch = store.cells.on("b")
    await branch.set("changed", 2)
    await branch.set("own", 2)
    await branch.delete("deleted")
    await store.cells.set("kept", 9)
    watch = branch.watch()
    assert await _told(watch, 3) == [("changed", 2), ("kept", 1), ("own", 2)]
    await _marker(watch)
    await store.cells.set("kept", 10)
    await branch.set("kept", 3)
    assert await _told(watch, 1) == [("kept", 3)]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH, Capability.BRANCHES)
async def test_a_merge_is_told_to_those_who_watch_its_target(world: World) -> None:
    store = world.store
    await store.cells.set_many({"a": 1, "b": 1, "c": 1})
    await store.branches.fork("side")
    await store.cells.on("side").set("a", 2)
    await store.cells.on("side").delete("b")
    watch = store.cells.watch(after=await _cursor_now(store))
    await _marker(watch)
    await store.branches.merge("side")
    assert sorted(await _told(watch, 2)) == [("a", 2), ("b", None)]
    await _quiet(watch)


@needs(Capability.CELLS_WATCH, Capability.BRANCHES)
async def test_the_watch_of_a_branch_ends_with_the_branch(world: World) -> None:
    store = world.store
    with pytest.raises(holdfast.NotFound, match="'b'"):
        await store.cells.on("b").watch().next(timeout=_PATIENCE)
    await store.branches.fork("b")
    watch, other, replayed = (store.cells.on("b").watch() for _ in range(3))
    for one in (watch, other, replayed):
        await _marker(one)
    await _quiet(other)
    await store.branches.delete("b")
    with pytest.raises(holdfast.NotFound, match="'b'"):
        await watch.next(timeout=_PATIENCE)
    await store.branches.fork("b")  # another one, of the same name
    for one in (other, replayed):
        with pytest.raises(holdfast.NotFound, match="'b'"):
            await one.next(timeout=_PATIENCE)


@needs(Capability.CELLS_WATCH, Capability.BRANCHES)
async def test_a_cursor_is_of_one_branch_and_not_of_its_name(world: World) -> None:
    store = world.store
    branch = store.cells.on("b")
    await store.branches.fork("b")
    watch = branch.watch()
    await _marker(watch)
    cursor = watch.cursor
    await branch.set("a", 1)
    resumed = branch.watch(after=cursor)
    assert resumed.cursor == cursor  # before anything is read
    assert await _told(resumed, 1) == [("a", 1)]
    await store.branches.delete("b")
    await store.branches.fork("b")
    await branch.set("a", 2)
    for after in (cursor, resumed.cursor, await _cursor_now(store)):
        with pytest.raises(holdfast.NotFound, match="'b'"):
            await branch.watch(after=after).next(timeout=_PATIENCE)
    with pytest.raises(holdfast.NotFound, match="'main'"):
        await store.cells.watch(after=cursor).next(timeout=_PATIENCE)


# Transactions


@needs(Capability.CELLS_WATCH, Capability.TRANSACTIONS)
async def test_a_transaction_is_told_when_it_commits_and_not_before(world: World) -> None:
    store = world.store
    watch = store.cells.watch()
    await _marker(watch)
    async with store.transaction() as tx:
        await tx.cells.set("a", 1)
        await tx.cells.set("a", 2)
        await _quiet(watch)
    assert await _told(watch, 2) == [("a", 1), ("a", 2)]
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.cells.set("a", 3)
            raise ZeroDivisionError
    await store.cells.set("b", 1)
    assert await _told(watch, 1) == [("b", 1)]


@needs(Capability.CELLS_WATCH, Capability.TRANSACTIONS)
async def test_no_watch_inside_a_transaction(world: World) -> None:
    async with world.store.transaction() as tx:
        with pytest.raises(holdfast.InvalidState, match="transaction"):
            tx.cells.watch()


@needs(Capability.CELLS_WATCH, Capability.SESSIONS)
async def test_a_session_is_told_once_for_each_cell_when_it_commits(world: World) -> None:
    store = world.store
    await store.cells.set("gone", 0)
    watch = store.cells.watch(after=await _cursor_now(store))
    await _marker(watch)
    async with store.cells.session() as session:
        await session.set("a", 1)
        await session.set("a", 2)
        await session.delete("gone")
        await _quiet(watch)
    assert sorted(await _told(watch, 2)) == [("a", 2), ("gone", None)]
    await _quiet(watch)

# ruff: noqa: PT012 -- what is raised inside must pass the session's end
"""Specs for sessions of cells: one snapshot to read, one commit if nothing has changed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Capability, StoreConfig
from holdfast.aio.sessions import AsyncCellsSession
from holdfast.facets import sessions as rules
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


class Unwilling(Exception):
    """What a spec raises inside a session."""


# Together or not at all


@needs(Capability.SESSIONS)
async def test_a_session_commits_at_a_normal_end(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    async with cells.session() as s:
        assert await s.set("a", 2) == 2
        assert await s.set("b", 3) == 1
        assert await cells.get("a") == 1  # nobody else sees it yet
        assert await cells.get("b") is None
    assert await cells.get("a") == 2
    assert await cells.get("b") == 3


@needs(Capability.SESSIONS)
async def test_a_session_leaves_nothing_at_an_exception(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    with pytest.raises(Unwilling):
        async with cells.session() as s:
            await s.set("a", 2)
            await s.delete("a")
            await s.set_many({"b": 1, "c": 2})
            raise Unwilling
    assert await cells.list() == ["a"]
    assert [cell.value for cell in await cells.getv("a")] == [1]


@needs(Capability.SESSIONS, Capability.CELLS_HISTORY, Capability.MOVABLE_CLOCK)
async def test_what_a_session_set_and_deleted_was_absent_then(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    await world.move_clock(1)
    async with cells.session() as s:
        assert await s.set("a", 2) == 2
        assert await s.delete("a")
    await world.move_clock(1)
    assert await cells.set("a", 3) == 3
    newest, first = await cells.getv("a")
    assert [(cell.value, cell.version) for cell in (newest, first)] == [(3, 3), (1, 1)]
    assert await cells.get_at("a", newest.updated_at - 1) is None
    assert await cells.get_at("a", first.updated_at + 500_000) == first


@needs(Capability.SESSIONS)
async def test_commit_gives_the_versions_and_ends_the_session(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "gone": 1})
    async with cells.session() as s:
        await s.get("read only")
        await s.set("a", 2)
        await s.set("b", 1)
        await s.delete("gone")
        assert await s.commit() == {"a": 2, "b": 1}
        for use in (s.get("a"), s.set("a", 3), s.list(), s.commit()):
            with pytest.raises(holdfast.InvalidState, match="over"):
                await use
    assert await cells.list() == ["a", "b"]


@needs(Capability.SESSIONS)
async def test_rollback_leaves_nothing_and_ends_the_session(world: World) -> None:
    async with world.store.cells.session() as s:
        await s.set("a", 1)
        await s.rollback()
        await s.rollback()  # again does nothing
        with pytest.raises(holdfast.InvalidState, match="over"):
            await s.get("a")
        with pytest.raises(holdfast.InvalidState, match="over"):
            await s.commit()
    assert await world.store.cells.list() == []


@needs(Capability.SESSIONS)
async def test_a_session_needs_no_with(world: World) -> None:
    s = world.store.cells.session()
    await s.set("a", 1)
    assert await s.commit() == {"a": 1}
    empty = world.store.cells.session()
    assert await empty.commit() == {}


@needs(Capability.SESSIONS)
async def test_every_operation_works_inside(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "gone": 1})
    await cells.set("a", 2)
    async with cells.session() as s:
        before = await s.get_versioned("a")
        assert before is not None
        assert await s.init("a", "ignored") == 2
        assert await s.init("new", "kept") == 1
        assert await s.cas("a", 1, "stale") is None
        assert await s.cas("a", 2, 3) == 3
        assert await s.cas("a", 2, "stale") is None
        assert await s.cas("a", None, "exists") is None
        assert await s.delete("gone")
        assert not await s.delete("gone")
        assert await s.cas("gone", None, "back") == 2
        assert await s.delete("gone")
        assert await s.set_many({"b": 1, "a": 4}) == {"b": 1, "a": 4}
        assert await s.get("a") == 4
        assert await s.get("nothing", "default") == "default"
        assert [cell.value for cell in await s.getv("a")] == [4, 2, 1]
        assert await s.get_at("a", before.updated_at) == before
        assert await s.list() == ["a", "b", "new"]
    assert await cells.list() == ["a", "b", "new"]
    assert await cells.init("gone", "again") == 3


# Own writes


@needs(Capability.SESSIONS)
async def test_own_writes_are_read_back(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1, "d": 1})
    async with cells.session() as s:
        await s.set("a", "mine")
        await s.set("c", "new")
        await s.delete("d")
        assert await s.get("a") == "mine"
        assert await s.get("d", "absent") == "absent"
        assert await s.get_versioned("d") is None
        assert await s.get_versioned("c") == holdfast.Cell("new", 1, 0, 0)
        assert await s.list() == ["a", "b", "c"]
        assert [await s.list(after=after, limit=1) for after in "abc"] == [["b"], ["c"], []]
        assert await s.list(limit=2) == ["a", "b"]
        assert await s.list("c") == ["c"]
        assert [(cell.version, cell.value) for cell in await s.getv("a")] == [(2, "mine"), (1, 1)]
        assert [cell.value for cell in await s.getv("a", limit=1)] == ["mine"]
        assert [cell.value for cell in await s.getv("d")] == [1]
        await s.rollback()


@needs(Capability.SESSIONS)
async def test_two_sets_of_one_cell_raise_the_counter_by_two_with_one_history_entry(
    world: World,
) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    async with cells.session() as s:
        assert await s.set("a", 2) == 2
        assert await s.set("a", 3) == 3
        assert await s.set("b", 1) == 1
        assert await s.delete("b")
        assert await s.set("b", 2) == 2
    assert [(cell.version, cell.value) for cell in await cells.getv("a")] == [(3, 3), (1, 1)]
    assert [(cell.version, cell.value) for cell in await cells.getv("b")] == [(2, 2)]
    assert await cells.cas("a", 3, 4) == 4


@needs(Capability.SESSIONS)
async def test_a_commit_is_one_moment_with_rising_commit_ids(world: World) -> None:
    cells = world.store.cells
    await cells.set("z", 1)
    async with cells.session() as s:
        await s.set_many({"b": 1, "a": 1, "z": 2})
    found = [await cells.get_versioned(name) for name in ("a", "b", "z")]
    assert len({cell.updated_at for cell in found if cell}) == 1
    ids = [cell.commit_id for cell in found if cell]
    assert ids == sorted(set(ids))
    assert (await cells.getv("z"))[1].commit_id < ids[0]


# One snapshot


@needs(Capability.SESSIONS)
async def test_reads_come_from_one_snapshot_opened_at_the_first_read(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1, "gone": 1})
    async with cells.session() as s:
        await cells.set("a", 2)
        assert await s.get("a") == 2  # the first read
        await cells.set_many({"a": 3, "b": 3, "new": 3})
        await cells.delete("gone")
        assert await s.get("a") == 2
        assert await s.get("b") == 1
        assert await s.get("new") is None
        assert await s.list() == ["a", "b", "gone"]
        assert [cell.value for cell in await s.getv("a")] == [2, 1]
    async with cells.session() as s:
        assert await s.get("b") == 3


@needs(Capability.SESSIONS)
async def test_a_session_that_only_reads_never_conflicts(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    async with cells.session() as s:
        await s.get("a")
        await s.list()
        assert await s.cas("a", 7, "refused") is None
        await cells.set_many({"a": 2, "b": 2})
        assert await s.commit() == {}


@needs(Capability.SESSIONS)
async def test_tasks_may_share_a_session(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({f"c{n}": n for n in range(20)})
    async with cells.session() as s:
        calls: list[Any] = [s.get(f"c{n}") for n in range(20)]
        assert await world.together(calls) == list(range(20))
        await world.together(s.set("sum", n) for n in range(10))
    cell = await cells.get_versioned("sum")
    assert cell is not None
    assert cell.version == 10


# Conflicts

Do = Callable[[AsyncCellsSession], Awaitable[Any]]
READS: dict[str, Do] = {
    "get": lambda s: s.get("a"),
    "get of absence": lambda s: s.get("new"),
    "get_versioned": lambda s: s.get_versioned("a"),
    "getv": lambda s: s.getv("a"),
    "get_at": lambda s: s.get_at("a", 2**62),
    "cas that fails": lambda s: s.cas("a", 77, "x"),
    "init of what exists": lambda s: s.init("a", "x"),
    "delete of absence": lambda s: s.delete("new"),
    "set": lambda s: s.set("a", "mine"),
    "delete": lambda s: s.delete("a"),
    "set of absence": lambda s: s.set("new", "mine"),
    "list that finds a new name": lambda s: s.list("n"),
    "list that misses a name": lambda s: s.list("gon"),
    "page": lambda s: s.list(limit=1),
}


@needs(Capability.SESSIONS)
@pytest.mark.parametrize("read", READS)
async def test_what_others_changed_is_a_conflict_that_names_it(world: World, read: str) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "gone": 1})
    await cells.set("gone", 1)
    with pytest.raises(holdfast.Conflict) as raised:
        async with cells.session() as s:
            await s.set("other", "mine")
            await READS[read](s)
            await cells.set_many({"a": 2, "new": 2})
            await cells.delete("gone")
            if read == "page":
                await cells.delete("a")
    assert raised.value.retryable
    assert not raised.value.outcome_unknown
    assert set(raised.value.cells) == {
        "new" if "new name" in read or "absence" in read else "gone" if "misses" in read else "a"
    }
    assert await cells.get("other") is None
    assert await cells.get("a") in {2, None}


@needs(Capability.SESSIONS)
async def test_a_cell_changed_and_changed_back_is_a_conflict(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    with pytest.raises(holdfast.Conflict):
        async with cells.session() as s:
            await s.set("b", await s.get("a"))
            await cells.set("a", 2)
            await cells.set("a", 1)
    with pytest.raises(holdfast.Conflict):
        async with cells.session() as s:
            await s.set("b", await s.get("never"))
            await cells.set("never", 1)
            await cells.delete("never")


@needs(Capability.SESSIONS)
async def test_what_was_not_read_may_change(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1, "list/x": 1, "page/1": 1, "page/2": 1})
    async with cells.session() as s:
        await s.set("a", 2)
        assert await s.list("list/") == ["list/x"]
        assert await s.list("page/", limit=1) == ["page/1"]
        await cells.set_many({"b": 2, "c": 1, "list/x": 2, "list0": 1, "list": 1, "page/3": 1})
        await cells.set("list/y", 1)
        await cells.delete("list/y")
        await cells.delete("page/2")
    assert await cells.get("a") == 2


@needs(Capability.SESSIONS)
async def test_of_two_sessions_that_read_what_the_other_writes_one_commits(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1})
    first, second = cells.session(), cells.session()
    await first.set("a", -(await first.get("b")))
    await second.set("b", -(await second.get("a")))
    await first.commit()
    with pytest.raises(holdfast.Conflict, match="'a'"):
        await second.commit()
    assert [await cells.get(name) for name in "ab"] == [-1, 1]


@needs(Capability.SESSIONS)
async def test_of_two_sessions_that_found_the_same_absence_one_commits(world: World) -> None:
    cells = world.store.cells

    async def book(number: int) -> bool:
        try:
            async with cells.session() as s:
                if await s.list("seat/") or await s.get("full") is not None:
                    return False
                await s.set(f"seat/{number}", number)
                await s.set("full", number)
        except holdfast.Conflict:
            return False
        return True

    outcomes = await world.together(book(number) for number in range(8))
    assert outcomes.count(True) == 1
    assert len(await cells.list("seat/")) == 1


@needs(Capability.SESSIONS)
async def test_sessions_of_many_callers_lose_nothing(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"from": 0, "to": 0})

    async def move(s: AsyncCellsSession) -> None:
        a, b = await s.get("from"), await s.get("to")
        await s.set_many({"from": a - 1, "to": b + 1})

    await world.together(cells.in_session(move, attempts=1000) for _ in range(10))
    assert [await cells.get(name) for name in ("from", "to")] == [-10, 10]
    assert len(await cells.getv("from")) == 11


# Branches and namespaces


@needs(Capability.SESSIONS, Capability.BRANCHES)
async def test_a_session_is_on_one_branch(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1, "gone": 1})
    await cells.set("a", 2)
    await world.store.branches.fork("trial")
    trial = cells.on("trial")
    await trial.delete("gone")
    async with trial.session() as s:
        assert await s.list() == ["a", "b"]
        assert await s.set("a", 3) == 3
        assert await s.set("gone", 3) == 2
        assert await s.list() == ["a", "b", "gone"]
        assert [cell.value for cell in await s.getv("a")] == [3, 2, 1]
        await cells.set_many({"a": "main", "b": "main", "new": "main"})  # another branch
    assert await trial.get("a") == 3
    assert await trial.list() == ["a", "b", "gone"]
    assert await cells.get("a") == "main"


@needs(Capability.SESSIONS, Capability.BRANCHES)
@pytest.mark.parametrize("read", ["inherited", "absent", "own", "list of new", "list of gone"])
async def test_a_change_on_the_branch_itself_is_a_conflict(world: World, read: str) -> None:
    cells = world.store.cells
    await cells.set_many({"inherited": 1, "gone": 1})
    await world.store.branches.fork("trial")
    trial = cells.on("trial")
    await trial.set("own", 1)
    with pytest.raises(holdfast.Conflict):
        async with trial.session() as s:
            await s.set("other", 1)
            if read.startswith("list"):
                await s.list("new" if "new" in read else "gone")
                await trial.set("new", 1)
                await trial.delete("gone")
            else:
                await s.get(read)
                await trial.set(read, 2)
    assert await trial.get("other") is None


@needs(Capability.SESSIONS, Capability.BRANCHES)
async def test_a_session_on_a_missing_branch_is_not_found(world: World) -> None:
    cells = world.store.cells
    calls: list[Do] = [
        lambda s: s.get("a"), lambda s: s.set("a", 1), lambda s: s.list(), lambda s: s.getv("a")
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(holdfast.NotFound, match="none"):
            async with cells.on("none").session() as s:
                await call(s)


@needs(Capability.SESSIONS, Capability.BRANCHES)
async def test_a_branch_deleted_or_made_anew_meanwhile_is_not_found(world: World) -> None:
    for again in (False, True):
        await world.store.branches.fork("trial")
        with pytest.raises(holdfast.NotFound, match="trial"):
            async with world.store.cells.on("trial").session() as s:
                await s.set("a", 1)
                await world.store.branches.delete("trial")
                if again:
                    await world.store.branches.fork("trial")
        assert await world.store.cells.list() == []


@needs(Capability.SESSIONS)
async def test_a_session_is_in_one_namespace(world: World) -> None:
    other = world.store.namespace("other").cells
    async with world.store.cells.session() as s:
        assert await s.get("a") is None
        await s.set("b", 1)
        await other.set("a", 1)
    assert await other.list() == ["a"]
    assert await world.store.cells.list() == ["b"]


# Operation ids


@needs(Capability.SESSIONS)
async def test_a_repeat_under_the_operation_id_has_one_effect_and_the_first_answer(
    world: World,
) -> None:
    cells, op = world.store.cells, uuid4()

    async def once(value: object) -> dict[str, int]:
        s = cells.session(op_id=op)
        await s.set("a", value)
        await s.set("a", value)
        await s.set("b", await s.get("b", 0) + 1)
        return await s.commit()

    assert await once("first") == {"a": 2, "b": 1}
    await cells.set("b", 70)
    assert await once("second") == {"a": 2, "b": 1}
    assert await cells.get("a") == "first"
    assert await cells.get("b") == 70


@needs(Capability.SESSIONS)
async def test_a_repeat_that_read_before_the_first_took_effect_is_the_same_operation(
    world: World,
) -> None:
    cells, op = world.store.cells, uuid4()
    first, second = cells.session(op_id=op), cells.session(op_id=op)
    for s in (first, second):
        await s.set("a", 1)
    assert await first.commit() == {"a": 1}
    assert await second.commit() == {"a": 1}
    assert len(await cells.getv("a")) == 1


@needs(Capability.SESSIONS)
async def test_a_single_write_inside_takes_no_operation_id(world: World) -> None:
    async with world.store.cells.session() as s:
        with pytest.raises(holdfast.InvalidArgument, match="op_id"):
            await s.set("a", 1, op_id=uuid4())
        await s.set("a", 2)
    assert await world.store.cells.get("a") == 2


# Limits


@needs(Capability.SESSIONS)
async def test_a_snapshot_that_became_too_old_is_a_timeout(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", 1)
    with pytest.raises(holdfast.Timeout, match=r"0\.05 s"):
        async with cells.session(max_age=0.05) as s:
            await s.set("a", 2)
            began = time.monotonic()
            while time.monotonic() < began + 0.05:
                await cells.get("a")
            uses: list[Do] = [
                lambda s: s.get("a"), lambda s: s.get("b"), lambda s: s.set("a", 3),
                lambda s: s.list(), lambda s: s.getv("a"),
            ]  # fmt: skip
            for use in uses:
                with pytest.raises(holdfast.Timeout):
                    await use(s)
    assert await cells.get("a") == 1


@needs(Capability.SESSIONS)
async def test_a_session_without_a_read_does_not_age(world: World) -> None:
    async with world.store.cells.session(max_age=timedelta(milliseconds=20)) as s:
        began = time.monotonic()
        while time.monotonic() < began + 0.03:
            await world.store.cells.get("a")
        assert await s.commit() == {}


@needs(Capability.SESSIONS)
@pytest.mark.parametrize("age", [0, -1, 31, "soon", None, True, float("nan"), float("inf")])
async def test_a_bad_max_age_is_refused(world: World, age: Any) -> None:  # noqa: ANN401
    with pytest.raises(holdfast.InvalidArgument, match="max_age"):
        world.store.cells.session(max_age=age)


@needs(Capability.SESSIONS)
async def test_bad_input_inside_does_not_end_the_session(world: World) -> None:
    async with world.store.cells.session() as s:
        await s.set("a", 1)
        for bad in (s.set("", 1), s.set("b", float("nan")), s.cas("a", 0, 1), s.list(limit=-1)):
            with pytest.raises(holdfast.InvalidArgument):
                await bad
    assert await world.store.cells.list() == ["a"]


@needs(Capability.SESSIONS)
async def test_a_commit_has_a_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_COMMIT_BYTES", 1000)
    async with world.store.cells.session() as s:
        await s.set("a", "x" * 600)
        await s.set("a", "y" * 600)  # instead of the first
        with pytest.raises(holdfast.InvalidArgument, match="1000"):
            await s.set("b", "z" * 600)
        await s.delete("a")
        await s.set("b", "z" * 600)
    assert await world.store.cells.list() == ["b"]


@needs(Capability.SESSIONS, Capability.CELLS_HISTORY)
async def test_retention_trims_what_a_session_writes(world: World) -> None:
    store = await world.open_fresh(StoreConfig(history=2))
    for value in range(6):
        async with store.cells.session() as s:
            await s.set("a", value)
    assert [cell.value for cell in await store.cells.getv("a")] == [5, 4]


# Where there is none


@needs(Capability.SESSIONS, Capability.TRANSACTIONS)
async def test_there_is_no_session_inside_a_transaction(world: World) -> None:
    async with world.store.transaction() as tx:
        with pytest.raises(holdfast.InvalidState, match="inside a transaction"):
            tx.cells.session()
        s = world.store.cells.session()
        with pytest.raises(holdfast.InvalidState, match="wait for itself"):
            await s.get("a")
        await tx.cells.set("a", 1)
    assert await world.store.cells.get("a") == 1


@needs(Capability.SESSIONS)
async def test_a_closed_store_has_no_sessions(world: World) -> None:
    other = await world.open()
    open_one = other.cells.session()
    await open_one.get("a")
    await other.close()
    with pytest.raises(holdfast.StoreClosed):
        await open_one.get("b")
    with pytest.raises(holdfast.StoreClosed):
        await open_one.commit()
    await open_one.rollback()
    with pytest.raises(holdfast.StoreClosed):
        await other.cells.session().get("a")


# in_session


@needs(Capability.SESSIONS)
async def test_in_session_gives_the_result_of_the_work(world: World) -> None:
    async def work(s: AsyncCellsSession) -> str:
        await s.set("a", 1)
        return "done"

    assert await world.store.cells.in_session(work) == "done"
    assert await world.store.cells.get("a") == 1


@needs(Capability.SESSIONS)
async def test_in_session_repeats_after_a_conflict(world: World) -> None:
    cells = world.store.cells
    tries = 0

    async def work(s: AsyncCellsSession) -> int:
        nonlocal tries
        tries += 1
        seen = await s.get("a", 0)
        await s.set("b", seen)
        if tries < 3:
            await cells.set("a", tries)
        return tries

    assert await cells.in_session(work) == 3
    assert [cell.value for cell in await cells.getv("b")] == [2]


@needs(Capability.SESSIONS)
async def test_in_session_gives_up_in_the_end(world: World) -> None:
    cells = world.store.cells
    tries = 0

    async def work(s: AsyncCellsSession) -> None:
        nonlocal tries
        tries += 1
        await s.set("a", tries)
        await cells.set("a", "others")

    with pytest.raises(holdfast.Conflict):
        await cells.in_session(work, attempts=3)
    assert tries == 3
    with pytest.raises(holdfast.InvalidArgument, match="attempts"):
        await cells.in_session(work, attempts=0)


@needs(Capability.SESSIONS)
async def test_closing_the_store_ends_its_sessions(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    await store.cells.set("a", 1)
    session = store.cells.session()
    assert await session.get("a") == 1
    await session.set("a", 2)
    await store.close()
    for call in (session.get("a"), session.commit()):
        with pytest.raises(holdfast.StoreClosed):
            await call

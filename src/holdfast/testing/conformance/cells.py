"""Specs for plain cells: init, get, set, cas, delete, list, set_many."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Capability
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


async def kept_versions(world: World, name: str, count: int) -> None:
    """So many versions of the cell are kept, where the engine has a history."""
    if Capability.CELLS_HISTORY in world.store.capabilities:
        assert len(await world.store.cells.getv(name)) == count


# init


async def test_init_creates_version_one(world: World) -> None:
    assert await world.store.cells.init("x", "v") == 1
    assert await world.store.cells.get("x") == "v"


async def test_init_keeps_what_exists_and_returns_its_version(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "old")
    await cells.set("x", "kept")
    assert await cells.init("x", "ignored") == 2
    assert await cells.get("x") == "kept"
    await kept_versions(world, "x", 2)


async def test_init_on_a_deleted_cell_continues_the_counter(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", 1)
    await cells.set("x", 2)
    await cells.delete("x")
    assert await cells.init("x", 3) == 3
    assert await cells.get("x") == 3


async def test_racing_inits_agree_on_one_value(world: World) -> None:
    cells = world.store.cells
    assert await world.together(cells.init("x", number) for number in range(20)) == [1] * 20
    await kept_versions(world, "x", 1)


# get


async def test_get_of_an_absent_cell_is_the_default(world: World) -> None:
    assert await world.store.cells.get("x") is None
    assert await world.store.cells.get("x", "default") == "default"


async def test_none_is_a_value_and_not_absence(world: World) -> None:
    cells = world.store.cells
    assert await cells.set("x", None) == 1
    assert await cells.get("x", "default") is None
    assert await cells.get_versioned("x") is not None
    assert await cells.cas("x", None, "v") is None
    assert await cells.list() == ["x"]


async def test_get_versioned_tells_version_time_and_commit(world: World) -> None:
    cells = world.store.cells
    before = await world.store.now()
    await cells.set("x", "a")
    await cells.set("x", "b")
    cell = await cells.get_versioned("x")
    after = await world.store.now()
    assert cell is not None
    assert (cell.value, cell.version) == ("b", 2)
    assert before.timestamp() - 0.001 <= cell.updated_at / 1e6 <= after.timestamp() + 0.001
    assert cell.commit_id > 0


async def test_get_versioned_of_an_absent_cell_is_none(world: World) -> None:
    assert await world.store.cells.get_versioned("x") is None


async def test_commit_ids_rise_over_all_cells(world: World) -> None:
    cells = world.store.cells
    commits = []
    for name in ("a", "b", "a", "c", "b"):
        await cells.set(name, name)
        cell = await cells.get_versioned(name)
        assert cell is not None
        commits.append(cell.commit_id)
    assert commits == sorted(set(commits))


# get_many


async def test_get_many_gives_what_is_there_in_the_order_asked(world: World) -> None:
    cells = world.store.cells
    for name, value in (("a", 1), ("b", None), ("c", b"x")):
        await cells.set(name, value)
    await cells.set("gone", 1)
    await cells.delete("gone")
    found = await cells.get_many(["c", "gone", "never", "a", "b", "a"])
    assert list(found.items()) == [("c", b"x"), ("a", 1), ("b", None)]
    assert await cells.get_many([]) == {}
    assert await cells.get_many(iter(["a"])) == {"a": 1}


async def test_get_many_of_more_than_a_page_is_whole(world: World) -> None:
    cells = world.store.cells
    await world.together(cells.set(f"n{number}", number) for number in range(0, 1100, 100))
    found = await cells.get_many(f"n{number}" for number in range(1100))
    assert found == {f"n{number}": number for number in range(0, 1100, 100)}


async def test_get_many_refuses_what_is_no_list_of_names(world: World) -> None:
    cells = world.store.cells
    for names in ("config", ["a", ""], ["a", "b\0"]):
        with pytest.raises(holdfast.InvalidArgument):
            await cells.get_many(names)


@needs(Capability.BRANCHES)
async def test_get_many_on_a_branch_sees_what_the_branch_sees(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"kept": 1, "changed": 1, "deleted": 1})
    await world.store.branches.fork("b")
    branch = cells.on("b")
    await branch.set("changed", 2)
    await branch.delete("deleted")
    await cells.set("kept", "later")
    assert await branch.get_many(["kept", "changed", "deleted"]) == {"kept": 1, "changed": 2}
    with pytest.raises(holdfast.NotFound):
        await cells.on("missing").get_many(["kept"])


@needs(Capability.SESSIONS)
async def test_get_many_in_a_session_is_of_its_snapshot_with_its_writes(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 1})
    with pytest.raises(holdfast.Conflict):  # noqa: PT012 - raised by the session's end
        async with cells.session() as s:
            assert await s.get_many(["a"]) == {"a": 1}
            await cells.set("b", "others")
            await s.set("a", 2)
            assert await s.get_many(["b", "a", "c"]) == {"b": 1, "a": 2}
    assert await cells.get_many(["a", "b"]) == {"a": 1, "b": "others"}


@needs(Capability.TRANSACTIONS)
async def test_get_many_in_a_transaction_sees_its_writes(world: World) -> None:
    async with world.store.transaction() as tx:
        await tx.cells.set("a", 1)
        assert await tx.cells.get_many(["a", "b"]) == {"a": 1}


# set


async def test_set_counts_every_write(world: World) -> None:
    cells = world.store.cells
    assert [await cells.set("x", "same") for _ in range(5)] == [1, 2, 3, 4, 5]
    await kept_versions(world, "x", 5)


async def test_set_on_a_deleted_cell_continues_the_counter(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", 1)
    await cells.delete("x")
    assert await cells.set("x", 2) == 2


async def test_concurrent_sets_of_one_cell_each_get_their_own_version(world: World) -> None:
    cells = world.store.cells
    versions = await world.together(cells.set("hot", number) for number in range(60))
    assert sorted(versions) == list(range(1, 61))
    written = {version: number for number, version in enumerate(versions)}
    newest = await cells.get_versioned("hot")
    assert newest is not None
    assert (newest.version, newest.value) == (60, written[60])
    if Capability.CELLS_HISTORY in world.store.capabilities:
        assert {cell.version: cell.value for cell in await cells.getv("hot")} == written


async def test_concurrent_sets_of_many_cells_all_happen(world: World) -> None:
    cells = world.store.cells
    await world.together(cells.set(f"x{number:03}", number) for number in range(60))
    assert await cells.list() == [f"x{number:03}" for number in range(60)]
    assert [await cells.get(f"x{number:03}") for number in range(60)] == list(range(60))


# cas


async def test_cas_on_the_expected_version_writes(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "a")
    assert await cells.cas("x", 1, "b") == 2
    assert await cells.get("x") == "b"


async def test_cas_on_another_version_returns_none_and_changes_nothing(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "a")
    await cells.set("x", "b")
    history = Capability.CELLS_HISTORY in world.store.capabilities
    before = await cells.getv("x") if history else await cells.get_versioned("x")
    assert await cells.cas("x", 1, "c") is None
    assert await cells.cas("x", 3, "c") is None
    assert await cells.cas("x", 2**70, "c") is None
    assert before == (await cells.getv("x") if history else await cells.get_versioned("x"))


async def test_cas_on_a_missing_cell_returns_none_and_creates_nothing(world: World) -> None:
    cells = world.store.cells
    assert await cells.cas("x", 1, "v") is None
    assert await cells.get_versioned("x") is None
    await kept_versions(world, "x", 0)


async def test_cas_none_creates_an_absent_cell(world: World) -> None:
    assert await world.store.cells.cas("x", None, "v") == 1
    assert await world.store.cells.cas("x", None, "w") is None
    assert await world.store.cells.get("x") == "v"


async def test_of_many_cas_none_racers_one_gets_a_version(world: World) -> None:
    cells = world.store.cells
    answers = await world.together(cells.cas("x", None, number) for number in range(40))
    winners = [number for number, version in enumerate(answers) if version is not None]
    assert len(winners) == 1
    assert answers[winners[0]] == 1
    assert await cells.get("x") == winners[0]


async def test_of_many_cas_racers_on_one_version_one_wins(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", "start")
    answers = await world.together(cells.cas("x", 1, number) for number in range(40))
    assert [version for version in answers if version is not None] == [2]
    assert await cells.get("x") == answers.index(2)


async def test_cas_of_a_deleted_cell_needs_none(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", 1)
    await cells.delete("x")
    assert await cells.cas("x", 1, 2) is None
    assert await cells.cas("x", None, 2) == 2


async def test_version_of_a_deleted_cell_is_never_given_again(world: World) -> None:
    cells = world.store.cells
    stale = await cells.set("x", "mine")
    await cells.delete("x")
    await cells.init("x", "other")
    assert await cells.cas("x", stale, "stolen") is None
    assert await cells.get("x") == "other"


@pytest.mark.parametrize("expected", [0, -1, True, "1", 1.0, b"1"])
async def test_cas_with_an_impossible_expectation_is_refused(
    world: World, expected: int | None
) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="expected version"):
        await world.store.cells.cas("x", expected, "v")


async def test_concurrent_cas_increments_lose_nothing(world: World) -> None:
    cells = world.store.cells
    await cells.init("n", 0)

    async def increment() -> int:
        tries = 0
        while True:
            tries += 1
            cell = await cells.get_versioned("n")
            assert cell is not None
            if await cells.cas("n", cell.version, cell.value + 1) is not None:
                return tries

    tries = await world.together(increment() for _ in range(12))
    assert await cells.get("n") == 12
    assert sum(tries) >= 12


# delete


async def test_delete_tells_whether_the_cell_existed(world: World) -> None:
    cells = world.store.cells
    assert await cells.delete("x") is False
    await cells.set("x", 1)
    assert await cells.delete("x") is True
    assert await cells.delete("x") is False


async def test_deleted_cell_is_absent_everywhere_but_in_history(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", 1)
    await cells.delete("x")
    assert await cells.get("x", "gone") == "gone"
    assert await cells.get_versioned("x") is None
    assert await cells.list() == []
    if Capability.CELLS_HISTORY in world.store.capabilities:
        assert [cell.value for cell in await cells.getv("x")] == [1]


async def test_of_many_racing_deletes_one_says_true(world: World) -> None:
    cells = world.store.cells
    await cells.set("x", 1)
    answers = await world.together(cells.delete("x") for _ in range(20))
    assert sorted(answers) == [False] * 19 + [True]


# list


async def test_list_is_in_byte_order(world: World) -> None:
    names = ["b", "a", "aa", "B", "é", "z", "\U0001f600", "\uffff", "10", "9"]
    await world.store.cells.set_many(dict.fromkeys(names, 1))
    assert await world.store.cells.list() == sorted(names, key=str.encode)


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("a", ["a", "a%", "a*", "a[", "a\\", "a_b", "ab"]),
        ("a%", ["a%"]),
        ("a_", ["a_b"]),
        ("a*", ["a*"]),
        ("a[", ["a["]),
        ("a\\", ["a\\"]),
        ("A", ["A"]),
        ("ä", ["ä", "äb"]),
        ("\ud7ff", ["\ud7ff", "\ud7ffx"]),
        ("\U0010ffff", ["\U0010ffff", "\U0010ffffx"]),
        ("nothing", []),
    ],
)
async def test_list_takes_the_prefix_literally(world: World, prefix: str, found: list[str]) -> None:
    names = ["a", "a%", "a*", "a[", "a\\", "a_b", "ab", "A", "b", "ä", "äb", "å"]
    names += ["\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff", "\U0010ffffx"]
    await world.store.cells.set_many(dict.fromkeys(names, 1))
    assert await world.store.cells.list(prefix) == found


async def test_list_leaves_deleted_cells_out(world: World) -> None:
    cells = world.store.cells
    await cells.set_many({"a": 1, "b": 2, "c": 3})
    await cells.delete("b")
    assert await cells.list() == ["a", "c"]


async def test_list_returns_everything_however_much(world: World) -> None:
    names = [f"n{number:05}" for number in range(2500)]
    for begin in range(0, len(names), 500):
        await world.store.cells.set_many(dict.fromkeys(names[begin : begin + 500], 0))
    assert await world.store.cells.list() == names
    assert await world.store.cells.list("n01") == names[1000:2000]


async def test_list_pages_by_the_last_name(world: World) -> None:
    cells = world.store.cells
    await cells.set_many(dict.fromkeys("abcde", 1))
    assert await cells.list(limit=2) == ["a", "b"]
    assert await cells.list(after="b", limit=2) == ["c", "d"]
    assert await cells.list(after="d", limit=2) == ["e"]
    assert await cells.list(after="e", limit=2) == []
    assert await cells.list(limit=0) == []


async def test_list_refuses_bad_input(world: World) -> None:
    for call in (
        world.store.cells.list("a\0"),
        world.store.cells.list(limit=-1),
        world.store.cells.list(limit=True),
        world.store.cells.list(after=""),
    ):
        with pytest.raises(holdfast.InvalidArgument):
            await call


# set_many


@needs(Capability.CELLS_ATOMIC)
async def test_set_many_returns_every_version(world: World) -> None:
    cells = world.store.cells
    await cells.set("b", 0)
    assert await cells.set_many({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert (await cells.get("a"), await cells.get("b")) == (1, 2)


@needs(Capability.CELLS_ATOMIC)
async def test_set_many_of_nothing_does_nothing(world: World) -> None:
    assert await world.store.cells.set_many({}) == {}


@needs(Capability.CELLS_ATOMIC)
async def test_set_many_writes_nothing_when_one_value_is_illegal(world: World) -> None:
    with pytest.raises(holdfast.InvalidArgument):
        await world.store.cells.set_many({"a": 1, "b": float("nan")})
    with pytest.raises(holdfast.InvalidArgument):
        await world.store.cells.set_many({"a": 1, "": 2})
    assert await world.store.cells.list() == []


@needs(Capability.CELLS_ATOMIC)
async def test_racing_set_manys_do_not_mix(world: World) -> None:
    cells, names = world.store.cells, [f"n{number}" for number in range(10)]
    orders = (names, names[::-1])
    await world.together(
        cells.set_many(dict.fromkeys(orders[number % 2], number)) for number in range(20)
    )
    newest = [await cells.get_versioned(name) for name in names]
    assert {(cell.version, cell.value) for cell in newest if cell} == {(20, await cells.get("n0"))}
    if Capability.CELLS_HISTORY in world.store.capabilities:
        histories = [{cell.version: cell.value for cell in await cells.getv(n)} for n in names]
        assert all(history == histories[0] for history in histories)
        assert sorted(histories[0]) == list(range(1, 21))


# Validation


@pytest.mark.parametrize("name", ["_strata/x", "_holdfast/x", "_holdfast/"])
async def test_reserved_names_are_refused(world: World, name: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="reserved"):
        await world.store.cells.set(name, 1)


@pytest.mark.parametrize("name", ["_strata", "_holdfast", "x_strata/y", "_stratax"])
async def test_names_near_the_reserved_ones_are_fine(world: World, name: str) -> None:
    assert await world.store.cells.set(name, 1) == 1

# ruff: noqa: PT012 -- what is raised inside must pass the transaction's end
"""Specs for transactions: what is done inside commits together or not at all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Capability
from holdfast.aio.transaction import AsyncTransaction
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


class Regret(Exception):
    """What a spec raises inside a transaction."""


# Together or not at all


@needs(Capability.TRANSACTIONS)
async def test_what_is_done_inside_commits_together(world: World) -> None:
    async with world.store.transaction() as tx:
        assert await tx.cells.set("a", 1) == 1
        assert await tx.cells.cas("b", None, 2) == 1
        assert await tx.cells.get("a") == 1
        assert await world.store.cells.get("a") is None  # nobody else sees it yet
    assert await world.store.cells.get("a") == 1
    assert await world.store.cells.get("b") == 2


@needs(Capability.TRANSACTIONS)
async def test_an_exception_leaves_nothing_behind(world: World) -> None:
    cells = world.store.cells
    await cells.set("a", "before")
    with pytest.raises(Regret):
        async with world.store.transaction() as tx:
            await tx.cells.set("a", "after")
            await tx.cells.set_many({"b": 1, "c": 2})
            await tx.cells.delete("a")
            raise Regret
    assert await cells.get("a") == "before"
    assert await cells.list() == ["a"]
    assert await cells.set("a", "next") == 2


@needs(Capability.TRANSACTIONS)
async def test_every_operation_of_cells_works_inside(world: World) -> None:
    await world.store.cells.set_many({"a": 1, "gone": 1})
    async with world.store.transaction() as tx:
        cells = tx.cells
        assert await cells.init("a", "ignored") == 1
        assert await cells.set("a", 2) == 2
        assert await cells.cas("a", 1, "stale") is None
        assert await cells.cas("a", 2, 3) == 3
        assert await cells.delete("gone")
        assert await cells.list() == ["a"]
        assert [cell.value for cell in await cells.getv("a")] == [3, 2, 1]
        newest = await cells.get_versioned("a")
        assert newest is not None
        assert newest.version == 3
        assert (await cells.get_at("a", newest.updated_at)) == newest
        assert await cells.set_many({"b": 1, "a": 4}) == {"b": 1, "a": 4}
    assert await world.store.cells.list() == ["a", "b"]


@needs(Capability.TRANSACTIONS)
async def test_commit_ids_rise_through_a_transaction(world: World) -> None:
    before = await world.store.cells.set("x", 1)
    async with world.store.transaction() as tx:
        for number in range(3):
            await tx.cells.set("x", number)
    await world.store.cells.set("x", "after")
    ids = [cell.commit_id for cell in await world.store.cells.getv("x")]
    assert before == 1
    assert len(ids) == 5
    assert ids == sorted(set(ids), reverse=True)


@needs(Capability.TRANSACTIONS)
async def test_other_namespaces_take_part(world: World) -> None:
    with pytest.raises(Regret):
        async with world.store.transaction() as tx:
            await tx.namespace("other").cells.set("a", 1)
            raise Regret
    async with world.store.transaction() as tx:
        await tx.namespace("other").cells.set("b", 1)
        assert await tx.cells.get("b") is None
    assert await world.store.namespace("other").cells.list() == ["b"]


@needs(Capability.TRANSACTIONS, Capability.BRANCHES)
async def test_several_branches_take_part(world: World) -> None:
    await world.store.cells.set("a", 1)
    await world.store.branches.fork("trial")
    async with world.store.transaction() as tx:
        await tx.cells.set("a", 2)
        await tx.cells.on("trial").set("a", "tried")
        assert await tx.cells.get("a") == 2
        assert await tx.cells.on("trial").get("a") == "tried"
        with pytest.raises(holdfast.InvalidState, match="wait for itself"):
            await world.store.branches.fork("inside")
    assert await world.store.cells.get("a") == 2
    assert await world.store.cells.on("trial").get("a") == "tried"
    with pytest.raises(Regret):
        async with world.store.transaction() as tx:
            await tx.cells.on("trial").set("a", "regretted")
            raise Regret
    assert await world.store.cells.on("trial").get("a") == "tried"


@needs(Capability.TRANSACTIONS)
async def test_an_operation_id_is_known_inside_and_after(world: World) -> None:
    op_id = uuid4()
    async with world.store.transaction() as tx:
        assert await tx.cells.set("a", 1, op_id=op_id) == 1
        assert await tx.cells.set("a", 1, op_id=op_id) == 1
    assert await world.store.cells.set("a", 1, op_id=op_id) == 1
    assert len(await world.store.cells.getv("a")) == 1


@needs(Capability.TRANSACTIONS)
async def test_a_refusal_inside_is_a_value(world: World) -> None:
    await world.store.cells.set("a", 1)
    async with world.store.transaction() as tx:
        assert await tx.cells.cas("a", 7, "x") is None
        await tx.cells.set("b", 2)
    assert await world.store.cells.get("b") == 2


@needs(Capability.TRANSACTIONS)
async def test_bad_input_inside_does_not_end_the_transaction(world: World) -> None:
    async with world.store.transaction() as tx:
        await tx.cells.set("a", 1)
        with pytest.raises(holdfast.InvalidArgument):
            await tx.cells.set("", 1)
    assert await world.store.cells.get("a") == 1


# The caller's own tables


@needs(Capability.TRANSACTIONS)
async def test_the_callers_tables_take_part(world: World) -> None:
    table = f"payments_{uuid4().hex}"  # a database may serve many specs
    async with world.store.transaction() as tx:
        await tx.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, amount integer)")
    with pytest.raises(Regret):
        async with world.store.transaction() as tx:
            assert await tx.execute(f"INSERT INTO {table} VALUES (1, 10)") == []
            await tx.cells.set("balance", 90)
            assert await tx.execute(f"SELECT amount FROM {table}") == [(10,)]
            raise Regret
    async with world.store.transaction() as tx:
        assert await tx.execute(f"SELECT count(*) FROM {table}") == [(0,)]
        await tx.execute(f"INSERT INTO {table} VALUES (2, 20)")
        await tx.cells.set("balance", 80)
    async with world.store.transaction() as tx:
        assert await tx.execute(f"SELECT id, amount FROM {table}") == [(2, 20)]
        assert await tx.cells.get("balance") == 80


@needs(Capability.TRANSACTIONS)
async def test_an_error_of_the_engine_ends_the_transaction(world: World) -> None:
    with pytest.raises(holdfast.InvalidState, match="over"):
        async with world.store.transaction() as tx:
            await tx.cells.set("a", 1)
            with pytest.raises(holdfast.StoreError) as raised:
                await tx.execute("SELECT no_such_column FROM no_such_table")
            assert not raised.value.outcome_unknown
            cause = raised.value.__cause__
            assert cause is not None
            assert not isinstance(cause, holdfast.StoreError)  # the driver's own, not itself
            with pytest.raises(holdfast.InvalidState, match="over"):
                await tx.cells.set("b", 1)
    assert await world.store.cells.list() == []
    await world.store.cells.set("a", "works again")


@needs(Capability.TRANSACTIONS)
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_statement_that_ends_the_transaction_is_told(world: World, statement: str) -> None:
    with pytest.raises(holdfast.InvalidState, match="over"):
        async with world.store.transaction() as tx:
            await tx.execute(statement)
    await world.store.cells.set("a", "works again")


# Beside it


@needs(Capability.TRANSACTIONS)
async def test_a_write_through_the_store_inside_is_refused_at_once(world: World) -> None:
    async with world.store.transaction() as tx:
        await tx.cells.set("a", 1)
        with pytest.raises(holdfast.InvalidState, match="wait for itself"):
            await world.store.cells.set("a", 2)
        with pytest.raises(holdfast.InvalidState, match="wait for itself"):
            await world.store.namespace("other").cells.set("a", 2)
        with pytest.raises(holdfast.InvalidState, match="wait for itself"):
            async with world.store.transaction():
                raise AssertionError("there must not be a second one")
    await world.store.cells.set("a", 2)
    assert await world.store.cells.get("a") == 2


@needs(Capability.TRANSACTIONS)
async def test_a_transaction_is_over_after_its_end(world: World) -> None:
    async with world.store.transaction() as tx:
        await tx.cells.set("a", 1)
    with pytest.raises(holdfast.InvalidState, match="over"):
        await tx.cells.set("a", 2)
    with pytest.raises(holdfast.InvalidState, match="over"):
        await tx.cells.get("a")
    assert await world.store.cells.get("a") == 1


@needs(Capability.TRANSACTIONS)
async def test_transactions_of_many_callers_lose_nothing(world: World) -> None:
    await world.store.cells.set_many({"from": 0, "to": 0})

    async def move() -> None:
        async with world.store.transaction(timeout=60) as tx:
            await tx.cells.set("lock", 1)  # PostgreSQL reads the newest only under a lock
            a = await tx.cells.get("from")
            b = await tx.cells.get("to")
            await tx.cells.set_many({"from": a - 1, "to": b + 1})

    await world.together(move() for _ in range(20))
    assert await world.store.cells.get("from") == -20
    assert await world.store.cells.get("to") == 20


@needs(Capability.TRANSACTIONS)
async def test_writers_beside_a_transaction_get_their_turn(world: World) -> None:
    async def transact(number: int) -> None:
        async with world.store.transaction(timeout=60) as tx:
            await tx.cells.set(f"inside{number}", number)

    async def write(number: int) -> None:
        await world.store.cells.set(f"beside{number}", number)

    calls: list[Any] = [work(n) for n in range(10) for work in (transact, write)]
    await world.together(calls)
    assert len(await world.store.cells.list()) == 20


@needs(Capability.TRANSACTIONS)
async def test_its_time_is_limited(world: World) -> None:
    with pytest.raises(holdfast.Timeout):
        async with world.store.transaction(timeout=0.05) as tx:
            while True:
                await tx.cells.set("a", 1)
    assert await world.store.cells.get("a") is None
    await world.store.cells.set("a", "works again")


@needs(Capability.TRANSACTIONS, Capability.SHARED)
async def test_a_transaction_that_hangs_holds_up_nobody(world: World) -> None:
    other = await world.open()
    with pytest.raises(holdfast.Timeout):
        async with world.store.transaction(timeout=0.2) as tx:
            await tx.cells.set("a", "hangs")
            assert await other.cells.set("a", "goes on") == 1
    assert await world.store.cells.get("a") == "goes on"
    await world.store.cells.set("a", "works again")


# transact


@needs(Capability.TRANSACTIONS)
async def test_transact_gives_the_result_of_the_work(world: World) -> None:
    async def work(tx: AsyncTransaction) -> str:
        await tx.cells.set("a", 1)
        return "done"

    assert await world.store.transact(work) == "done"
    assert await world.store.cells.get("a") == 1


@needs(Capability.TRANSACTIONS)
async def test_transact_repeats_after_a_retryable_conflict(world: World) -> None:
    tries = 0

    async def work(tx: AsyncTransaction) -> int:
        nonlocal tries
        tries += 1
        await tx.cells.set("a", tries)
        if tries < 3:
            raise holdfast.Conflict("somebody was faster", retryable=True)
        return tries

    assert await world.store.transact(work) == 3
    assert [cell.value for cell in await world.store.cells.getv("a")] == [3]


@needs(Capability.TRANSACTIONS)
async def test_transact_gives_up_in_the_end_and_at_once_for_what_time_does_not_mend(
    world: World,
) -> None:
    tries = 0

    async def work(_: AsyncTransaction) -> None:
        nonlocal tries
        tries += 1
        raise holdfast.Conflict("again and again", retryable=retryable)

    retryable = True
    with pytest.raises(holdfast.Conflict):
        await world.store.transact(work, attempts=4)
    assert tries == 4
    retryable = False
    with pytest.raises(holdfast.Conflict):
        await world.store.transact(work, attempts=4)
    assert tries == 5


@needs(Capability.TRANSACTIONS)
@pytest.mark.parametrize("limit", [0, -1, "soon", None, True, float("nan"), float("inf")])
async def test_a_bad_timeout_is_refused(world: World, limit: Any) -> None:  # noqa: ANN401
    with pytest.raises(holdfast.InvalidArgument, match="timeout"):
        world.store.transaction(timeout=limit)


@needs(Capability.TRANSACTIONS)
@pytest.mark.parametrize("attempts", [0, -1, "many", None, True, 1.5])
async def test_bad_attempts_are_refused(world: World, attempts: Any) -> None:  # noqa: ANN401
    async def work(_: AsyncTransaction) -> None:
        raise AssertionError("must not be called")

    with pytest.raises(holdfast.InvalidArgument, match="attempts"):
        await world.store.transact(work, attempts=attempts)


@needs(Capability.TRANSACTIONS)
async def test_a_closed_store_begins_nothing(world: World) -> None:
    other = await world.open()
    await other.close()
    with pytest.raises(holdfast.StoreClosed):
        async with other.transaction():
            raise AssertionError("must not begin")

# ruff: noqa: PT012 -- what is raised inside must pass the transaction's end
"""Transactions on PostgreSQL whose connection or server goes away."""

from collections.abc import Callable
from typing import TypeAlias
from uuid import uuid4

import pytest

from holdfast import AsyncStore, StoreError, Unavailable
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour

OpenStore: TypeAlias = Callable[..., AsyncStore]


def test_a_cut_inside_leaves_nothing_and_no_doubt(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)

    async def scene() -> None:
        with pytest.raises(StoreError) as raised:
            async with store.transaction() as tx:
                await tx.cells.set("a", 1)
                proxy.cut()
                await tx.cells.set("b", 2)
        assert isinstance(raised.value, Unavailable)
        assert not raised.value.outcome_unknown
        assert await store.cells.list() == []
        async with store.transaction() as tx:
            await tx.cells.set("a", "works again")
        assert await store.cells.get("a") == "works again"

    colour.run(scene())


def test_a_lost_answer_to_the_commit_is_told_as_unknown_and_can_be_repeated(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    op_id = uuid4()

    async def scene() -> None:
        with pytest.raises(Unavailable) as raised:
            async with store.transaction() as tx:
                await tx.cells.set("a", 1, op_id=op_id)
                proxy.cut_before_reply(b"COMMIT")
        assert raised.value.outcome_unknown
        async with store.transaction() as tx:
            assert await tx.cells.set("a", 1, op_id=op_id) == 1
        assert len(await store.cells.getv("a")) == 1

    colour.run(scene())


def test_a_commit_that_never_reached_the_server_is_told_as_unknown(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)

    async def scene() -> None:
        with pytest.raises(Unavailable) as raised:
            async with store.transaction() as tx:
                await tx.cells.set("a", 1)
                proxy.cut_before_server(b"COMMIT")
        assert raised.value.outcome_unknown
        assert await store.cells.get("a") is None

    colour.run(scene())


def test_a_server_that_restarts_inside_leaves_nothing(
    colour: Colour, open_store: OpenStore, namespace: str
) -> None:
    del namespace
    with PostgresServer("18") as server:
        store = open_store(server.create_database())

        async def scene() -> None:
            with pytest.raises(Unavailable) as raised:
                async with store.transaction(timeout=60) as tx:
                    await tx.cells.set("a", 1)
                    server.restart()
                    await tx.cells.set("b", 2)
            assert not raised.value.outcome_unknown
            assert await store.cells.list() == []
            await store.cells.set("a", "works again")

        colour.run(scene())
        colour.run(store.close())


def test_one_connection_is_enough_for_a_transaction_at_a_time(
    colour: Colour, open_store: OpenStore, database: str
) -> None:
    store = open_store(database, pool_size=1)

    async def move(number: int) -> None:
        async with store.transaction(timeout=60) as tx:
            await tx.cells.set(f"a{number}", 1)
            await tx.cells.set("total", number)

    async def scene() -> None:
        outcomes = await colour.together(move(number) for number in range(8))
        assert outcomes == [None] * 8
        assert len(await store.cells.getv("total")) == 8

    colour.run(scene())

"""Lost answers of the transport on PostgreSQL: what a repeat says of a delivery."""

from collections.abc import Callable

import holdfast
from holdfast import AsyncStore
from holdfast.testing.proxy import FaultProxy, ready_for_query
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour, move_clock
from tests.faults.lost_groups import (
    Meanwhile,
    lost_answers_about_nothing,
    lost_answers_before_another,
    lost_group_answers,
)

ACK_TIMEOUT = 30


def test_a_repeated_ack_is_refused_if_another_has_the_message(
    colour: Colour,
    open_store: Callable[..., AsyncStore],
    proxy: FaultProxy,
    database: str,
    namespace: str,
) -> None:
    store = open_store(proxy.through(database), listen_url=database)

    async def work() -> None:
        await store.transport.create_group("g", ">", ack_timeout=ACK_TIMEOUT)
        await store.transport.publish("a", 1)
        async with store.transport.consumer("g") as consumer:
            late = await consumer.next(ACK_TIMEOUT)
            await move_clock(store, ACK_TIMEOUT + 1)
            again = await consumer.next(ACK_TIMEOUT)
        assert late is not None
        assert again is not None
        assert (late.number, again.number) == (1, 2)
        proxy.cut_before_reply(namespace.encode())
        assert await late.ack() is False
        assert (await store.transport.status("g")).delivered == 1
        proxy.cut_before_reply(namespace.encode())
        assert await again.ack() is True
        assert (await store.transport.status("g")).delivered == 0
        assert proxy.counts.cuts == 2

    colour.run(work())


def test_a_lost_answer_about_a_group_is_told_rightly(
    colour: Colour,
    open_store: Callable[..., AsyncStore],
    proxy: FaultProxy,
    database: str,
    namespace: str,
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    colour.run(lost_group_answers(store, lambda: proxy.cut_before_reply(namespace.encode())))
    assert proxy.counts.cuts == 5


def test_a_lost_answer_about_nothing_is_told_rightly(
    colour: Colour,
    open_store: Callable[..., AsyncStore],
    proxy: FaultProxy,
    database: str,
    namespace: str,
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    colour.run(
        lost_answers_about_nothing(store, lambda: proxy.cut_before_reply(namespace.encode()))
    )
    assert proxy.counts.cuts == 4


def test_a_repeat_ends_nothing_that_came_after_its_first_try(
    colour: Colour,
    open_store: Callable[..., AsyncStore],
    server: PostgresServer,
    database: str,
    namespace: str,
) -> None:
    meanwhile = Meanwhile(ready_for_query)
    with (
        FaultProxy("127.0.0.1", server.port, answered=meanwhile) as proxy,
        holdfast.open(database, namespace=namespace) as other,
    ):
        store = open_store(proxy.through(database), listen_url=database)
        colour.run(
            lost_answers_before_another(
                store,
                other,
                meanwhile,
                lambda: proxy.cut_before_reply(namespace.encode()),
            )
        )
        assert proxy.counts.cuts == 3
        colour.run(store.close())

"""The transport on Redis: many messages, lost answers, a full server, wake-ups."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Store, StoreConfig
from holdfast.runtime.blocking import run
from holdfast.sync.transport import Delivery
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Colour
from tests.faults.kept_operations import operations_are_forgotten
from tests.faults.lost_groups import (
    Meanwhile,
    lost_answers_about_nothing,
    lost_answers_before_another,
    lost_group_answers,
)

PATIENCE = 8.0  # seconds: less than a listener waits that has missed its hint


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    with contextlib.closing(server.client()) as client:
        yield client


@pytest.fixture
def proxy(server: ValkeyServer) -> Iterator[FaultProxy]:
    with FaultProxy(
        "127.0.0.1", server.port, answered=lambda answer: answer.endswith(b"\r\n")
    ) as proxy:
        yield proxy


def _move_clock(store: Store, secs: float) -> None:
    run(store._backend.move_clock(round(secs * 1_000_000)))  # noqa: SLF001 - for tests only


def _publish(store: Store, subject: str, count: int) -> None:
    """That many messages, 0 and up, by threads that share pipelines; in any order."""

    def work(first: int) -> None:
        for number in range(first, count, 10):
            store.transport.publish(subject, number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _hold(store: Store, group: str, most: int) -> list[Delivery]:
    """Up to so many messages of the group, not answered."""
    held: list[Delivery] = []
    while len(held) < most and (delivery := store.transport.fetch(group)) is not None:
        held.append(delivery)
    return held


# Many messages: a script looks at some of them, the store asks again


def test_a_message_behind_many_that_nobody_asks_for_is_found(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.transport.create_group("g", "wanted")
        _publish(store, "other", 450)
        store.transport.publish("wanted", "it")
        status = store.transport.status("g")
        assert (status.waiting, status.delivered) == (1, 0)
        delivery = store.transport.fetch("g")
        assert delivery is not None
        assert delivery.message.payload == "it"
        assert status.oldest_at == delivery.message.timestamp


def test_status_and_dead_letters_of_many(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        transport = store.transport
        transport.create_group("g", ">", max_deliveries=1)
        _publish(store, "a", 450)
        assert transport.status("g").waiting == 450
        held = _hold(store, "g", 250)
        status = transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (200, 250, 0)
        assert status.oldest_at == held[0].message.timestamp
        assert held[0].extend(1000)  # the oldest, though the last that is due
        assert transport.status("g").oldest_at == status.oldest_at
        assert held.pop(0).ack()
        _move_clock(store, 31)
        assert len(_hold(store, "g", 1000)) == 200
        status = transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (0, 200, 249)
        letters = transport.dead_letters("g", limit=1000)
        assert len({letter.message.message_id for letter in letters}) == 249
        assert letters == sorted(letters, key=lambda letter: letter.place)
        assert transport.dead_letters("g", after=letters[99].place, limit=120) == letters[100:220]


def test_purge_passes_over_many_messages_that_are_still_needed(
    server: ValkeyServer, client: Any  # noqa: ANN401 - redis-py's
) -> None:  # fmt: skip
    with holdfast.open(server.url(prefix="purge")) as store:
        transport = store.transport
        transport.create_group("g", "kept")
        _publish(store, "kept", 450)
        _publish(store, "done", 450)
        assert len(_hold(store, "g", 1000)) == 450  # and the group is past the others
        transport.publish("done", "new")
        other = store.namespace("other").transport
        other.publish("a", 1)
        _move_clock(store, 1000)
        transport.publish("done", "newer")
        assert transport.purge(older_than=500) == 451
        assert client.xlen("purge:{default}:messages") == 452
        transport.delete_group("g")
        assert transport.purge(older_than=500) == 451
        transport.create_group("all", ">", from_start=True)
        delivery = transport.fetch("all")
        assert delivery is not None
        assert delivery.message.payload == "newer"


def test_a_group_leaves_nothing_behind(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.url(prefix="left")) as store:
        transport = store.transport
        transport.create_group("g", ">", max_deliveries=1)
        for number in range(3):
            transport.publish("a", number)
        dead, held, done = (transport.fetch("g") for _ in range(3))
        assert dead is not None
        assert held is not None
        assert done is not None
        assert dead.nak()
        assert transport.fetch("g") is None
        assert done.ack()
        keys = {key.decode() for key in client.keys("left:{default}:?:g")}
        assert keys == {f"left:{{default}}:{kind}:g" for kind in "gdnl"}
        assert transport.delete_group("g")
        assert client.keys("left:{default}:*:g") == []
        assert 0 < client.pttl(f"left:{{default}}:m:{held.message.message_id}") <= 121_000


# Lost answers


def test_a_lost_answer_publishes_once_and_acknowledges_once(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        transport = store.transport
        transport.create_group("g", ">")
        transport.publish("a", "first")
        delivery = transport.fetch("g")
        assert delivery is not None
        assert delivery.ack()  # the server knows the scripts now
        for cut in (proxy.cut_before_reply, proxy.cut_before_server):
            cut(b"EVALSHA")
            transport.publish("a", 1)
        for _ in range(2):
            delivery = transport.fetch("g")
            assert delivery is not None
            assert (delivery.message.payload, delivery.number) == (1, 1)
            proxy.cut_before_reply(b"EVALSHA")
            assert delivery.ack() is True
            assert delivery.ack() is False
        assert transport.fetch("g") is None
        assert proxy.counts.cuts == 4


def test_a_repeated_ack_is_refused_if_another_has_the_message(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.transport.create_group("g", ">")
        store.transport.publish("a", 1)
        late = store.transport.fetch("g")
        _move_clock(store, 31)
        assert store.transport.fetch("g") is not None
        assert late is not None
        proxy.cut_before_reply(b"EVALSHA")
        assert late.ack() is False
        assert store.transport.status("g").delivered == 1


def test_a_lost_answer_about_a_group_is_told_rightly(
    server: ValkeyServer, proxy: FaultProxy, colour: Colour
) -> None:
    async def work() -> None:
        store = await colour.open(proxy.through(server.fresh_url()), "default", None)
        await lost_group_answers(store, lambda: proxy.cut_before_reply(b"EVALSHA"))
        await store.close()

    colour.run(work())
    assert proxy.counts.cuts == 5


def test_a_lost_answer_about_nothing_is_told_rightly(
    server: ValkeyServer, proxy: FaultProxy, colour: Colour
) -> None:
    async def work() -> None:
        store = await colour.open(proxy.through(server.fresh_url()), "default", None)
        await lost_answers_about_nothing(store, lambda: proxy.cut_before_reply(b"EVALSHA"))
        await store.close()

    colour.run(work())
    assert proxy.counts.cuts == 4


def test_a_repeat_ends_nothing_that_came_after_its_first_try(
    server: ValkeyServer, colour: Colour
) -> None:
    meanwhile = Meanwhile(lambda answer: answer.endswith(b"\r\n"))
    url = server.fresh_url()

    async def work(proxy: FaultProxy, other: Store) -> None:
        store = await colour.open(proxy.through(url), "default", None)
        await lost_answers_before_another(
            store, other, meanwhile, lambda: proxy.cut_before_reply(b"EVALSHA")
        )
        await store.close()

    with (
        FaultProxy("127.0.0.1", server.port, answered=meanwhile) as proxy,
        holdfast.open(url) as other,
    ):
        colour.run(work(proxy, other))
        assert proxy.counts.cuts == 3


def test_messages_of_a_lost_answer_come_again(server: ValkeyServer, proxy: FaultProxy) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.transport.create_group("g", ">")
        assert store.transport.fetch("g") is None  # the server knows the script now
        store.transport.publish("a", 1)
        proxy.cut_before_reply(b"EVALSHA")
        assert store.transport.fetch("g") is None  # the repeat finds nothing
        _move_clock(store, 31)
        delivery = store.transport.fetch("g")
        assert delivery is not None
        assert (delivery.message.payload, delivery.number) == (1, 2)


def test_a_number_that_a_failover_lost_is_not_given_out_again(
    server: ValkeyServer, client: Any  # noqa: ANN401 - redis-py's
) -> None:  # fmt: skip
    with holdfast.open(server.url(prefix="failover")) as store:
        store.transport.create_group("g", ">")
        before = {key: client.dump(key) for key in client.keys("failover:*")}
        store.transport.publish("a", "lost")
        lost = store.transport.fetch("g")
        assert lost is not None
        client.delete(*client.keys("failover:*"))
        for key, dump in before.items():
            client.restore(key, 0, dump)
        store.transport.publish("a", "kept")
        kept = store.transport.fetch("g")
        assert kept is not None
        assert (kept.message.payload, kept.number) == ("kept", lost.number)
        assert lost.ack() is False
        assert kept.ack() is True


# Limits


def test_a_full_server_takes_no_message_but_answers_and_purges(
    server: ValkeyServer, client: Any  # noqa: ANN401 - redis-py's
) -> None:  # fmt: skip
    with holdfast.open(server.fresh_url()) as store:
        transport = store.transport
        transport.create_group("g", ">")
        transport.create_group("other", "b")
        for number in range(3):
            transport.publish("a", number)
        assert transport.fetch("other") is None
        delivery = transport.fetch("g")
        assert delivery is not None
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(holdfast.Database, match="maxmemory") as caught:
                transport.publish("a", 3)
            assert not caught.value.outcome_unknown
            with pytest.raises(holdfast.Database, match="maxmemory"):
                transport.fetch("g")
            assert delivery.ack() is True
            assert transport.purge(older_than=0) == 1
            assert transport.delete_group("other") is True
            assert transport.delete_group("other") is False
        finally:
            client.config_set("maxmemory", 0)
        again = transport.fetch("g")
        assert again is not None
        assert (again.message.payload, again.number) == (1, 1)


def test_scripts_are_loaded_again_after_a_flush(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.fresh_url()) as store:
        transport = store.transport
        client.script_flush()
        transport.create_group("g", ">")
        client.script_flush()
        transport.publish("a", 1)
        client.script_flush()
        delivery = transport.fetch("g")
        assert delivery is not None
        client.script_flush()
        assert transport.status("g").delivered == 1
        assert delivery.ack() is True


# Wake-ups


def test_a_message_of_another_process_wakes_a_consumer(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    # It would look again after an hour, or ten seconds once it hears of changes.
    config = StoreConfig(poll_interval=3600)
    found: list[object] = []
    with (
        holdfast.open(server.url(prefix="wake"), config=config) as store,
        holdfast.open(server.url(prefix="wake")) as other,
    ):

        def consume() -> None:
            with store.transport.consumer("g", ">") as consumer:
                for _ in range(2):
                    delivery = consumer.next(PATIENCE)
                    found.append(delivery and (delivery.message.payload, delivery.number))

        thread = threading.Thread(target=consume)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while client.pubsub_numsub("wake:changes") != [(b"wake:changes", 1)]:
            assert time.monotonic() < deadline, "nobody has subscribed"
            time.sleep(0.01)
        other.records.put("a", {"x": 1})  # a hint for others
        other.transport.publish("a", 1)
        while not found:
            assert thread.is_alive()
            time.sleep(0.01)
        other.transport.publish("a", 2)
        thread.join()
    assert found == [(1, 1), (2, 1)]


def test_operations_are_known_as_long_as_they_say(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(server.fresh_url()) as store:
        operations_are_forgotten(store, monkeypatch)

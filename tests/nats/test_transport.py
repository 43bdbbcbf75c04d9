"""The transport on NATS: killed consumers and servers, lost answers, many stores on one group."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import AsyncStore, StoreConfig
from holdfast.backends.nats import wakes
from holdfast.backends.nats.subjects import cover
from holdfast.facets.transport import pattern_regex
from holdfast.runtime.blocking import run
from holdfast.sync.store import Store
from holdfast.sync.transport import Consumer
from holdfast.testing.cuts import Link
from holdfast.testing.nats import NatsCluster, NatsServer
from holdfast.testing.ports import ADDRESS
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.world import Colour
from tests.faults.kept_operations import operations_are_forgotten
from tests.faults.lost_groups import (
    Meanwhile,
    lost_answers_about_nothing,
    lost_answers_before_another,
    lost_group_answers,
)

PATIENCE = 60.0
CUTS = 10
PUBLISH = (b".published.", b"Nats-Msg-Id")
TAKE = (b".open.", b".groups.default.g _INBOX")  # a message, and the position after it
COMMIT = b"Nats-Batch-Commit"
MANY = 100  # too many to be taken one by one
CONDITION = b"Nats-Expected-Last-Subject-Sequence"


def consume(url: str, news: Connection) -> None:
    """Acknowledge every other message, and tell after each what became of it."""
    with holdfast.open(url) as store, store.transport.consumer("g", prefetch=7) as consumer:
        for number in itertools.count():
            delivery = next(consumer)
            done = number % 2 == 0 and delivery.ack()
            news.send((delivery.message.payload, done))


def test_what_a_killed_consumer_held_is_delivered_to_another_one(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        transport = store.transport
        transport.create_group("g", "a", ack_timeout=3600)
        for number in range(100):
            transport.publish("a", number)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        killed = multiprocessing.get_context("spawn").Process(target=consume, args=(url, theirs))
        killed.start()
        theirs.close()
        acknowledged: set[int] = set()
        held: set[int] = set()
        for _ in range(30):
            assert ours.poll(PATIENCE), "the consumer told nothing"
            number, done = ours.recv()
            (acknowledged if done else held).add(number)
        killed.kill()
        killed.join()
        while ours.poll() and (last := _last(ours)):
            (acknowledged if last[1] else held).add(last[0])
        assert min(len(acknowledged), len(held)) >= 10
        with transport.consumer("g") as consumer:
            first = _rest(consumer)
            assert not (held | acknowledged) & set(first)
            run(store._backend.move_clock(3601 * 1_000_000))  # noqa: SLF001 - for tests only
            again = _rest(consumer)
        assert held <= set(again)
        # The one that it was about to acknowledge may be done or not.
        missing = set(range(100)) - acknowledged - set(first) - set(again)
        assert len(missing) <= 1
        assert not acknowledged & set(again)


def _last(ours: Connection) -> tuple[int, bool] | None:
    try:
        told: tuple[int, bool] = ours.recv()
    except EOFError:
        return None
    return told


def _rest(consumer: Consumer) -> list[Any]:
    found = []
    while (delivery := consumer.next(timeout=0)) is not None:
        found.append(delivery.message.payload)
        assert delivery.ack() is True
    return found


class Traffic:
    """Publishers and consumers that go on until they are told to stop."""

    # An outage may last for many deliveries: none of them is to be the last.
    LIMITS: ClassVar[dict[str, Any]] = {"ack_timeout": 3, "max_deliveries": 1000}

    def __init__(self, store: AsyncStore, other: AsyncStore) -> None:
        self._store = store
        self._other = other
        self._stopped = False
        self._until = 0.0
        self._news = asyncio.Event()
        self.tried: set[str] = set()
        self.published: set[str] = set()
        self.consumed: Counter[str] = Counter()

    async def publish(self, number: int) -> None:
        for step in itertools.count():
            if self._stopped:
                return
            text = f"{number}.{step}"
            self.tried.add(text)
            try:
                await self._store.transport.publish(f"a.{number}", text)
            except (holdfast.Unavailable, holdfast.Timeout):
                continue
            self.published.add(text)
            self._news.set()

    async def consume(self) -> None:
        async with self._other.transport.consumer("g", prefetch=5) as consumer:
            while not self._stopped or (self._missing and time.monotonic() < self._until):
                try:
                    delivery = await consumer.next(1)
                    if delivery is None:
                        continue
                    # Before the answer: one that is lost may have been taken, and ends it too.
                    self.consumed[delivery.message.payload] += 1
                    await delivery.ack()
                except (holdfast.Unavailable, holdfast.Timeout):
                    continue

    async def more(self, count: int) -> None:
        """Return when so many more messages have been published."""
        wanted = len(self.published) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.published) < wanted:
                self._news.clear()
                await self._news.wait()

    def stop(self) -> None:
        """Publish no more, and leave consumers some time for the rest."""
        self._until = time.monotonic() + PATIENCE
        self._stopped = True

    @property
    def _missing(self) -> set[str]:
        return self.published - self.consumed.keys()

    def check(self) -> None:
        assert self._missing == set()
        assert self.consumed.keys() <= self.tried


def test_kill_and_restart_of_the_server_lose_no_message() -> None:
    async def main() -> None:
        with NatsServer() as server:
            url = server.fresh_url()
            async with holdfast.open_async(url) as store, holdfast.open_async(url) as other:
                await store.transport.create_group("g", "a.*", **Traffic.LIMITS)
                traffic = Traffic(store, other)
                async with asyncio.TaskGroup() as group:
                    for number in range(4):
                        group.create_task(traffic.publish(number))
                        group.create_task(traffic.consume())
                    for _ in range(3):
                        await traffic.more(100)
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                    await traffic.more(100)
                    traffic.stop()
                traffic.check()
                # And the check does see what is missing.
                del traffic.consumed[next(iter(traffic.published))]
                with pytest.raises(AssertionError):
                    traffic.check()

    asyncio.run(main())


def test_a_node_killed_under_load_loses_no_message() -> None:
    async def main() -> None:
        with NatsCluster() as cluster:
            url = cluster.fresh_url(replicas="3")
            async with holdfast.open_async(url) as store, holdfast.open_async(url) as other:
                await store.transport.create_group("g", ["a.*", "b"], **Traffic.LIMITS)
                traffic = Traffic(store, other)
                async with asyncio.TaskGroup() as group:
                    for number in range(4):
                        group.create_task(traffic.publish(number))
                        group.create_task(traffic.consume())
                    for node in range(3):  # the leaders are among them, and the one we talk to
                        await traffic.more(50)
                        await asyncio.to_thread(cluster.kill, node)
                        await traffic.more(50)
                        await asyncio.to_thread(cluster.start_node, node)
                    traffic.stop()
                traffic.check()

    asyncio.run(main())


def test_consumers_in_several_stores_share_a_group(server: NatsServer) -> None:
    async def take(store: AsyncStore, found: list[int]) -> None:
        async with store.transport.consumer("g", prefetch=2) as consumer:
            while len(found) < 150 and (delivery := await consumer.next(1)) is not None:
                assert delivery.number == 1
                assert await delivery.ack() is True
                found.append(delivery.message.payload)

    async def main() -> None:
        url = server.fresh_url()
        stores = [await holdfast.open_async(url) for _ in range(4)]
        await stores[0].transport.create_group("g", "a", ack_timeout=3600)
        for number in range(150):
            await stores[0].transport.publish("a", number)
        found: list[int] = []
        await asyncio.gather(*(take(store, found) for store in stores))
        assert sorted(found) == list(range(150))
        status = await stores[0].transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (0, 0, 0)
        for store in stores:
            await store.close()

    asyncio.run(main())


def test_who_waits_is_woken_when_a_delivery_is_due_sooner(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakes, "_PATIENCE", 10 * PATIENCE)  # nobody looks without being woken
    url = server.fresh_url()

    async def shorten() -> None:
        async with await holdfast.open_async(url) as store, await holdfast.open_async(url) as other:
            await store.transport.create_group("g", "a", ack_timeout=20 * PATIENCE)
            await store.transport.publish("a", 1)
            async with store.transport.consumer("g") as holds, other.transport.consumer("g") as two:
                delivery = await holds.next(PATIENCE)
                assert delivery is not None
                waiting = asyncio.ensure_future(two.next(PATIENCE))
                assert await holds.next(0.5) is None  # and meanwhile the other one waits
                assert await delivery.extend(0.1) is True
                async with asyncio.timeout(PATIENCE / 2):  # when its own is over it looks again
                    again = await waiting
                assert again is not None
                assert again.number == 2

    asyncio.run(shorten())


def test_a_group_that_asks_for_other_subjects_gets_them_from_then_on(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        transport = store.transport
        transport.create_group("g", ["a", "never"])
        for number in range(60):
            transport.publish("b", number)
        transport.publish("a", "first")
        transport.publish("b", 60)
        transport.create_group("g", "b")
        with transport.consumer("g") as consumer:
            assert _rest(consumer) == [60]
        transport.publish("a", "second")
        transport.create_group("g", ["a", "b"])
        transport.publish("a", "third")
        with transport.consumer("g") as consumer:
            assert _rest(consumer) == ["third"]


@pytest.mark.parametrize("arrives", [True, False])
def test_lost_answers_double_nothing(store: Store, proxy: FaultProxy, *, arrives: bool) -> None:
    cut = proxy.cut_before_reply if arrives else proxy.cut_before_server
    # One delivery only: a fetch that did not know of its own first try would make dead letters.
    store.transport.create_group("g", "a", ack_timeout=3600, max_deliveries=1)
    with store.transport.consumer("g") as consumer:
        for number in range(CUTS):
            cut(PUBLISH[number % 2])
            store.transport.publish("a", number)
            cut(TAKE[number // 2 % 2])
            delivery = consumer.next(timeout=PATIENCE)
            assert delivery is not None
            assert (delivery.message.payload, delivery.number) == (number, 1)
            cut(CONDITION)
            assert delivery.ack() is True
            assert delivery.ack() is False
            assert consumer.next(timeout=0) is None
    assert proxy.counts.cuts == 3 * CUTS
    assert store.transport.dead_letters("g") == []


def test_a_lost_answer_about_a_group_is_told_rightly(
    server: NatsServer, proxy: FaultProxy, colour: Colour
) -> None:
    async def work() -> None:
        store = await colour.open(proxy.through(server.fresh_url()), "default", None)
        await lost_group_answers(store, lambda: proxy.cut_before_reply(b"HPUB"))
        await store.close()

    colour.run(work())
    assert proxy.counts.cuts >= 4  # a group that is as wanted is only looked at


def test_a_lost_answer_about_nothing_is_told_rightly(
    server: NatsServer, proxy: FaultProxy, colour: Colour
) -> None:
    async def work() -> None:
        store = await colour.open(proxy.through(server.fresh_url()), "default", None)
        await lost_answers_about_nothing(store, lambda: proxy.cut_before_reply(b"PUB"))
        await store.close()

    colour.run(work())
    assert proxy.counts.cuts == 4


def test_a_repeat_ends_nothing_that_came_after_its_first_try(
    server: NatsServer, colour: Colour
) -> None:
    meanwhile = Meanwhile(bool)
    url = server.fresh_url()

    async def work(proxy: FaultProxy, other: Store) -> None:
        store = await colour.open(proxy.through(url), "default", None)
        await lost_answers_before_another(
            store, other, meanwhile, lambda: proxy.cut_before_reply(COMMIT)
        )
        await store.close()

    with (
        FaultProxy(ADDRESS, server.port, answered=meanwhile) as proxy,
        holdfast.open(url) as other,
    ):
        colour.run(work(proxy, other))
        assert proxy.counts.cuts == 3


class LateProxy(FaultProxy):
    """One that lets somebody else work before it cuts a connection."""

    work: Callable[[], object] | None = None

    def _cut(self, link: Link) -> bool:
        if self.work is not None:
            work, self.work = self.work, None
            thread = threading.Thread(target=work)  # not the proxy's, which has a loop
            thread.start()
            thread.join()
        return super()._cut(link)


def test_a_lost_request_to_delete_a_group_is_repeated_while_it_is_the_same_one(
    server: NatsServer,
) -> None:
    url = server.fresh_url()
    with LateProxy(ADDRESS, server.port, answered=bool) as proxy, holdfast.open(url) as other:
        with holdfast.open(proxy.through(url)) as store:
            store.transport.create_group("g", "a")
            store.transport.publish("a", 1)
            proxy.work = lambda: other.transport.fetch("g")  # which writes the group's entry
            proxy.cut_before_server(CONDITION)
            assert store.transport.delete_group("g") is True
            assert store.transport.list_groups() == []
        assert proxy.work is None
        assert proxy.counts.cuts == 1


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_doubles_none_of_many(
    store: Store, proxy: FaultProxy, *, arrives: bool
) -> None:
    cut = proxy.cut_before_reply if arrives else proxy.cut_before_server
    store.transport.create_group("g", "a", ack_timeout=3600, max_deliveries=1)
    for number in range(MANY):
        store.transport.publish("a", number)
    with store.transport.consumer("g", prefetch=MANY) as consumer:
        cut(COMMIT)
        deliveries = consumer.next_batch(PATIENCE)
        assert [delivery.message.payload for delivery in deliveries] == list(range(MANY))
        assert consumer.next(timeout=0) is None
        assert consumer.ack_batch(deliveries) == MANY
    assert proxy.counts.cuts == 1
    assert store.transport.status("g").dead == 0


def test_a_consumer_that_dies_while_it_takes_a_message_leaves_it_to_others(
    server: NatsServer, proxy: FaultProxy
) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        transport = store.transport
        transport.create_group("g", "a", ack_timeout=30)
        for number in range(3):
            transport.publish("a", number)
        victim = holdfast.open(proxy.through(url), config=StoreConfig(call_timeout=1))
        proxy.black_hole_at(TAKE[1])
        with pytest.raises(holdfast.Timeout):
            victim.transport.fetch("g")
        proxy.cut()
        victim.close()
        status = transport.status("g")
        assert (status.waiting, status.delivered) == (2, 1)
        with transport.consumer("g", prefetch=2) as consumer:
            assert _rest(consumer) == [1, 2]
            run(store._backend.move_clock(31 * 1_000_000))  # noqa: SLF001 - for tests only
            delivery = consumer.next(timeout=0)
            assert delivery is not None
            assert (delivery.message.payload, delivery.number) == (0, 2)
            assert delivery.ack() is True
            assert consumer.next(timeout=0) is None
        status = transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (0, 0, 0)


def test_purge_keeps_what_a_group_waits_for_holds_or_gave_up(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        transport = store.namespace("x y").transport
        transport.create_group("held", "held")
        transport.create_group("dead", ["dead", "never.*"], max_deliveries=1)
        transport.create_group("waits", "waits")
        for subject in ("held", "nobody", "dead", "waits", "later"):
            for number in range(3):
                transport.publish(subject, number)
        with transport.consumer("held", prefetch=3) as held, transport.consumer("dead") as dead:
            delivery = held.next(timeout=0)
            while (poison := dead.next(timeout=0)) is not None:
                assert poison.nak() is True
            run(store._backend.move_clock(1000 * 1_000_000))  # noqa: SLF001 - for tests only
            assert transport.purge(older_than=2000) == 0
            assert transport.purge(older_than=500) == 3
            assert transport.purge(older_than=500) == 0
            assert delivery is not None
            assert delivery.ack() is True
            assert _rest(held) == [1, 2]
        letters = transport.dead_letters("dead")
        assert [letter.message.payload for letter in letters] == [0, 1, 2]
        with transport.consumer("waits") as waits:
            assert _rest(waits) == [0, 1, 2]
        assert transport.purge(older_than=500) == 9  # what was held, waited, and came later


words = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
patterns = st.tuples(
    st.lists(st.sampled_from("abc*"), min_size=1, max_size=4), st.sampled_from(["", ".>"])
).map(lambda made: ".".join(made[0]) + made[1])


@given(words, st.lists(patterns, min_size=1, max_size=4))
def test_a_cover_matches_what_one_of_its_patterns_does(subject: str, some: list[str]) -> None:
    if any(re.match(pattern_regex(pattern), subject) for pattern in some):
        assert re.match(pattern_regex(cover(some)), subject)


@pytest.mark.parametrize(
    ("some", "covered"),
    [
        (["a.b"], "a.b"),
        (["tasks.mail.queue", "tasks.print.queue"], "tasks.*.queue"),
        (["a.b", "a.b.c"], "a.>"),
        (["a.b.>", "a.c.d"], "a.*.>"),
        (["a", "b.c"], ">"),
    ],
)
def test_a_cover_is_narrow(some: list[str], covered: str) -> None:
    assert cover(some) == covered


def test_operations_are_known_as_long_as_they_say(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(server.fresh_url()) as store:
        operations_are_forgotten(store, monkeypatch)

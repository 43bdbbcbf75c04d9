"""Events on NATS: what is acknowledged stays, once, whatever is lost, cut or killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from uuid import uuid4

import pytest

import holdfast
from holdfast import AsyncStore, Event, FeedEvent
from holdfast.backends.nats import known_run
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsCluster, NatsServer
from holdfast.testing.proxy import FaultProxy
from tests.nats.event_runs import PATIENCE, ask, bucket_of, event, known, new

CUTS = int(os.environ.get("HOLDFAST_CUTS", "20"))
SEED = os.environ.get("HOLDFAST_SEED", "1")
WRITE = b"Nats-Expected-Last-Subject-Sequence"
WRITERS = 8


# Lost answers


def test_an_append_whose_answer_is_lost_gives_one_event(store: Store, proxy: FaultProxy) -> None:
    store.events.append_event(event("0"))
    for number in range(1, CUTS + 1):
        proxy.cut_before_reply(WRITE)
        assert store.events.append_event(event(f"{number}")) == new(number + 1)
        assert store.events.append_event(event(f"{number}")) == known(number + 1)
    assert proxy.counts.cuts == CUTS
    found = [one.idempotency_key for one in store.events.fetch_events("r")]
    assert found == [f"{number}" for number in range(CUTS + 1)]


def test_an_append_that_never_arrived_is_done_again(store: Store, proxy: FaultProxy) -> None:
    store.events.append_event(event("0"))
    for number in range(1, CUTS + 1):
        proxy.cut_before_server(WRITE)
        result = store.events.append_event(event(f"{number}"), expected_seq=number)
        assert result == new(number + 1)
    assert proxy.counts.cuts == CUTS


def test_a_lost_answer_about_several_events_tells_which_of_them_are_new(
    store: Store, proxy: FaultProxy
) -> None:
    event_id = str(uuid4())
    store.events.append_event(Event("r", "Noted", "0", event_id=event_id))
    proxy.cut_before_reply(WRITE)
    both = [Event("r", "Noted", "0", event_id=event_id), event("1"), event("1")]
    assert store.events.append_events(both) == [known(1), new(2), known(2)]
    assert proxy.counts.cuts == 1


def test_without_keys_the_truth_would_be_lost(
    store: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a store that does not know keys fails the tests above."""
    store.events.append_event(event("0"))
    monkeypatch.setattr(known_run, "digest", lambda _: uuid4().bytes)
    proxy.cut_before_reply(WRITE)
    with pytest.raises(holdfast.Conflict):
        store.events.append_event(event("1"))


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_cuts_anywhere_lose_and_double_nothing(
    store: Store, proxy: FaultProxy, direction: str
) -> None:
    chance = random.Random(f"{SEED} {direction}")
    done = 0
    for _ in range(CUTS):
        proxy.cut_after(**{direction: chance.randrange(1, 1500)})
        for _ in range(5):
            assert store.events.append_event(event(f"{done}")) == new(done + 1), f"seed {SEED}"
            assert store.events.append_event(event(f"{done}")) == known(done + 1), f"seed {SEED}"
            done += 1
    proxy.heal()
    found = [one.idempotency_key for one in store.events.fetch_events("r")]
    assert found == [f"{number}" for number in range(done)]
    assert proxy.counts.cuts > CUTS // 2


def test_an_append_that_nobody_answers_is_a_timeout_with_an_unknown_outcome(
    server: NatsServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url(call_timeout="0.5"))) as store:
        store.events.append_event(event("0"))
        proxy.black_hole_at(WRITE)
        with pytest.raises(holdfast.Timeout) as caught:
            store.events.append_event(event("1"))
        assert caught.value.outcome_unknown
        proxy.heal()
        proxy.cut()
        assert store.events.append_event(event("1")).run_seq == 2


# Servers that die (races of several processes are in tests/races/test_events.py)


class Load:
    """Writers that go on until they are told to stop, and what was acknowledged to them."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._stopped = False
        self._news = asyncio.Event()
        self.acknowledged: dict[tuple[str, str], int] = {}

    async def write(self, writer: int) -> None:
        run = f"r{writer % 2}"
        for step in itertools.count():
            if self._stopped:
                return
            key = f"{writer}.{step}"
            try:
                result = await self._store.events.append_event(event(key, run))
            except (holdfast.Unavailable, holdfast.Timeout):
                continue
            self.acknowledged[run, key] = result.run_seq
            self._news.set()

    async def more(self, count: int) -> None:
        """Return when so many more appends have been acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < wanted:
                self._news.clear()
                await self._news.wait()

    def stop(self) -> None:
        self._stopped = True

    async def check(self, store: AsyncStore) -> None:
        found: dict[tuple[str, str], int] = {}
        for run in ("r0", "r1"):
            last = 0
            while page := await store.events.fetch_events(run, after_seq=last):
                assert [one.run_seq for one in page] == list(range(last + 1, last + len(page) + 1))
                for one in page:
                    assert (run, one.idempotency_key) not in found
                    found[run, one.idempotency_key] = one.run_seq
                last = page[-1].run_seq
        lost = {key: seq for key, seq in self.acknowledged.items() if found.get(key) != seq}
        assert lost == {}


def test_kill_and_restart_of_the_server_lose_no_event() -> None:
    async def main() -> None:
        with NatsServer() as server:
            async with holdfast.open_async(server.fresh_url()) as store:
                load = Load(store)
                async with asyncio.TaskGroup() as group:
                    for writer in range(WRITERS):
                        group.create_task(load.write(writer))
                    for _ in range(3):
                        await load.more(200)
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                    await load.more(200)
                    load.stop()
                await load.check(store)
                # And the check does see what is missing.
                load.acknowledged["r0", "never"] = 1
                with pytest.raises(AssertionError):
                    await load.check(store)

    asyncio.run(main())


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with NatsCluster() as cluster:
        yield cluster


def test_three_replicas_are_read_as_they_were_written(cluster: NatsCluster) -> None:
    async def main() -> None:
        url = cluster.fresh_url(replicas="3")
        async with (
            holdfast.open_async(url) as store,
            holdfast.open_async(url) as other,
            other.events.feed() as feed,
        ):
            assert await feed.next(PATIENCE) is holdfast.CAUGHT_UP
            for number in range(1, 51):
                assert await store.events.append_event(event(f"{number}")) == new(number)
                assert await other.events.append_event(event(f"{number}")) == known(number)
                with pytest.raises(holdfast.Conflict):
                    await other.events.append_event(event("no"), expected_seq=number - 1)
                (found,) = await other.events.fetch_events("r", after_seq=number - 1)
                told = await feed.next(PATIENCE)
                assert isinstance(told, FeedEvent)
                assert told.event == found
                assert await other.events.list_runs() == ["r"]
                snapshot = await other.events.keep_snapshot("r")
                assert snapshot == await store.events.get_snapshot("r")
                async with store.events.feed() as again:
                    count = 0
                    while isinstance(await again.next(PATIENCE), FeedEvent):
                        count += 1
                assert count == number
            await store.events.delete_run("r", force=True)
            assert await other.events.fetch_events("r") == []
            assert await other.events.list_runs() == []
            assert await other.events.append_event(event("1")) == new(1)
            assert await store.events.append_event(event("1")) == known(1)

    asyncio.run(main())


def test_a_leader_killed_under_appends_loses_no_event(cluster: NatsCluster) -> None:
    async def main() -> None:
        url = cluster.fresh_url(replicas="3")
        async with holdfast.open_async(url) as store, holdfast.open_async(url) as other:
            loads = [Load(store), Load(other)]
            async with asyncio.TaskGroup() as group:
                for writer in range(WRITERS):
                    group.create_task(loads[0].write(writer))
                    group.create_task(loads[1].write(WRITERS + writer))
                await loads[0].more(50)
                info = await ask(cluster.nodes[0], f"STREAM.INFO.{bucket_of(url)}_events")
                leader = int(info["cluster"]["leader"].removeprefix("n"))
                await asyncio.to_thread(cluster.kill, leader)
                await loads[0].more(200)
                await asyncio.to_thread(cluster.start_node, leader)
                await loads[1].more(200)
                for load in loads:
                    load.stop()
            for load in loads:
                await load.check(other)
                await load.check(store)
            async with other.events.feed() as feed:
                told: dict[str, int] = {}
                while isinstance(one := await feed.next(PATIENCE), FeedEvent):
                    run = one.event.run_id
                    assert one.event.run_seq == told.get(run, 0) + 1
                    told[run] = one.event.run_seq
                assert one is holdfast.CAUGHT_UP
            assert sum(told.values()) >= sum(len(load.acknowledged) for load in loads)

    asyncio.run(main())

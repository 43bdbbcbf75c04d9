"""Events on NATS: what is acknowledged stays, once, whatever is lost, cut, killed or raced for."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
import nats
import pytest

import holdfast
from holdfast import AppendResult, AsyncStore, Event, FeedEvent
from holdfast.backends.nats import known_run
from holdfast.backends.nats.append_line import Line
from holdfast.backends.nats.runs import Runs
from holdfast.facets.events import LOG
from holdfast.facets.feed import Position, from_cursor, to_cursor
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsCluster, NatsServer
from holdfast.testing.proxy import FaultProxy

CUTS = int(os.environ.get("HOLDFAST_CUTS", "20"))
DUPLICATES = 10_000  # one by one; tests/races/test_duplicates.py appends many more, together
SEED = os.environ.get("HOLDFAST_SEED", "1")
WRITE = b"Nats-Expected-Last-Subject-Sequence"
WRITERS = 8
PATIENCE = 60.0


def event(key: str, run_id: str = "r", data: object = None) -> Event:
    return Event(run_id, "Noted", key, data)


def new(run_seq: int) -> AppendResult:
    return AppendResult(run_seq, idempotent=False, persisted=True)


def known(run_seq: int) -> AppendResult:
    return AppendResult(run_seq, idempotent=True, persisted=False)


async def ask(server: NatsServer, question: str, **asked: object) -> dict[str, Any]:
    client = await nats.connect(f"nats://{server.address}")
    try:
        answer = await client.request(f"$JS.API.{question}", msgspec.json.encode(asked))
    finally:
        await client.close()
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    assert "error" not in found, found
    return found


def bucket_of(url: str) -> str:
    return url.partition("bucket=")[2].partition("&")[0]


def messages(server: NatsServer, url: str) -> int:
    """How many messages the stream of events has."""
    found = asyncio.run(ask(server, f"STREAM.INFO.{bucket_of(url)}_events"))
    return int(found["state"]["messages"])


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


# Calls at the same time


def test_calls_that_wait_at_the_same_time_become_few_messages(server: NatsServer) -> None:
    url = server.fresh_url()

    async def main() -> None:
        async with holdfast.open_async(url) as store:
            results = await asyncio.gather(
                *(store.events.append_event(event(f"{number}")) for number in range(200))
            )
            assert results == [new(number + 1) for number in range(200)]

    asyncio.run(main())
    assert messages(server, url) < 10


def test_who_is_cancelled_takes_nobody_along(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = asyncio.Event()
    take = Line.take

    def tell(line: Line, room: int) -> Any:  # noqa: ANN401 - as it was
        taken.set()
        return take(line, room)

    async def main() -> None:
        async with holdfast.open_async(server.fresh_url()) as store:
            for number in range(20):
                before = [event(f"{number} {one}") for one in range(10)]
                taken.clear()
                tasks = [asyncio.create_task(store.events.append_event(one)) for one in before]
                await taken.wait()
                tasks[0].cancel()  # it is the one that works for the others
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert isinstance(results[0], asyncio.CancelledError)
                assert all(isinstance(one, AppendResult) for one in results[1:]), results
            found = await store.events.fetch_events("r")
            assert [one.run_seq for one in found] == list(range(1, len(found) + 1))
            keys = Counter(one.idempotency_key for one in found)
            wanted = {f"{number} {one}" for number in range(20) for one in range(1, 10)}
            assert wanted <= keys.keys()
            assert set(keys.values()) == {1}

    monkeypatch.setattr(Line, "take", tell)
    asyncio.run(main())


def test_a_call_larger_than_a_message_goes_in_as_a_whole() -> None:
    with (
        NatsServer({"max_payload": 64 * 1024}) as server,
        holdfast.open(server.fresh_url()) as store,
    ):
        many = [event(f"{number}", data="x" * 10_000) for number in range(20)]
        with pytest.raises(holdfast.Conflict):
            store.events.append_events(many, expected_seq=1)
        assert store.events.append_events(many) == [new(number + 1) for number in range(20)]
        assert store.events.append_events(many) == [known(number + 1) for number in range(20)]
        found = store.events.fetch_events("r")
        assert [one.run_seq for one in found] == list(range(1, 21))
        with pytest.raises(holdfast.InvalidArgument, match="claim check"):
            store.events.append_events([event("a"), event("b", data="x" * 70_000)])
        assert len(store.events.fetch_events("r")) == 20


def test_duplicates_change_nothing(server: NatsServer) -> None:
    url = server.fresh_url()

    async def main() -> None:
        async with holdfast.open_async(url) as store:
            await store.events.append_events([event(f"{number}") for number in range(100)])
            before = await store.events.fetch_events("r")

            async def repeat(first: int) -> int:
                numbers = range(first, DUPLICATES, 100)
                for number in numbers:
                    result = await store.events.append_event(event(f"{number % 97}"))
                    assert result == known(number % 97 + 1)
                return len(numbers)

            done = await asyncio.gather(*(repeat(first) for first in range(100)))
            assert sum(done) == DUPLICATES
            assert await store.events.fetch_events("r") == before

    asyncio.run(main())
    assert messages(server, url) == 1


# Pages


def test_a_run_is_read_from_every_number(server: NatsServer) -> None:
    """Also one that lies far apart in the stream, in messages of one event and of many."""
    url = server.fresh_url()
    numbers = itertools.count(1)
    with holdfast.open(url) as store:
        for size in (1, 300, 1, 1, 40, 400, *[1] * 250, 7):
            store.events.append_events([event(f"{next(numbers)}") for _ in range(size)])
            store.events.append_events([event(f"{size} {one}", "other") for one in range(3)])
        last = next(numbers) - 1
    for after in range(0, last, 53):
        with holdfast.open(url) as store:  # it knows nothing of where things are
            found = store.events.fetch_events("r", after_seq=after, limit=60)
            assert [one.run_seq for one in found] == list(
                range(after + 1, min(after + 60, last) + 1)
            )
    with holdfast.open(url) as store, store.events.feed() as feed:
        told = [one.event.run_seq for one in _replay(feed) if one.event.run_id == "r"]
        assert told == list(range(1, last + 1))


def test_the_feed_goes_on_in_the_middle_of_a_message(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.events.append_events([event(f"{number}") for number in range(10)])
        store.events.append_events([event(f"{number}", "s") for number in range(3)])
        with store.events.feed() as feed:
            told = list(_replay(feed))
        assert len(told) == 13
        for at, one in enumerate(told):
            with store.events.feed(after=one.cursor) as feed:
                assert [x.event for x in _replay(feed)] == [x.event for x in told[at + 1 :]]
        store.events.delete_run("r", force=True)
        with store.events.feed(after=told[3].cursor) as feed:
            # The message that it is in the middle of is gone, and none of the next is left out.
            assert [x.event for x in _replay(feed)] == [x.event for x in told[10:]]


def _replay(feed: Any) -> Iterator[FeedEvent]:  # noqa: ANN401 - of either colour's making
    while isinstance(one := feed.next(PATIENCE), FeedEvent):
        yield one
    assert one is holdfast.CAUGHT_UP


def test_a_cursor_of_a_stream_that_was_lost_is_refused(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.events.append_event(event("1"))
        with store.events.feed() as feed:
            (told,) = _replay(feed)
    assert told.cursor is not None
    position, _ = from_cursor(LOG, told.cursor)
    beyond = to_cursor(LOG, Position(position.epoch, position.xid + 1, 0))
    with (
        holdfast.open(url) as store,
        store.events.feed(after=beyond) as feed,
        pytest.raises(holdfast.InvalidArgument, match="above the end"),
    ):
        feed.next(PATIENCE)
    asyncio.run(ask(server, f"STREAM.DELETE.{bucket_of(url)}_events"))
    with (
        holdfast.open(url) as store,
        store.events.feed(after=told.cursor) as feed,
        pytest.raises(holdfast.InvalidArgument, match="cursor"),
    ):
        feed.next(PATIENCE)


# Whole runs


def test_a_run_is_out_of_sight_when_its_deletion_has_begun(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise holdfast.Unavailable("the one who deletes dies")

    url = server.fresh_url()
    with holdfast.open(url) as store, holdfast.open(url) as other:
        store.events.append_events([event(f"{number}") for number in range(5)])
        store.events.append_event(event("5"))
        other.events.append_event(event("0", "kept"))
        other.events.keep_snapshot("r")
        with monkeypatch.context() as patch:
            patch.setattr(Runs, "_clear", die)
            with pytest.raises(holdfast.Unavailable):
                store.events.delete_run("r", force=True)
        for one in (store, other):
            assert one.events.fetch_events("r") == []
            assert one.events.get_snapshot("r") is None
            assert one.events.list_runs() == ["kept"]
            assert one.events.list_runs(limit=1) == ["kept"]
        with pytest.raises(holdfast.NotFound):
            other.events.delete_run("r")
        assert messages(server, url) == 4
        # Whoever makes it anew removes what is left.
        assert other.events.append_event(event("0")) == new(1)
        assert store.events.append_event(event("0")) == known(1)
        assert messages(server, url) == 2
        with store.events.feed() as feed:
            told = [(one.event.run_id, one.event.run_seq) for one in _replay(feed)]
        assert told == [("kept", 1), ("r", 1)]


def test_a_run_made_anew_while_it_is_deleted_stays(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store, holdfast.open(url) as other:
        store.events.append_events([event(f"{number}") for number in range(5)])
        clear = Runs._clear  # noqa: SLF001 - to come between two of its steps

        async def meanwhile(runs: Runs, subject: str, end: int, limit: int) -> None:
            assert await asyncio.to_thread(other.events.append_event, event("3")) == new(1)
            assert await asyncio.to_thread(other.events.keep_snapshot, "r") is not None
            await clear(runs, subject, end, limit)

        monkeypatch.setattr(Runs, "_clear", meanwhile)
        store.events.delete_run("r", force=True)
        for one in (store, other):
            assert [found.idempotency_key for found in one.events.fetch_events("r")] == ["3"]
            assert one.events.append_event(event("3")) == known(1)
        assert messages(server, url) == 1
        snapshot = store.events.get_snapshot("r")
        assert snapshot is not None
        assert snapshot.last_event_seq == 1


def test_a_deleted_run_leaves_nothing(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.records.put("a", {"n": 1})  # so that the namespace is listed
        before = messages(server, url), state_messages(server, url)
        for _ in range(2):
            for number in range(0, 600, 5):
                store.events.append_event(event(f"{number}"))
            store.events.append_events([event(f"{number}") for number in range(700)])
            store.events.keep_snapshot("r")
            store.events.delete_run("r", force=True)
        assert (messages(server, url), state_messages(server, url)) == before


def state_messages(server: NatsServer, url: str) -> int:
    found = asyncio.run(ask(server, f"STREAM.INFO.{bucket_of(url)}_state"))
    return int(found["state"]["messages"])


def test_an_older_stream_takes_views_too(server: NatsServer) -> None:
    url = server.fresh_url()
    bucket = bucket_of(url)
    with holdfast.open(url) as store:
        store.records.put("a", {"n": 1})
    config = asyncio.run(ask(server, f"STREAM.INFO.{bucket}_state"))["config"]
    config["subjects"].remove(f"{bucket}.views.>")
    asyncio.run(ask(server, f"STREAM.UPDATE.{bucket}_state", **config))
    with pytest.raises(holdfast.InvalidState, match="migrate=False"):
        holdfast.open(url, config=holdfast.StoreConfig(migrate=False))
    with holdfast.open(url) as store:
        store.events.append_event(event("1"))
        assert store.events.keep_snapshot("r") is not None
        assert store.records.get_field("a", "n") == b"1"


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

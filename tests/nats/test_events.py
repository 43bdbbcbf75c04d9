"""Events on NATS: many calls at a time, pages, cursors, whole runs, replicas that are behind."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast import AppendResult
from holdfast.backends.nats.append_line import Line
from holdfast.backends.nats.entries import Entry
from holdfast.backends.nats.runs import Runs
from holdfast.backends.nats.stream import Stream
from holdfast.facets.events import LOG
from holdfast.facets.feed import Position, from_cursor, to_cursor
from holdfast.testing.nats import NatsServer
from tests.nats.event_runs import (
    PATIENCE,
    ask,
    bucket_of,
    event,
    known,
    messages,
    new,
    replay,
    state_messages,
)

DUPLICATES = 10_000  # one by one; tests/races/test_duplicates.py appends many more, together


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


@pytest.mark.parametrize("count", [1, 15, 16, 255, 256, 1000])
def test_the_end_of_a_run_is_known_whatever_its_last_message_holds(
    server: NatsServer, count: int
) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.events.append_events([event("first")])
        store.events.append_events([event(f"{number}") for number in range(count)])
        snapshot = store.events.get_snapshot("r")
        assert snapshot is not None
        assert snapshot.last_event_seq == 1 + count
        assert store.events.append_event(event("last"), expected_seq=1 + count) == new(2 + count)


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
        told = [one.event.run_seq for one in replay(feed) if one.event.run_id == "r"]
        assert told == list(range(1, last + 1))


def test_the_feed_goes_on_in_the_middle_of_a_message(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.events.append_events([event(f"{number}") for number in range(10)])
        store.events.append_events([event(f"{number}", "s") for number in range(3)])
        with store.events.feed() as feed:
            told = list(replay(feed))
        assert len(told) == 13
        for at, one in enumerate(told):
            with store.events.feed(after=one.cursor) as feed:
                assert [x.event for x in replay(feed)] == [x.event for x in told[at + 1 :]]
        store.events.delete_run("r", force=True)
        with store.events.feed(after=told[3].cursor) as feed:
            # The message that it is in the middle of is gone, and none of the next is left out.
            assert [x.event for x in replay(feed)] == [x.event for x in told[10:]]


def test_a_cursor_of_a_stream_that_was_lost_is_refused(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.events.append_event(event("1"))
        with store.events.feed() as feed:
            (told,) = replay(feed)
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
            told = [(one.event.run_id, one.event.run_seq) for one in replay(feed)]
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


# Replicas that are behind


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other page of the log is from a replica that has half of it."""
    log = Stream.log
    numbers = itertools.count()

    async def half(
        stream: Stream, matching: str, after: int, limit: int, deadline: float
    ) -> tuple[list[Entry], int]:
        entries, left = await log(stream, matching, after, limit, deadline)
        return (entries, left) if next(numbers) % 2 else (entries[: len(entries) // 2], 0)

    monkeypatch.setattr(Stream, "log", half)


@pytest.mark.usefixtures("behind")
def test_what_a_replica_does_not_have_yet_is_waited_for(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        for number in range(20):
            store.events.append_event(event(f"{number}"))
    for number in range(0, 20, 3):
        with holdfast.open(url) as store:
            assert store.events.append_event(event(f"{number}")) == known(number + 1)
            found = store.events.fetch_events("r", after_seq=number)
            assert [one.run_seq for one in found] == list(range(number + 1, 21))


@pytest.mark.usefixtures("behind")
def test_what_a_replica_does_not_have_yet_is_deleted_too(server: NatsServer) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        for number in range(20):
            store.events.append_event(event(f"{number}"))
        store.events.delete_run("r", force=True)
        assert store.events.list_runs() == []
    assert messages(server, url) == 0

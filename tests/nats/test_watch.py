"""Watches on NATS: cursors of other streams and of long ago, consumers that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import nats
import pytest

import holdfast
from holdfast.backends.nats import watch as watching
from holdfast.backends.nats.db import NatsDb
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsServer
from holdfast.testing.ports import ADDRESS
from holdfast.testing.proxy import FaultProxy

PATIENCE = 30.0


async def _ask(server: NatsServer, question: str) -> dict[str, Any]:
    async def quiet(exc: Exception) -> None:
        del exc

    client = await nats.connect(f"nats://{server.address}", error_cb=quiet)
    try:
        answer = await client.request(f"$JS.API.{question}", timeout=PATIENCE)
    finally:
        await client.close()
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    return found


def consumers(server: NatsServer, bucket: str) -> list[str]:
    found = asyncio.run(_ask(server, f"CONSUMER.NAMES.{bucket}_state"))
    return list(found["consumers"] or [])


def cursor_now(store: Store) -> str:
    with store.records.watch() as watch:
        while watch.next(PATIENCE) is not holdfast.CAUGHT_UP:
            pass
        assert watch.cursor is not None
        return watch.cursor


def test_a_cursor_of_another_stream_is_refused(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as one, holdfast.open(server.fresh_url()) as other:
        one.records.put("a", {"x": 1})
        other.records.put("a", {"x": 1})
        with (
            other.records.watch(after=cursor_now(one)) as watch,
            pytest.raises(holdfast.InvalidArgument, match="epoch"),
        ):
            watch.next(PATIENCE)


def test_a_cursor_from_before_what_is_kept_is_refused(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.records.put("a", {"x": 1})
        cursor = cursor_now(store)
        store.records.delete("a")
        store.records.put("b", {"x": 1})
        with store.records.watch(after=cursor) as watch:
            first = watch.next(PATIENCE)
            assert isinstance(first, holdfast.RecordChange)
            assert (first.key, first.record) == ("a", None)
        monkeypatch.setattr(watching, "OP_MEMORY_US", 0)
        with (
            store.records.watch(after=cursor) as watch,
            pytest.raises(holdfast.InvalidArgument, match="no longer kept"),
        ):
            watch.next(PATIENCE)
        with store.records.watch(after=cursor_now(store)) as watch:  # nothing was lost since
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP


def test_watches_share_one_consumer_and_it_goes_with_the_last(server: NatsServer) -> None:
    url = server.fresh_url()
    bucket = url.rpartition("=")[2]
    with holdfast.open(url) as store:
        assert consumers(server, bucket) == []
        watches = [store.records.watch() for _ in range(3)]
        for watch in watches:
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
        store.records.put("a", {"x": 1})
        for watch in watches:
            assert isinstance(watch.next(PATIENCE), holdfast.RecordChange)
        assert len(consumers(server, bucket)) == 1
        watches.clear()
        del watch
        keeper = keeping(store)
        asyncio.run_coroutine_threadsafe(asyncio.wait([keeper]), keeper.get_loop()).result(PATIENCE)
        assert consumers(server, bucket) == []
        with store.records.watch() as watch:  # and comes again
            watch.next(PATIENCE)
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
            store.records.put("a", {"x": 2})
            assert isinstance(watch.next(PATIENCE), holdfast.RecordChange)


def keeping(store: Store) -> asyncio.Task[None]:
    db = getattr(store._backend, "_db")  # noqa: B009, SLF001 - its task ends when nobody listens
    assert isinstance(db, NatsDb)
    (task,) = db._tasks  # noqa: SLF001
    return task


def test_a_consumer_that_the_server_lost_is_made_again(server: NatsServer) -> None:
    url = server.fresh_url()
    bucket = url.rpartition("=")[2]
    with holdfast.open(url) as store, store.records.watch() as watch:
        assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
        store.records.put("a", {"x": 1})
        assert isinstance(watch.next(PATIENCE), holdfast.RecordChange)
        (name,) = consumers(server, bucket)
        asyncio.run(_ask(server, f"CONSUMER.DELETE.{bucket}_state.{name}"))
        for _ in range(100):
            assert watch.next(0.3) is None
            if consumers(server, bucket) == [name]:
                break
        else:
            pytest.fail("there is no consumer again")
        store.records.put("a", {"x": 2})
        assert isinstance(watch.next(PATIENCE), holdfast.RecordChange)


def test_a_clock_that_was_moved_during_an_outage_is_seen_after_it(server: NatsServer) -> None:
    url = server.fresh_url()
    with (
        FaultProxy(ADDRESS, server.port, answered=bool) as proxy,
        holdfast.open(proxy.through(url)) as store,
        holdfast.open(url) as other,
    ):
        store.records.put("a", {"x": 1}, ttl=100)
        proxy.refuse()
        proxy.cut()
        asyncio.run(moved(url))
        assert other.records.get("a") is None
        proxy.heal()
        assert store.records.get("a") is None


async def moved(url: str) -> None:
    async with holdfast.open_async(url) as store:
        await store._backend.move_clock(101_000_000)  # noqa: SLF001 - for tests only


def test_cancelled_callers_leave_the_store_in_order(server: NatsServer) -> None:
    async def main() -> None:
        async with holdfast.open_async(server.fresh_url()) as store:
            for turns in range(60):
                calls = [
                    asyncio.create_task(store.records.set_field("a", f"f{number}", turns))
                    for number in range(4)
                ]
                for _ in range(turns):
                    await asyncio.sleep(0)
                calls[turns % 4].cancel()
                done = await asyncio.gather(*calls, return_exceptions=True)
                errors = [one for one in done if isinstance(one, BaseException)]
                assert all(isinstance(one, asyncio.CancelledError) for one in errors)
                found = await store.records.get("a")
                assert found is not None
                others = {f"f{number}": b"%d" % turns for number in range(4)}
                others.pop(f"f{turns % 4}")
                assert others.items() <= found.fields.items()

    asyncio.run(main())

"""Hints to watchers elsewhere: not sent while nobody hears them, and nobody misses them."""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast.backends.redis.hints import MOMENT, Hints
from holdfast.backends.redis.watch import _LONG, Subscriber
from holdfast.runtime.blocking import BlockingRuntime
from holdfast.runtime.hub import Listener
from holdfast.testing.valkey import ValkeyServer

PATIENCE = 5.0
assert PATIENCE < _LONG, "else a watcher looks by itself, whoever wakes it or not"

TOPIC = ("records", "default")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def _told() -> Hints:
    told = Hints(lambda topic: (topic[0].encode(),))
    told.counted = True
    return told


def test_a_hint_that_reached_nobody_is_the_last_for_a_moment() -> None:
    told = _told()
    assert told.about([TOPIC], 100.0) == [(b"records",)]
    assert told.about([TOPIC], 100.0) == [(b"records",)], "nobody has said yet that nobody hears"
    told.reached(0, 100.0)  # it counts when it was sent, however late the answer comes
    assert told.about([TOPIC], 100.0 + MOMENT / 2) == ()
    assert told.about([TOPIC], 100.0 + MOMENT) == [(b"records",)]
    told.reached(1, 100.0 + MOMENT)
    assert told.about([TOPIC], 100.0 + MOMENT) == [(b"records",)]


def test_a_late_nobody_does_not_overrule_a_later_somebody() -> None:
    told = _told()
    told.reached(1, 101.0)
    told.reached(0, 100.99)
    assert told.about([TOPIC], 101.0) == [(b"records",)]
    told.reached(0, 101.01)
    assert told.about([TOPIC], 101.02) == ()
    told.reached(1, 101.0)
    assert told.about([TOPIC], 101.02) == [(b"records",)]


def test_where_not_all_are_counted_every_hint_is_sent() -> None:
    told = _told()
    told.counted = False
    told.reached(0, 100.0)
    assert told.about([TOPIC], 100.0) == [(b"records",)]


def test_a_store_asks_the_server_whether_anybody_hears(server: ValkeyServer) -> None:
    prefix = "asks"
    with (
        contextlib.closing(server.client()) as client,
        client.pubsub() as somebody,
        holdfast.open(server.url(prefix=prefix)) as writer,
    ):
        told = _hints(writer)
        for number in range(2):  # the first may have to bring the script
            writer.records.put("a", {"x": number})
        assert told._quiet_until > 0  # noqa: SLF001
        told._quiet_until = 0.0  # noqa: SLF001 - the moment is over
        somebody.subscribe(f"{prefix}:changes")
        assert somebody.get_message(timeout=PATIENCE)["type"] == "subscribe"
        writer.records.put("a", {"x": 2})
        writer.records.put("a", {"x": 3})
        assert told._quiet_until == 0.0  # noqa: SLF001
        for _ in range(2):
            assert somebody.get_message(timeout=PATIENCE)["type"] == "message"


def test_who_begins_to_listen_unnoticed_looks_again(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of what is written while it waits, though nobody says so."""
    waits: queue.SimpleQueue[None] = queue.SimpleQueue()
    wait = Listener.wait

    async def noted(listener: Listener, seconds: float) -> None:
        backend: Any = reader._backend  # noqa: SLF001
        if backend._db.subscriber._subscribed:  # noqa: SLF001
            waits.put(None)
        await wait(listener, seconds)

    monkeypatch.setattr(Listener, "wait", noted)
    url = server.url(prefix="unnoticed")
    with (
        holdfast.open(url) as writer,
        holdfast.open(url) as reader,
        reader.records.watch() as watch,
        ThreadPoolExecutor(1) as other,
    ):
        _hints(writer)._quiet_until = math.inf  # noqa: SLF001 - it never asks again
        assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
        told = other.submit(watch.next, 10 * PATIENCE)
        for _ in range(2):  # the first may end at once: it has just been told to look
            waits.get(timeout=PATIENCE)
        writer.records.put("a", {"x": 1})
        change = told.result(timeout=PATIENCE)
        assert isinstance(change, holdfast.RecordChange)
        assert change.record == holdfast.Record({"x": b"1"})


def test_a_server_with_replicas_is_sent_every_hint(server: ValkeyServer) -> None:
    """It does not count who listens there, and after a failover that may be anybody."""
    with (
        contextlib.closing(server.client()) as client,
        holdfast.open(server.url(prefix="alone")) as alone,
        ValkeyServer(replica_of=server),
    ):
        assert _hints(alone).counted
        deadline = time.monotonic() + PATIENCE
        while not client.role()[2]:
            assert time.monotonic() < deadline, "the replica does not come"
            time.sleep(0.01)
        with holdfast.open(server.url(prefix="copied")) as store:
            for number in range(3):
                store.records.put("a", {"x": number})
            assert not _hints(store).counted
            assert _hints(store)._quiet_until == 0.0  # noqa: SLF001
        alone.records.put("a", {"x": 1})  # the first in its namespace looks too
        assert not _hints(alone).counted


def test_a_cluster_is_sent_every_hint() -> None:
    with (
        ValkeyServer(cluster=True) as node,
        holdfast.open(node.url()) as store,
    ):
        for number in range(3):
            store.records.put("a", {"x": number})
        assert not _hints(store).counted


def test_who_has_subscribed_looks_again_after_the_servers_answer() -> None:
    subscriber = Subscriber(lambda: None, BlockingRuntime(), b"c", lambda _: TOPIC, 0.25)
    before = time.monotonic()
    subscriber._hear([b"subscribe", b"c", b"1"])  # noqa: SLF001
    first, second = subscriber._again  # noqa: SLF001
    assert before + MOMENT < first < second


def _hints(store: holdfast.Store) -> Hints:
    backend: Any = store._backend  # noqa: SLF001
    found: Hints = backend._db._frame.hints  # noqa: SLF001
    return found

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
from holdfast.backends.redis.watch import _LONG, Subscriber, _is_primary
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


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_a_hint_that_reached_nobody_is_the_last_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    told = Hints(lambda topic: (topic[0].encode(),), counted=True)
    assert told.about([TOPIC]) == [(b"records",)]
    assert told.about([TOPIC]) == [(b"records",)], "nobody has said yet that nobody hears"
    clock.now += MOMENT / 2
    told.reached(0)
    assert told.about([TOPIC]) == ()
    clock.now += MOMENT / 2  # since it was sent, not since the answer came
    assert told.about([TOPIC]) == [(b"records",)]
    told.reached(1)
    assert told.about([TOPIC]) == [(b"records",)]


def test_in_a_cluster_every_hint_is_sent() -> None:
    told = Hints(lambda topic: (topic[0].encode(),), counted=False)
    for _ in range(3):
        assert told.about([TOPIC]) == [(b"records",)]
        told.reached(0)


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


def test_who_listens_on_a_replica_looks_by_itself(server: ValkeyServer) -> None:
    """The primary does not count it, so nobody who writes would notice."""
    with ValkeyServer(replica_of=server) as replica:
        for place, primary in ((server, True), (replica, False)):
            with contextlib.closing(place.client()) as client:
                connection = client.connection_pool.get_connection()
                assert _is_primary(connection) is primary
    subscriber = Subscriber(
        lambda: None, BlockingRuntime(), b"c", lambda _: TOPIC, 0.25, cluster=False
    )
    subscriber._hear([b"subscribe", b"c", b"1"], noticed=False)  # noqa: SLF001
    assert subscriber._patience() == 0.25  # noqa: SLF001
    subscriber._hear([b"subscribe", b"c", b"1"], noticed=True)  # noqa: SLF001
    assert subscriber._patience() == _LONG  # noqa: SLF001


def _hints(store: holdfast.Store) -> Hints:
    backend: Any = store._backend  # noqa: SLF001
    found: Hints = backend._db._frame.hints  # noqa: SLF001
    return found

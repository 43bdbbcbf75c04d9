"""Consumers and servers killed with SIGKILL: every message is delivered, none is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Store
from holdfast.runtime.blocking import run
from holdfast.testing.valkey import ValkeyServer

CONSUMER = Path(__file__).with_name("consuming.py")
PATIENCE = 30.0
ACK_TIMEOUT = 3600


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def _drain(store: Store) -> Counter[str]:
    """How often each message comes until none does, all acknowledged."""
    found: Counter[str] = Counter()
    while (delivery := store.transport.fetch("g")) is not None:
        found[delivery.message.message_id] += 1
        assert delivery.ack()
    return found


# Consumers


def _consume_until_killed(url: str, lines: int) -> dict[str, set[str]]:
    """The ids that a consumer named before it was killed, by what it said of them."""
    said: dict[str, set[str]] = {"holds": set(), "answers": set(), "done": set(), "late": set()}
    with subprocess.Popen(
        [sys.executable, str(CONSUMER), url, "7"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            what, message_id = line.split()
            said[what].add(message_id)
            if number == lines:
                process.kill()
    assert process.returncode < 0, "void: the consumer ended by itself"
    return said


def test_what_killed_consumers_held_goes_to_others(server: ValkeyServer) -> None:
    rng = random.Random(4)
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.transport.create_group("g", "work", ack_timeout=ACK_TIMEOUT, max_deliveries=100)
        published = {store.transport.publish("work", number) for number in range(200)}
        done: set[str] = set()
        unsure: set[str] = set()
        for _ in range(3):
            said = _consume_until_killed(url, rng.randrange(20, 100))
            assert said["late"] == set()
            assert said["holds"].isdisjoint(done), "a message came again that was done"
            done |= said["done"]
            unsure |= said["answers"] - said["done"]
            held = store.transport.status("g").delivered
            assert held > 0, "void: it held nothing"
            run(store._backend.move_clock((ACK_TIMEOUT + 1) * 1_000_000))  # noqa: SLF001
        assert len(done) > 20
        rest = _drain(store)
        assert set(rest) | done | unsure == published
        assert done.isdisjoint(rest)
        assert set(rest.values()) == {1}
        assert len(unsure) <= 3  # an answer each that was on its way


# Servers


class _Publishers:
    """Four threads that publish, and what was acknowledged of it."""

    def __init__(self, server: ValkeyServer) -> None:
        self.server = server
        self.url = server.fresh_url(durability="standard")
        self.tried: set[str] = set()
        self.acknowledged: set[str] = set()
        self._guard = threading.Lock()

    def publish_until_killed(self, run_name: str, more: int) -> None:
        enough = threading.Semaphore(0)
        threads = [
            threading.Thread(target=self._publish, args=(f"{run_name}.{number}", more, enough))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert enough.acquire(timeout=PATIENCE), "a publisher did not get as far as it should"
        self.server.kill()
        for thread in threads:
            thread.join()
        self.server.start()

    def _publish(self, name: str, more: int, enough: threading.Semaphore) -> None:
        with holdfast.open(self.url) as store:
            for number in range(1_000_000):
                message_id = f"{name}.{number}"
                with self._guard:
                    self.tried.add(message_id)
                try:
                    store.transport.publish("work", number, message_id=message_id)
                except holdfast.StoreError:
                    return
                with self._guard:
                    self.acknowledged.add(message_id)
                if number == more:
                    enough.release()


def test_killing_the_server_loses_no_acknowledged_message(server: ValkeyServer) -> None:
    publishers = _Publishers(server)
    with holdfast.open(publishers.url) as store:
        store.transport.create_group("g", "work", ack_timeout=ACK_TIMEOUT)
    for number in range(4):
        publishers.publish_until_killed(str(number), more=20)
    with holdfast.open(publishers.url) as store:
        delivered = _drain(store)
    assert publishers.acknowledged <= set(delivered) <= publishers.tried
    assert set(delivered.values()) == {1}


def test_without_a_log_the_same_kill_loses_messages() -> None:
    with ValkeyServer({"appendonly": "no"}) as server:
        publishers = _Publishers(server)
        publishers.publish_until_killed("0", more=20)
        with holdfast.open(publishers.url) as store:
            store.transport.create_group("g", "work", from_start=True)
            assert not publishers.acknowledged <= set(_drain(store))


def test_what_was_answered_before_the_server_was_killed_stays_answered(
    server: ValkeyServer,
) -> None:
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.transport.create_group("g", "work", ack_timeout=ACK_TIMEOUT)
        published = [store.transport.publish("work", number) for number in range(30)]
        deliveries = [store.transport.fetch("g") for _ in range(20)]
        for delivery in deliveries[:10]:
            assert delivery is not None
            assert delivery.ack()
        for delivery in deliveries[10:15]:
            assert delivery is not None
            assert delivery.nak()
        server.kill()
        server.start()
        given_back, new = published[10:15], published[20:]
        assert list(_drain(store)) == [*given_back, *new]
        held = deliveries[15:]
        assert all(delivery is not None and delivery.ack() for delivery in held)
        assert store.transport.status("g").delivered == 0

"""A node of a cluster dies or hangs, and its replica takes over: no acknowledged write is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from redis.crc import key_slot

import holdfast
from holdfast.testing.freezing import freeze
from holdfast.testing.valkey import NO_SLOTS, ValkeyServer
from holdfast.testing.world import BlockingColour, Colour
from tests.redis.counting import MORE, PATIENCE, Counting

# Time enough for a slow machine, little enough for a test.
SETTINGS = {"cluster-node-timeout": "1500", "appendfsync": "no"}
NAMESPACE = next(f"n{n}" for n in range(100) if key_slot(f"x:{{n{n}}}".encode()) < 5000)


class Shard(NamedTuple):
    """The node that has the namespace, and its replica."""

    primary: ValkeyServer
    replica: ValkeyServer


@pytest.fixture(scope="module")
def shard() -> Iterator[Shard]:
    with (
        ValkeyServer(SETTINGS, cluster=True, slots=range(5000)) as primary,
        ValkeyServer(SETTINGS, cluster=True, slots=range(5000, 10000)) as second,
        ValkeyServer(SETTINGS, cluster=True, slots=range(10000, 16384)) as third,
        ValkeyServer(SETTINGS, cluster=True, slots=NO_SLOTS) as replica,
    ):
        primary.meet(second, third, replica)
        replica.replicate(primary)
        yield Shard(primary, replica)


def test_a_replica_takes_over_and_nothing_acknowledged_is_lost(
    shard: Shard, colour: Colour
) -> None:
    dying, heir = _roles(shard)
    counting = Counting()
    prefix = type(colour).__name__

    url = dying.url(prefix=prefix, wait_replicas="1", durability="standard", call_timeout="2")
    # To be killed is seen at once, to hang is not: each colour meets one of them.
    killed = isinstance(colour, BlockingColour)
    with counting.going_on(colour, url, NAMESPACE):
        counting.wait_for_more()
        assert counting.errors == []
        if killed:
            dying.kill()
        else:
            freeze(dying.pid)
        _until_primary(heir)
        # Without waiting for replicas there is nothing more to wait for.
        with holdfast.open(heir.url(prefix="other", durability="standard"), NAMESPACE) as other:
            assert other.cells.set("c", "works") >= 1
        counting.wait_for_error()  # of the dead one, or that the other has no replica
        # It comes back as the other's replica, which the writers wait for.
        if killed:
            dying.start()
        else:
            os.kill(dying.pid, signal.SIGCONT)
        counting.wait_for_more()
    assert _found(heir, prefix) == counting.acknowledged
    dying.await_copy()


def test_control_without_waiting_for_replicas_a_failover_loses_writes(shard: Shard) -> None:
    dying, heir = _roles(shard)
    acknowledged: dict[str, int] = {}
    with (
        holdfast.open(dying.url(prefix="control", durability="standard"), NAMESPACE) as store,
        contextlib.closing(dying.client()) as client,
    ):
        store.records.put("0", {"n": 1})
        freeze(heir.pid)
        try:
            client.execute_command("CLIENT KILL TYPE replica")  # nothing is on its way to it
            for number in range(MORE):
                store.records.put(str(number), {"n": 1})
                acknowledged[str(number)] = 1
        finally:
            dying.kill()
            os.kill(heir.pid, signal.SIGCONT)
        _until_primary(heir)
        assert store.cells.set("c", "works") == 1  # the store has found the new node
    assert len(_found(heir, "control")) < len(acknowledged)
    dying.start()
    dying.await_copy()


def _roles(shard: Shard) -> Shard:
    """Who is the primary now, and who the replica."""
    with contextlib.closing(shard.primary.client()) as client:
        same = client.info("replication")["role"] == "master"
    return shard if same else Shard(shard.replica, shard.primary)


def _until_primary(node: ValkeyServer) -> None:
    deadline = time.monotonic() + PATIENCE
    with contextlib.closing(node.client()) as client:
        while client.info("replication")["role"] != "master":
            assert time.monotonic() < deadline, "the replica was not promoted"
            time.sleep(0.02)
    node.await_cluster()


def _found(node: ValkeyServer, prefix: str) -> dict[str, int]:
    with holdfast.open(node.url(prefix=prefix, durability="standard"), NAMESPACE) as store:
        return {key: int(record.fields["n"]) for key, record in store.records.scan()}

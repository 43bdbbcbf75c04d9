"""Redis Cluster: a namespace is on one node, and a store finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

import holdfast
from holdfast import Capability, Record, ScanFilter
from holdfast.testing.valkey import ValkeyServer

PATIENCE = 20.0
NAMESPACES = [f"n{number}" for number in range(12)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    with (
        ValkeyServer(cluster=True, slots=range(8000)) as first,
        ValkeyServer(cluster=True, slots=range(8000, 16384)) as second,
    ):
        first.meet(second)
        yield first, second


def test_namespaces_are_spread_and_everything_works(
    nodes: tuple[ValkeyServer, ValkeyServer],
) -> None:
    first, second = nodes
    with holdfast.open(first.fresh_url()) as store:
        assert Capability.MOVABLE_CLOCK not in store.capabilities
        for name in NAMESPACES:
            records, cells = store.namespace(name).records, store.namespace(name).cells
            records.create_index("", "n")
            for number in range(5):
                records.put(f"k{number}", {"n": number}, ttl=1000)
            assert records.compare_and_swap("k1", "n", 1, 10)
            assert records.delete("k2")
            found = [key for key, _ in records.scan(filters=ScanFilter("n", "gt", 2))]
            assert found == ["k1", "k3", "k4"]
            assert cells.set_many({"a": 1, "b": 2}) == {"a": 1, "b": 1}
            assert cells.cas("a", 1, 3) == 2
            with records.watch("k1") as watch:
                change = watch.next(PATIENCE)
                assert isinstance(change, holdfast.RecordChange)
                assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
                records.set_field("k1", "x", 1)
                change = watch.next(PATIENCE)
                assert isinstance(change, holdfast.RecordChange)
        assert store.records.purge() == 0
    for node in (first, second):
        with contextlib.closing(node.client()) as client:
            assert any(b"{n" in key for key in client.keys("*"))


def test_many_callers_on_many_namespaces(nodes: tuple[ValkeyServer, ValkeyServer]) -> None:
    async def work() -> None:
        async with holdfast.open_async(nodes[1].fresh_url()) as store:

            async def write(name: str, number: int) -> None:
                await store.namespace(name).records.set_field("a", f"f{number}", number)

            await asyncio.gather(*(write(name, n) for name in NAMESPACES for n in range(10)))
            for name in NAMESPACES:
                found = await store.namespace(name).records.get("a")
                assert found is not None
                assert len(found.fields) == 10

    asyncio.run(work())


def test_messages_of_many_namespaces(nodes: tuple[ValkeyServer, ValkeyServer]) -> None:
    with holdfast.open(nodes[0].fresh_url()) as store:
        for name in NAMESPACES:
            transport = store.namespace(name).transport
            transport.create_group("g", "a.*", max_deliveries=1)
            for subject in ("a.b", "a.c", "b"):
                transport.publish(subject, name)
            with transport.consumer("g", prefetch=2) as consumer:
                done, dead = consumer.next(PATIENCE), consumer.next(PATIENCE)
                assert done is not None
                assert dead is not None
                assert (done.message.payload, done.ack()) == (name, True)
                assert (dead.message.payload, dead.nak()) == (name, True)
                assert consumer.next(0) is None
            (letter,) = transport.dead_letters("g")
            assert transport.drop_dead("g", letter.place)
        assert store.transport.purge(older_than=0) == 3 * len(NAMESPACES)


def test_an_outdated_map_is_read_anew(nodes: tuple[ValkeyServer, ValkeyServer]) -> None:
    with holdfast.open(nodes[0].fresh_url(pool_size="1")) as store:
        servers = store._backend._db._servers  # type: ignore[attr-defined]  # noqa: SLF001
        for name in NAMESPACES:
            servers._map = []  # noqa: SLF001 - as if everything were on the first node
            store.namespace(name).records.put("a", {"x": name})
            assert servers._map or key_slot(f"t:{{{name}}}".encode()) < 8000  # noqa: SLF001
            servers._map = []  # noqa: SLF001
            assert store.namespace(name).records.get("a") == Record({"x": name.encode()})
            servers._map = []  # noqa: SLF001
            assert [key for key, _ in store.namespace(name).records.scan()] == ["a"]


def test_a_pipeline_is_split_where_its_namespaces_went(
    nodes: tuple[ValkeyServer, ValkeyServer],
) -> None:
    async def work() -> None:
        async with holdfast.open_async(nodes[0].fresh_url()) as store:
            servers = store._backend._db._servers  # type: ignore[attr-defined]  # noqa: SLF001
            servers._map = []  # noqa: SLF001
            calls = [store.namespace(name).cells.set("x", n) for n, name in enumerate(NAMESPACES)]
            assert await asyncio.gather(*calls) == [1] * len(NAMESPACES)
            servers._map = []  # noqa: SLF001
            reads = [store.namespace(name).cells.get("x") for name in NAMESPACES]
            assert await asyncio.gather(*reads) == list(range(len(NAMESPACES)))

    asyncio.run(work())


def test_a_map_with_a_lost_node_is_read_anew(nodes: tuple[ValkeyServer, ValkeyServer]) -> None:
    with holdfast.open(nodes[0].fresh_url()) as store:
        servers = store._backend._db._servers  # type: ignore[attr-defined]  # noqa: SLF001
        whole = servers._map  # noqa: SLF001
        lost = [part._replace(address=("127.0.0.1", 1)) for part in whole]
        for name in NAMESPACES:
            servers._map = lost  # noqa: SLF001
            assert store.namespace(name).cells.set("x", 1) == 1
            servers._map = lost  # noqa: SLF001
            assert store.namespace(name).cells.get("x") == 1
            servers._map = lost  # noqa: SLF001
            assert store.namespace(name).cells.list() == ["x"]
        assert servers._map == whole  # noqa: SLF001


def test_a_slot_that_is_moving_is_unavailable_and_not_split(
    nodes: tuple[ValkeyServer, ValkeyServer],
) -> None:
    first, second = nodes
    name = next(name for name in NAMESPACES if key_slot(f"x:{{{name}}}".encode()) < 8000)
    slot = str(key_slot(f"x:{{{name}}}".encode()))
    with (
        holdfast.open(first.url(prefix="moving"), name) as store,
        contextlib.closing(first.client()) as source,
        contextlib.closing(second.client()) as target,
    ):
        store.records.put("a", {"x": 1})
        ids = [one.execute_command("CLUSTER MYID").decode() for one in (source, target)]
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        try:
            with pytest.raises(holdfast.Unavailable, match="being moved") as caught:
                store.records.set_field("a", "y", 1)
            assert not caught.value.outcome_unknown
            with pytest.raises(holdfast.Unavailable, match="being moved"):
                store.cells.set("c", 1)
            assert store.records.get("a") == Record({"x": b"1"})
        finally:
            source.execute_command("CLUSTER SETSLOT", slot, "STABLE")
            target.execute_command("CLUSTER SETSLOT", slot, "STABLE")
        store.records.set_field("a", "y", 1)
        assert store.records.get("a") == Record({"x": b"1", "y": b"1"})


def test_a_cluster_needs_its_scheme(nodes: tuple[ValkeyServer, ValkeyServer]) -> None:
    first, _ = nodes
    name = next(name for name in NAMESPACES if key_slot(f"x:{{{name}}}".encode()) >= 8000)
    with (
        holdfast.open(first.url().replace("redis+cluster", "redis"), name) as store,
        pytest.raises(holdfast.InvalidArgument, match=r"redis\+cluster"),
    ):
        store.cells.set("x", 1)

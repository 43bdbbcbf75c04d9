"""What is Redis's own: keys, scripts, passwords, memory, durability, replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Capability, StoreConfig
from holdfast.runtime.blocking import run
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Colour

PATIENCE = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    with contextlib.closing(server.client()) as client:
        yield client


def _until(condition: Any, what: str) -> None:  # noqa: ANN401 - a call
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


# Keys


def test_every_key_is_below_the_prefix(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    client.flushall()
    with holdfast.open(server.url(prefix="mine")) as store:
        store.records.create_index("", "x")
        store.records.put("a", {"x": 1}, ttl=100)
        store.records.delete("a")
        store.cells.set("b", 1)
        store.transport.create_group("g", ">")
        store.transport.publish("a", 1)
        assert store.transport.fetch("g") is not None
        store.namespace("a}b:c").records.put("d", {"x": 1})
        run(store._backend.move_clock(1))  # noqa: SLF001
    assert {key.split(b":")[0] for key in client.keys("*")} == {b"mine"}
    with holdfast.open(server.url(prefix="other")) as store:
        assert store.records.get("a") is None
        assert store.cells.list() == []


@pytest.mark.parametrize("namespace", ["a}:r:x", "}", "{", "a:b", "a%7Db", "ü{x}", "*"])
def test_namespaces_of_any_name_are_apart(server: ValkeyServer, namespace: str) -> None:
    with holdfast.open(server.fresh_url()) as store:
        strange = store.namespace(namespace)
        strange.records.put("k", {"x": 1})
        strange.cells.set("c", 1)
        strange.transport.create_group("g", ">")
        strange.transport.publish("a", 1)
        for other in ("a", "a}", "x", "default"):
            assert store.namespace(other).transport.list_groups() == []
            assert store.namespace(other).records.get("k") is None
            assert list(store.namespace(other).records.scan()) == []
            assert store.namespace(other).cells.list() == []
        with strange.records.watch() as watch:
            change = watch.next(PATIENCE)
            assert isinstance(change, holdfast.RecordChange)
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
        with strange.transport.consumer("g") as consumer:
            delivery = consumer.next(PATIENCE)
            assert delivery is not None
            assert delivery.ack()


def test_a_field_may_be_named_like_anything_of_ours(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        fields = {name: name for name in ("v", "p", "t", "i", "o", "\\0", "\x01")}
        store.records.put("a", fields)
        found = store.records.get("a")
        assert found is not None
        assert found.fields == {name: name.encode() for name in fields}


# Scripts


def test_scripts_are_loaded_again_after_a_flush(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.fresh_url()) as store:
        store.records.put("a", {"x": 1})
        client.script_flush()
        assert store.records.compare_and_swap("a", "x", 1, 2)
        client.script_flush()
        assert store.cells.set("c", 1) == 1
        client.script_flush()
        store.records.create_index("", "x")
        assert store.records.purge() == 0
        assert store.records.get_field("a", "x") == b"2"


def test_a_flush_of_scripts_among_many_callers(server: ValkeyServer) -> None:
    asyncio.run(_flush_among_many(server))


async def _flush_among_many(server: ValkeyServer) -> None:
    with contextlib.closing(server.client()) as client:
        async with holdfast.open_async(server.fresh_url()) as store:

            async def write(number: int) -> None:
                await store.records.set_field("a", f"f{number}", number)
                if number % 10 == 0:
                    client.script_flush()
                await store.cells.set(f"c{number}", number)

            await asyncio.gather(*(write(number) for number in range(50)))
            found = await store.records.get("a")
            assert found is not None
            assert len(found.fields) == 50
            assert len(await store.cells.list()) == 50


@pytest.mark.parametrize(("callers", "pipelines"), [(10, 1), (100, 2)])
def test_callers_share_round_trips(
    server: ValkeyServer,
    client: Any,  # noqa: ANN401 - redis-py's
    callers: int,
    pipelines: int,
) -> None:
    prefix = f"share{callers}"

    async def work() -> None:
        async with holdfast.open_async(server.url(prefix=prefix)) as store:
            await store.records.put("a", {"x": 0})
            client.config_resetstat()
            await asyncio.gather(*(store.records.get("a") for _ in range(callers)))
            await asyncio.gather(
                *(store.records.set_field("a", f"f{n}", n) for n in range(callers))
            )

    with client.pubsub() as somebody:
        somebody.subscribe(f"{prefix}:changes")
        assert somebody.get_message(timeout=PATIENCE)["type"] == "subscribe"
        asyncio.run(work())
    stats = client.info("commandstats")
    assert stats["cmdstat_hgetall"]["calls"] == callers
    assert stats["cmdstat_publish"]["calls"] == pipelines  # one for each with changes
    assert client.info("stats")["total_reads_processed"] < 20


# Refusals


@pytest.fixture(scope="module")
def locked() -> Iterator[ValkeyServer]:
    with ValkeyServer({"requirepass": "secret"}) as server:
        yield server


@pytest.mark.parametrize("user", ["", ":wrong@", "nobody:secret@"])
def test_wrong_credentials_are_unauthorized(locked: ValkeyServer, user: str) -> None:
    url = f"redis://{user}127.0.0.1:{locked.port}/0"
    with pytest.raises(holdfast.Unauthorized) as caught:
        holdfast.open(url)
    assert "secret" not in str(caught.value)

    async def work() -> None:
        with pytest.raises(holdfast.Unauthorized):
            await holdfast.open_async(url)

    asyncio.run(work())
    with holdfast.open(locked.url()) as store:
        assert store.cells.set("x", 1) >= 1


def test_what_a_user_may_not_do_is_unauthorized(
    locked: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(locked.client()) as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+time"
        )
        client.execute_command("ACL", "SETUSER", "reader", "+ping")
    with holdfast.open(f"redis://reader:pw@127.0.0.1:{locked.port}/0") as store:
        assert store.records.get("a") is None
        with pytest.raises(holdfast.Unauthorized, match="NOPERM"):
            store.records.put("a", {"x": 1})
    assert caplog.records == []  # CONFIG was refused: nothing is said


def test_bad_places_are_told_apart(server: ValkeyServer) -> None:
    place = f"redis://127.0.0.1:{server.port}"
    with pytest.raises(holdfast.NotFound, match="index is out of range"):
        holdfast.open(f"{place}/99")
    with pytest.raises(holdfast.InvalidArgument, match="number of a database"):
        holdfast.open(f"{place}/name")
    with pytest.raises(holdfast.InvalidArgument, match="unknown option 'foo'"):
        holdfast.open(f"{place}/0?foo=1")
    with pytest.raises(holdfast.InvalidArgument, match="socket_read_size"):
        holdfast.open(f"{place}/0?socket_read_size=many")
    with pytest.raises(holdfast.InvalidArgument, match="cluster"):
        holdfast.open(f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(holdfast.Unavailable, match=r"127\.0\.0\.1:1"):
        holdfast.open("redis://127.0.0.1:1/0")


def test_a_full_server_refuses_writes_and_says_so(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    url = server.fresh_url()
    with holdfast.open(url) as store:
        store.records.put("kept", {"x": 1})
        store.records.put("other", {"x": 1})
        store.records.put("large", {"x": b"x" * 100_000})
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(holdfast.Database, match="maxmemory") as caught:
                store.records.put("more", {"x": 1})
            assert not caught.value.outcome_unknown
            with pytest.raises(holdfast.Database, match="maxmemory"):
                store.cells.set("c", "x")
            assert store.records.get_field("kept", "x") == b"1"
            assert store.records.delete("large") is True
            with holdfast.open(url) as new:
                assert new.records.delete("other") is True
        finally:
            client.config_set("maxmemory", 0)
        store.records.put("more", {"x": 1})
        assert [key for key, _ in store.records.scan()] == ["kept", "more"]
        assert store.cells.list() == []


def test_a_replica_takes_no_writes() -> None:
    with (
        ValkeyServer() as primary,
        ValkeyServer(replica_of=primary) as replica,
        holdfast.open(replica.fresh_url()) as store,
    ):
        with pytest.raises(holdfast.Unavailable, match="READONLY"):
            store.cells.set("x", 1)
        assert store.cells.get("x") is None


def test_a_primary_that_became_a_replica_is_left(colour: Colour) -> None:
    """After a failover the store's address leads to another server: it must connect anew."""

    async def work(proxy: FaultProxy, url: str, client: Any) -> None:  # noqa: ANN401 - redis-py's
        store = await colour.open(proxy.through(url), "default", None)
        try:
            await store.records.put("a", {"x": 1})
            client.execute_command("REPLICAOF", "127.0.0.1", other.port)
            before = proxy.counts.connections
            for number in range(1, 3):
                with pytest.raises(holdfast.Unavailable, match="READONLY") as caught:
                    await store.records.put("a", {"x": 2})
                assert not caught.value.outcome_unknown
                assert proxy.counts.connections == before + number - 1
            client.execute_command("REPLICAOF", "NO", "ONE")
            await store.records.put("a", {"x": 3})
        finally:
            await store.close()

    with (
        ValkeyServer() as server,
        ValkeyServer() as other,
        FaultProxy("127.0.0.1", server.port) as proxy,
        contextlib.closing(server.client()) as client,
    ):
        colour.run(work(proxy, server.fresh_url(durability="standard"), client))


def test_something_else_under_our_keys_is_told(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.url(prefix="foreign")) as store:
        client.set("foreign:{default}:r:a", "not ours")
        with pytest.raises(holdfast.Database, match="prefix"):
            store.records.get("a")


# Durability


def _warnings(caplog: pytest.LogCaptureFixture, url: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="holdfast"), holdfast.open(url) as store:
        store.cells.set("x", 1)
        store.cells.set("x", 2)
    return [record.getMessage() for record in caplog.records]


def test_one_that_is_refused_harms_no_neighbour_in_its_script(
    server: ValkeyServer,
    client: Any,  # noqa: ANN401 - redis-py's
) -> None:
    async def work() -> list[object]:
        async with holdfast.open_async(server.url(prefix="joined")) as store:
            await store.records.put("gone", {"x": 1})
            client.set("joined:{default}:r:b", "not a hash")
            before = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
            answers: list[object] = await asyncio.gather(
                *(store.records.put(key, {"x": 1}) for key in "abc"),
                store.records.delete("gone"),
                store.records.compare_and_swap("a", "x", 1, b"\xff"),
                return_exceptions=True,
            )
            calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            assert calls == before + 1
            found = [key async for key, _ in store.records.scan()]
            assert found == ["a", "c"]
            assert await store.records.get_field("a", "x") == b"\xff"
            return answers

    first, refused, *others = asyncio.run(work())
    assert (first, others) == (None, [None, True, True])
    assert isinstance(refused, holdfast.Database)


def test_a_server_that_promises_less_is_warned_of_once(
    server: ValkeyServer, client: Any, caplog: pytest.LogCaptureFixture  # noqa: ANN401 - redis-py's
) -> None:  # fmt: skip
    assert _warnings(caplog, server.fresh_url()) == []
    client.config_set("appendfsync", "everysec")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        fsync, policy = _warnings(caplog, server.fresh_url())
        assert "appendfsync" in fsync
        assert "noeviction" in policy
        assert _warnings(caplog, server.fresh_url(durability="standard")) == []
    finally:
        client.config_set("appendfsync", "always")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_write_waits_for_its_replicas() -> None:
    with (
        ValkeyServer() as primary,
        ValkeyServer(replica_of=primary) as replica,
        contextlib.closing(primary.client()) as client,
        contextlib.closing(replica.client()) as copy,
    ):
        _until(lambda: copy.info("replication")["master_link_status"] == "up", "the replica")
        with holdfast.open(primary.fresh_url(wait_replicas="1", call_timeout="30")) as store:
            for number in range(20):
                store.records.set_field("a", "x", number)
                assert copy.hget("t1:{default}:r:a", "x") == b"%d" % number
        with holdfast.open(primary.fresh_url(wait_replicas="2", call_timeout="0.5")) as store:
            with pytest.raises(holdfast.Unavailable, match="1 of 2 replicas") as caught:
                store.cells.set("x", 1)
            assert caught.value.outcome_unknown
            assert store.cells.get("x") == 1
        assert client.dbsize() > 0


# Expiry


def test_the_server_frees_an_expired_record_by_itself(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    client.flushall()
    with holdfast.open(server.url(prefix="ttl")) as store:
        store.records.create_index("", "x")
        store.records.put("stays", {"x": 1})
        store.records.put("a", {"x": b"x" * 100_000}, ttl=0.05)
        record = "ttl:{default}:r:a"
        assert client.memory_usage(record) > 100_000
        _until(lambda: not client.exists(record), "the server to remove the record")
        assert store.records.get("a") is None
        assert [key for key, _ in store.records.scan()] == ["stays"]
        with store.records.watch() as watch:
            while watch.next(PATIENCE) is not holdfast.CAUGHT_UP:
                pass
            assert store.records.purge() == 1
            change = watch.next(PATIENCE)
            assert isinstance(change, holdfast.RecordChange)
            assert (change.key, change.record) == ("a", None)
        assert client.zrange("ttl:{default}:keys", 0, -1) == [b"stays"]
        assert client.hkeys("ttl:{default}:e:\0x") == [b"stays"]


def test_a_removed_record_can_be_written_again(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.url(prefix="again")) as store:
        store.records.put("a", {"x": 1}, ttl=0.05)
        _until(lambda: not client.exists("again:{default}:r:a"), "the server to remove it")
        store.records.put("a", {"y": 1})
        assert client.pttl("again:{default}:r:a") == -1
        assert client.zscore("again:{default}:due", "a") is None
        assert store.records.purge() == 0
        assert store.records.get("a") == holdfast.Record({"y": b"1"})


def test_a_removed_records_operation_is_not_known(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    op = uuid4()
    with holdfast.open(server.url(prefix="removed")) as store:
        store.records.put("a", {"x": 1}, ttl=0.05, op_id=op)
        _until(lambda: not client.exists("removed:{default}:r:a"), "the server to remove it")
        store.records.put("a", {"x": 1}, op_id=op)
        assert store.records.get("a") == holdfast.Record({"x": b"1"})


def test_a_deleted_record_leaves_nothing_after_a_day(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.url(prefix="grave")) as store:
        with store.records.watch() as watch:
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
            cursor = watch.cursor
        store.records.put("a", {"x": 1})
        store.records.delete("a")
        # A day after its last change, to the millisecond: rounded up, so never too soon.
        deleted_at = int(client.hget("grave:{default}:r:a", "\0")[16:].split(b";")[2])
        ends_at = deleted_at + 24 * 3600 * 1_000_000
        assert client.pexpiretime("grave:{default}:r:a") == -(-ends_at // 1000)
        assert store.records.purge() == 0
        run(store._backend.move_clock(25 * 3600 * 1_000_000))  # noqa: SLF001
        assert store.records.purge() == 1
        left = {key.decode() for key in client.keys("grave:*")}
        assert left == {
            "grave:clock", "grave:namespaces", "grave:{default}:log", "grave:{default}:lost",
        }  # fmt: skip
        with (
            store.records.watch(after=cursor) as watch,
            pytest.raises(holdfast.InvalidArgument, match="no longer kept"),
        ):
            watch.next(PATIENCE)


def test_a_record_in_place_of_an_old_grave_stays(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    with holdfast.open(server.url(prefix="rise")) as store:
        store.records.put("a", {"x": 1})
        store.records.delete("a")
        client.delete("rise:{default}:r:a")  # as the server does after a day
        store.records.put("a", {"x": 2})
        run(store._backend.move_clock(25 * 3600 * 1_000_000))  # noqa: SLF001
        store.records.purge()
        for number in range(20):
            store.records.put("other", {"x": number})
        assert store.records.get("a") == holdfast.Record({"x": b"2"})
        assert [key for key, _ in store.records.scan()] == ["a", "other"]


@pytest.mark.parametrize("deletes", ["never", "every other time"])
def test_writing_removes_what_is_due_by_and_by(
    server: ValkeyServer, client: Any, deletes: str  # noqa: ANN401 - redis-py's
) -> None:  # fmt: skip
    prefix = f"due-{deletes[0]}"
    with holdfast.open(server.url(prefix=prefix)) as store:
        for number in range(20):
            store.records.put(f"k{number}", {"x": 1}, ttl=1)
        run(store._backend.move_clock(2 * 1_000_000))  # noqa: SLF001
        for number in range(40):
            store.records.put("other", {"x": number})
            if deletes != "never":
                store.records.delete("other")
        assert set(client.zrange(f"{prefix}:{{default}}:keys", 0, -1)) <= {b"other"}
        assert store.records.purge() == 0


def test_a_namespace_remembers_four_thousand_operations(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    async def write() -> None:
        async with holdfast.open_async(server.url(prefix="ops")) as store:
            for _ in range(6):
                await asyncio.gather(*(store.records.put(f"k{n}", {"x": n}) for n in range(800)))

    asyncio.run(write())
    kept = client.hgetall("ops:{default}:log")
    assert kept.pop(b"n") == b"4800"
    assert len(kept) == 4000
    assert len(set(kept.values())) == 4000


def test_what_an_older_version_kept_is_read_and_written(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    """Its numbers had a key of their own, and fields were not counted."""
    base, op = "older:{default}", uuid4()
    client.sadd("older:namespaces", "default")
    client.set(f"{base}:number", 7)
    client.hset(
        f"{base}:r:a", mapping={"x": "1", "y": "2", "\0": op.bytes + b"1767225600000000:0:6"}
    )
    client.hset(f"{base}:r:b", mapping={"x": "1", "\0": uuid4().bytes + b"1767225600000000:1:7"})
    client.zadd(f"{base}:keys", {"a": 0})
    client.zadd(f"{base}:changes", {"a": 6, "b": 7})
    client.hset(f"{base}:indexes", "\0x", "complete")
    client.hset(f"{base}:e:\0x", "a", "\0n10000000000000000001\0a")
    client.zadd(f"{base}:x:\0x", {"\0n10000000000000000001\0a": 0})
    with holdfast.open(server.url(prefix="older")) as store:
        found = store.records.get("a")
        assert found == holdfast.Record({"x": b"1", "y": b"2"})
        assert store.records.get("b") is None
        with store.records.watch() as watch:
            assert watch.next(PATIENCE) == holdfast.RecordChange("a", found, True, "records:0.0.7")
            assert watch.next(PATIENCE) is holdfast.CAUGHT_UP
            store.records.put("a", {"x": 9}, op_id=op)  # its last write: known
            assert store.records.get("a") == found
            store.records.put("a", {"x": 2})  # and what else was there goes
            changed = watch.next(PATIENCE)
            assert isinstance(changed, holdfast.RecordChange)
            assert (changed.key, changed.record) == ("a", holdfast.Record({"x": b"2"}))
        store.records.put("b", {"z": 3})
        assert store.records.get("b") == holdfast.Record({"z": b"3"})
        assert [
            key for key, _ in store.records.find(filters=holdfast.ScanFilter("x", "eq", 2))
        ] == ["a"]
    assert client.hget(f"{base}:log", "n") == b"9!"


def test_a_put_leaves_no_field_of_what_others_set_since(server: ValkeyServer) -> None:
    """Whatever is known of how many fields there are."""
    with holdfast.open(server.fresh_url()) as store:
        for change in (
            lambda: store.records.set_field("a", "c", 1),
            lambda: store.records.set_field("a", "b", None),
            lambda: store.records.compare_and_swap("a", "b", 1, 2),
            lambda: store.records.put("a", {"c": 1, "d": 2, "e": 3}),
            lambda: store.records.expire("a", 60),
            lambda: store.records.delete("a"),
            lambda: store.records.put("a", {"c": holdfast.Stamp(), "d": 2, "e": 3}),
        ):
            store.records.put("a", {"a": 1, "b": 1})
            change()
            store.records.put("a", {"b": 3, "f": 4})
            assert store.records.get("a") == holdfast.Record({"b": b"3", "f": b"4"})


def test_values_of_any_length_and_names_with_signs_come_back(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        for size in (0, 1, 31, 32, 255, 256, 65_535, 65_536, 300_000):
            fields = {"100%": b"\xff" * size, "%b": b"%d%%", "a" * size or "a": b"\0"}
            fields = {name[:200]: value for name, value in fields.items()}
            key = f"{size:x}" * 20 + "%b"
            store.records.put(key, fields)
            assert store.records.get(key) == holdfast.Record(fields)


def test_a_record_of_more_fields_than_lua_takes_at_once(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        fields = {f"f{number}": b"%d" % number for number in range(12_000)}
        store.records.put("a", fields)
        assert store.records.get("a") == holdfast.Record(fields)
        swapped = store.records.compare_and_set(
            "a", expect=fields, set={field: b"x" + value for field, value in fields.items()}
        )
        assert swapped is True
        assert store.records.compare_and_set("a", expect=fields, set={"y": 1}) is False
        store.records.put("a", {"f1": 1})
        assert store.records.get("a") == holdfast.Record({"f1": b"1"})


# Threads


def test_threads_share_pipelines_and_connections(server: ValkeyServer, client: Any) -> None:  # noqa: ANN401 - redis-py's
    before = client.info("stats")["total_connections_received"]
    with holdfast.open(server.fresh_url(), config=StoreConfig(pool_size=3)) as store:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(20):
                    store.records.set_field("a", f"{number}.{step}", step)
                    assert store.records.get_field("a", f"{number}.{step}") is not None
                    assert list(store.records.scan())
            except BaseException as exc:  # noqa: BLE001 - handed to the test
                errors.append(exc)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        found = store.records.get("a")
        assert found is not None
        assert len(found.fields) == 320
    assert client.info("stats")["total_connections_received"] - before <= 3


def test_capabilities_are_stated(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        assert Capability.RECORDS_INDEX in store.capabilities
        with pytest.raises(holdfast.Unsupported):
            store.transaction()
        with pytest.raises(holdfast.Unsupported):
            store.cells.watch()
        with pytest.raises(holdfast.Unsupported):
            store.branches.fork("b")

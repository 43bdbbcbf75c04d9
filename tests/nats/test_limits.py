"""What a server's limits mean for a store, and what leaves the stream by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import nats
import pytest

import holdfast
from holdfast.runtime.blocking import run
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsServer

KIB = 1024
PATIENCE = 30.0


async def quiet(exc: Exception) -> None:
    del exc


async def ask(server: NatsServer, question: str, **asked: object) -> dict[str, Any]:
    client = await nats.connect(f"nats://{server.address}", error_cb=quiet)
    try:
        answer = await client.request(
            f"$JS.API.{question}", msgspec.json.encode(asked), timeout=PATIENCE
        )
    finally:
        await client.close()
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    return found


async def subjects(server: NatsServer, bucket: str) -> dict[str, int]:
    found = await ask(server, f"STREAM.INFO.{bucket}_state", subjects_filter=f"{bucket}.records.>")
    return dict(found["state"].get("subjects") or {})


def test_payload_above_the_servers_limit_is_refused_with_a_hint() -> None:
    with (
        NatsServer({"max_payload": 64 * KIB}) as server,
        holdfast.open(server.fresh_url()) as store,
    ):
        for size in (64 * KIB, 64 * KIB - 1, 63 * KIB, 1024 * KIB):
            with pytest.raises(holdfast.InvalidArgument, match="claim check"):
                store.records.put("a", {"x": b"x" * size})
            with pytest.raises(holdfast.InvalidArgument, match="claim check"):
                store.cells.set("a", "x" * size)
        store.records.put("a", {"x": b"x" * 62 * KIB})
        assert store.cells.set("a", "x" * 62 * KIB) == 1
        assert store.records.get_field("a", "x") == b"x" * 62 * KIB


def test_long_names_are_asked_for_in_questions_that_the_server_takes() -> None:
    with (
        NatsServer({"max_payload": 16 * KIB}) as server,
        holdfast.open(server.fresh_url()) as store,
    ):
        cells = {f"k{number:03}{'x' * 900}": number for number in range(50)}
        store.cells.set_many(cells)
        assert store.cells.list() == list(cells)
        store.cells.set_many(dict.fromkeys(cells, 0))
        for name in cells:
            store.records.put(name, {"x": 1})
        assert [key for key, _ in store.records.scan()] == list(cells)


def test_many_large_records_are_scanned_in_pages() -> None:
    with NatsServer() as server, holdfast.open(server.fresh_url()) as store:
        for number in range(40):
            store.records.put(f"k{number:02}", {"x": b"%02d" % number * 300 * KIB})
        found = [(key, record.fields["x"]) for key, record in store.records.scan()]
        assert found == [(f"k{at:02}", b"%02d" % at * 300 * KIB) for at in range(40)]
        pages: list[int] = []
        after: str | None = ""
        while after is not None:
            page, after = run(
                store._backend.records.page(  # noqa: SLF001 - how much is in memory at a time
                    "default", prefix="", after=after or None, limit=1000, fields=None
                )
            )
            pages.append(len(page))
        assert sum(pages) == 40
        assert max(pages) <= 28  # of 600 KB


def test_a_full_server_refuses_keeps_what_it_has_and_works_again() -> None:
    settings = {"jetstream": {"max_file_store": 1024 * KIB}}
    with NatsServer(settings) as server, holdfast.open(server.url(bucket="full")) as store:
        store.transport.create_group("g", ">")
        store.transport.publish("subject", "x")
        delivery = store.transport.fetch("g")
        assert delivery is not None
        store.records.put("large", {"x": b"x" * 128 * KIB})
        written = fill(store)
        assert 0 < len(written) < 64
        for key in written:
            assert store.records.get_field(key, "x") == b"x" * 32 * KIB
        # A delete is a write too, and so is an answer.
        for call in (
            lambda: store.cells.set("c", "x" * 32 * KIB),
            lambda: store.records.delete(written[0]),
            lambda: store.transport.publish("more", "x" * 32 * KIB),
            delivery.ack,
        ):
            with pytest.raises(holdfast.Database, match="no room") as caught:
                call()
            assert not caught.value.outcome_unknown
        assert store.cells.get("c") is None
        # Whoever looks after the server makes room.
        asyncio.run(ask(server, "STREAM.PURGE.full_state", filter="full.records.default.large"))
        assert store.records.delete(written[0]) is True
        assert store.cells.set("c", "x" * 32 * KIB) == 1
        assert delivery.ack() is True
        assert [key for key, _ in store.records.scan()] == sorted(written[1:])


def fill(store: Store) -> list[str]:
    written = []
    with pytest.raises(holdfast.Database, match="no room") as caught:  # noqa: PT012 - the last put
        for number in range(64):
            store.records.put(f"k{number}", {"x": b"x" * 32 * KIB})
            written.append(f"k{number}")
    assert not caught.value.outcome_unknown
    return written


def test_expired_records_leave_the_stream_and_watches_hear_of_it(server: NatsServer) -> None:
    async def main() -> None:
        async with holdfast.open_async(server.url(bucket="ttl")) as store:
            await store.records.put("stays", {"x": 1})
            await store.records.put("goes", {"x": b"x" * 1000}, ttl=0.5)
            await store.records.put("changes", {"x": 1}, ttl=0.5)
            await store.records.set_field("changes", "x", 2)
            async with store.records.watch() as watch:
                while not watch.caught_up:
                    await watch.next(PATIENCE)
                told = {await told_gone(watch), await told_gone(watch)}
            assert told == {"goes", "changes"}
            assert await store.records.get("goes") is None
            assert [key async for key, _ in store.records.scan()] == ["stays"]
            assert await store.records.purge() == 0
        # What is left are markers without content, which the server removes a day later.
        for key in told:
            last = await ask(
                server, "STREAM.MSG.GET.ttl_state", last_by_subj=f"ttl.records.default.{key}"
            )
            assert "data" not in last["message"]

    asyncio.run(main())


async def told_gone(watch: Any) -> str:  # noqa: ANN401 - of records
    change = await watch.next(PATIENCE)
    assert isinstance(change, holdfast.RecordChange)
    assert change.record is None
    return change.key


def test_a_deleted_record_is_to_leave_the_stream_after_a_day(server: NatsServer) -> None:
    with holdfast.open(server.url(bucket="gone")) as store:
        store.records.put("a", {"x": 1})
        store.records.delete("a")
        store.records.put("b", {"x": 1}, ttl=3600)
        store.records.set_field("b", "x", 2)
        store.records.put("c", {"x": 1})
    headers = {key: asyncio.run(headers_of(server, f"gone.records.default.{key}")) for key in "abc"}
    assert headers["a"]["Nats-TTL"] == str(25 * 3600)
    assert headers["a"]["Nats-Marker-Reason"] == "Remove"  # or a marker would follow it
    assert int(headers["b"]["Nats-TTL"]) in range(3595, 3602)
    assert "Nats-TTL" not in headers["c"]


async def headers_of(server: NatsServer, subject: str) -> dict[str, str]:
    client = await nats.connect(f"nats://{server.address}", error_cb=quiet)
    try:
        question = msgspec.json.encode({"last_by_subj": subject})
        answer = await client.request("$JS.API.DIRECT.GET.gone_state", question)
    finally:
        await client.close()
    return dict(answer.headers or {})


def test_set_many_has_a_limit(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        with pytest.raises(holdfast.InvalidArgument, match="at most 1000"):
            store.cells.set_many({f"c{number}": number for number in range(1001)})
        assert store.cells.list() == []
        versions = store.cells.set_many({f"c{number}": number for number in range(1000)})
        assert set(versions.values()) == {1}
        assert len(store.cells.list()) == 1000


def test_a_cell_knows_its_last_operations(server: NatsServer) -> None:
    op = "0190a000-0000-7000-8000-000000000001"
    with holdfast.open(server.fresh_url()) as store:
        assert store.cells.set("c", "first", op_id=op) == 1
        assert [store.cells.set("c", number) for number in range(15)] == list(range(2, 17))
        assert store.cells.set("c", "again", op_id=op) == 1
        store.cells.set("c", "one too many")
        assert store.cells.set("c", "new", op_id=op) == 18

"""A put leaves a record's fields packed in one value, and whoever sets one of them spreads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Record, ScanFilter
from holdfast.backends.redis.records_row import MOST_PACKED
from holdfast.sync.records import Records
from holdfast.testing.valkey import ValkeyServer

BASE = "p:{default}"

# Where the length of a name or a value is written in another way, and how many fields there are.
EDGES = {
    **{"n" * size: b"v" for size in (1, 31, 32, 255, 256)},
    **{f"value of {size}": bytes(index % 256 for index in range(size)) for size in (0, 255, 256)},
}
MANY = {f"f{number}": b"%d" % number for number in range(100)}


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    with contextlib.closing(server.client()) as client:
        client.flushall()
        yield client


@pytest.fixture
def records(server: ValkeyServer, client: Any) -> Iterator[Records]:  # noqa: ANN401 - redis-py's
    del client  # emptied before
    with holdfast.open(server.url(prefix="p")) as store:
        yield store.records


def _fields(client: Any, key: str) -> set[bytes]:  # noqa: ANN401 - redis-py's
    """The fields of the hash, without ours."""
    return {*client.hkeys(f"{BASE}:r:{key}")} - {b"\0"}


@pytest.mark.parametrize("fields", [EDGES, MANY], ids=["edges", "many"])
def test_a_put_is_one_value_and_is_read_whole_or_in_part(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
    fields: dict[str, bytes],
) -> None:
    records.put("a", fields)
    assert _fields(client, "a") == set()
    assert records.get("a") == Record(fields)
    assert {name: records.get_field("a", name) for name in fields} == fields
    assert records.get_field("a", "none") is None
    assert list(records.scan("a", fields=["f1"])) == [
        ("a", Record({name: value for name, value in fields.items() if name == "f1"}))
    ]


@pytest.mark.parametrize("fields", [EDGES, MANY], ids=["edges", "many"])
def test_a_field_that_is_set_spreads_the_others(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
    fields: dict[str, bytes],
) -> None:
    records.put("a", fields, ttl=100)
    records.set_field("a", "new", 1)
    assert _fields(client, "a") == {name.encode() for name in (*fields, "new")}
    found = records.get("a")
    assert found is not None
    assert found.fields == {**fields, "new": b"1"}
    assert found.ttl is not None
    records.put("a", {"x": 1})
    assert _fields(client, "a") == set()
    assert records.get("a") == Record({"x": b"1"})


def test_whatever_else_is_written_finds_the_fields(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
) -> None:
    before = {"state": "pending", "worker": ""}
    records.put("a", before)
    assert not records.compare_and_swap("a", "state", "claimed", "x")
    assert not records.compare_and_swap("a", "state", None, "x")
    assert not records.compare_and_swap("a", "none", "x", "y")
    assert _fields(client, "a") == set(), "a refusal changes nothing"
    assert records.compare_and_set("a", expect={"worker": "", "none": None}, set={"state": "x"})
    assert records.get("a") == Record({"state": b"x", "worker": b""})

    records.put("b", before)
    assert records.expire("b", 100)
    found = records.get("b")
    assert found is not None
    assert found.fields == {"state": b"pending", "worker": b""}
    assert found.ttl is not None

    records.put("c", before)
    records.set_fields("c", {"state": None})
    assert records.get("c") == Record({"worker": b""})
    records.set_fields("c", {"worker": None})
    assert records.get("c") is None

    records.put("d", before)
    assert records.delete("d")
    assert not records.delete("d")
    assert records.get("d") is None


def test_an_index_sees_packed_fields(records: Records) -> None:
    for number in range(20):
        records.put(f"early.{number:02}", {"state": "due", "at": number})
    records.create_index("", "state", "at")
    for number in range(20):
        records.put(f"late.{number:02}", {"state": "due", "at": 100 + number})
    records.put("early.03", {"state": "done", "at": 3})
    records.put("early.04", {"at": 4})

    def due(below: int) -> list[str]:
        filters = [ScanFilter("state", "eq", "due"), ScanFilter("at", "lt", below)]
        return [key for key, _ in records.find(filters=filters)]

    assert due(6) == ["early.00", "early.01", "early.02", "early.05"]
    assert due(102)[-2:] == ["late.00", "late.01"]


def test_a_large_record_is_not_packed(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
) -> None:
    """Who wants one of its fields would move all of them."""
    large = {"x": b"x" * MOST_PACKED, "y": b"1"}
    records.put("a", {"x": 1, "z": 1})
    records.put("a", large)
    assert _fields(client, "a") == {b"x", b"y"}
    assert records.get("a") == Record(large)
    records.put("a", {"x": 1, "z": 1})
    assert _fields(client, "a") == set()
    assert records.get("a") == Record({"x": b"1", "z": b"1"})


def test_a_known_operation_finds_its_packed_record(records: Records) -> None:
    operation = "0198d3a4-0000-7000-8000-000000000001"
    records.put("a", {"x": 1}, op_id=operation)
    records.put("a", {"x": 2}, op_id=operation)
    assert records.get("a") == Record({"x": b"1"})


def test_a_full_server_lets_fields_be_removed(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
) -> None:
    """Also those of a record that has to be spread for it."""
    for key in "abc":
        records.put(key, {"x": 1, "y": 2})
    client.config_set("maxmemory", 1)
    try:
        records.set_fields("a", {"x": None})
        records.set_fields("b", {"x": None, "y": None})
        assert records.compare_and_set("c", expect={"x": 1}, set={"y": None})
    finally:
        client.config_set("maxmemory", 0)
    assert [records.get(key) for key in "abc"] == [Record({"y": b"2"}), None, Record({"x": b"1"})]


@pytest.mark.parametrize("damage", [b"\xff", b"\x81\xa1x", b"\x81\xa1x\xa1y"])
def test_damaged_fields_are_corrupt(
    records: Records,
    client: Any,  # noqa: ANN401 - redis-py's
    damage: bytes,
) -> None:
    """No map, one that ends too soon, and one of text to text."""
    records.put("a", {"x": 1})
    place = f"{BASE}:r:a"
    ours = client.hget(place, "\0")
    client.hset(place, "\0", ours[: ours.rindex(b";") + 1] + damage)
    for read in (lambda: records.get("a"), lambda: records.get_field("a", "x")):
        with pytest.raises(holdfast.Corrupt, match="fields of a record"):
            read()

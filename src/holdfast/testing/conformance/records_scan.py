"""Specs for scans over records: prefixes, filters, limits, indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Capability, InvalidArgument, Record, RecordIndex, ScanFilter
from holdfast.testing.plugin import needs
from holdfast.testing.world import World


class _CalledOffError(Exception):
    pass


INDEX = needs(Capability.RECORDS, Capability.RECORDS_INDEX)
MIXED: list[str | bytes] = ["-10", "-9", "-1", "0", "1", "9", "10", "100", "007", "-0", "1.5", "",
    "a", "ä", "10x", str(2**63 - 1), str(2**63), str(-(2**63)), b"\xff\x00", b"\x00"]  # fmt: skip


async def _keys(world: World, prefix: str = "", **options: Any) -> list[str]:  # noqa: ANN401 - of scan
    return [key async for key, _ in world.store.records.scan(prefix, **options)]


@needs(Capability.RECORDS)
async def test_scan_gives_keys_in_byte_order_with_their_records(world: World) -> None:
    records = world.store.records
    for key in ("b", "a.b", "a", "ä", "B", "a-b", "a0"):
        await records.put(key, {"k": key})
    found = [(key, record) async for key, record in records.scan()]
    order = sorted(("b", "a.b", "a", "ä", "B", "a-b", "a0"), key=str.encode)
    assert found == [(key, Record({"k": key.encode()})) for key in order]


@needs(Capability.RECORDS)
async def test_scan_takes_the_prefix_literally(world: World) -> None:
    records = world.store.records
    keys = ["a%b", "a%", "ab", "a_b", "a_", "axb", "a*b", "a[x]", "a\\b", "a.b.c", "a.b", "a.bc",
            "A%b", "ä", "äb", "😀", "😀a", "a", ">", "a>b"]  # fmt: skip
    for key in keys:
        await records.put(key, {"x": 1})
    for prefix in (
        "",
        "a",
        "a%",
        "a_",
        "a*",
        "a[",
        "a\\",
        "a.b",
        "a.b.",
        "ä",
        "😀",
        "A",
        "zz",
        ">",
        "a>",
    ):
        wanted = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert await _keys(world, prefix) == wanted, prefix


@needs(Capability.RECORDS)
async def test_scan_reads_more_than_one_page(world: World) -> None:
    records = world.store.records
    await world.together(records.put(f"k{number:04}", {"n": number}) for number in range(350))
    assert await _keys(world, "k") == [f"k{number:04}" for number in range(350)]
    few = await _keys(world, "k", filters=[ScanFilter("n", "gt", 345)])
    assert few == ["k0346", "k0347", "k0348", "k0349"]


@needs(Capability.RECORDS)
async def test_scan_gives_each_key_once_while_others_write(world: World) -> None:
    records = world.store.records
    await world.together(records.put(f"k{number:03}", {"n": 0}) for number in range(200))
    seen: list[str] = []
    async for key, _ in records.scan("k"):
        seen.append(key)
        number = int(key[1:])
        if number % 3 == 0:
            await records.delete(f"k{199 - number:03}")
            await records.put(f"k{number:03}.new", {"n": 1})
            await records.set_field(key, "n", 2)
    assert seen == sorted(set(seen))
    assert {f"k{number:03}" for number in range(100)} - {
        f"k{199 - n:03}" for n in range(200) if n % 3 == 0
    } <= set(seen)


@needs(Capability.RECORDS)
async def test_limit_counts_after_filtering(world: World) -> None:
    records = world.store.records
    for number in range(20):
        await records.put(f"k{number:02}", {"odd": number % 2})
    odd = ScanFilter("odd", "eq", 1)
    assert await _keys(world, filters=[odd], max_results=3) == ["k01", "k03", "k05"]
    assert await _keys(world, filters=ScanFilter("odd", "eq", 1, max_results=2)) == ["k01", "k03"]
    assert await _keys(world, max_results=0) == []
    assert len(await _keys(world, max_results=100)) == 20


@needs(Capability.RECORDS)
async def test_fields_chooses_what_is_given(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "y": 2, "z": 3})
    await records.put("b", {"y": 2})
    found = [
        (key, record.fields)
        async for key, record in records.scan(fields=["x", "z"], filters=[ScanFilter("y", "eq", 2)])
    ]
    assert found == [("a", {"x": b"1", "z": b"3"}), ("b", {})]


@needs(Capability.RECORDS)
async def test_ttl_is_told_by_a_scan(world: World) -> None:
    await world.store.records.put("a", {"x": 1}, ttl=100)
    ((_, record),) = [found async for found in world.store.records.scan()]
    assert record.ttl is not None
    assert 90 < record.ttl <= 100


def _number(value: bytes) -> int | None:
    try:
        number = int(value)
    except ValueError:
        return None
    return number if str(number).encode() == value and -(2**63) <= number < 2**63 else None


def _matches(found: bytes, op: str, wanted: bytes) -> bool:
    """The rule of SPEC, said once more: the filter's value decides the comparison."""
    left: Any = found
    right: Any = wanted
    if _number(wanted) is not None:
        if _number(found) is None:
            return False
        left, right = _number(found), _number(wanted)
    return bool(
        {"eq": left == right, "ne": left != right, "lt": left < right, "gt": left > right}[op]
    )


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


async def _fill_mixed(world: World) -> dict[str, bytes]:
    stored = {f"m{at:02}": _bytes(value) for at, value in enumerate(MIXED)}
    for key, value in stored.items():
        await world.store.records.put(key, {"v": value})
    await world.store.records.put("m.none", {"other": 1})
    return stored


async def _check_mixed(world: World, stored: dict[str, bytes]) -> None:
    for op in ("eq", "ne", "lt", "gt"):
        for value in MIXED:
            wanted = [key for key in sorted(stored) if _matches(stored[key], op, _bytes(value))]
            assert await _keys(world, filters=[ScanFilter("v", op, value)]) == wanted, (op, value)


@needs(Capability.RECORDS)
async def test_the_filters_value_decides_the_comparison(world: World) -> None:
    await _check_mixed(world, await _fill_mixed(world))


@needs(Capability.RECORDS)
async def test_in_and_not_in_take_several_values(world: World) -> None:
    records = world.store.records
    for key, state in (("a", "pending"), ("b", "failed"), ("c", "7"), ("d", "done")):
        await records.put(key, {"state": state})
    await records.put("e", {"other": 1})
    assert await _keys(world, filters=[ScanFilter("state", "in", ["pending", 7, "x"])]) == [
        "a",
        "c",
    ]
    assert await _keys(world, filters=[ScanFilter("state", "not_in", ["failed", "done"])]) == [
        "a",
        "c",
    ]
    assert await _keys(world, filters=[ScanFilter("state", "in", [])]) == []


@needs(Capability.RECORDS)
async def test_several_filters_must_all_match(world: World) -> None:
    records = world.store.records
    for number in range(10):
        await records.put(f"k{number}", {"n": number, "even": 1 - number % 2})
    filters = [ScanFilter("n", "gt", 2), ScanFilter("n", "lt", 8), ScanFilter("even", "eq", 1)]
    assert await _keys(world, filters=filters) == ["k4", "k6"]


@needs(Capability.RECORDS)
@pytest.mark.parametrize(
    "bad",
    [
        {"filters": [ScanFilter("x", "like", 1)]},
        {"filters": [ScanFilter("", "eq", 1)]},
        {"filters": [ScanFilter("x", "eq", 1.5)]},  # type: ignore[arg-type]
        {"filters": [ScanFilter("x", "in", "text")]},
        {"filters": [ScanFilter("x", ["eq"], 1)]},  # type: ignore[arg-type]
        {"filters": ["x"]},
        {"filters": 5},
        {"max_results": -1},
        {"max_results": "3"},
        {"fields": [""]},
        {"fields": "state"},
        {"fields": 5},
        {"prefix": "a:b"},
        {"prefix": 5},
    ],
)
async def test_bad_scans_are_refused_at_once(world: World, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        world.store.records.scan(**bad)


# Indexes


@INDEX
async def test_an_indexed_scan_finds_what_a_plain_one_finds(world: World) -> None:
    stored = await _fill_mixed(world)
    await world.store.records.create_index("m", "v")
    # Written before the index and after it.
    await world.store.records.put("m00", {"v": stored["m00"]})
    for op in ("eq", "lt", "gt", "in"):
        for value in MIXED:
            values = [value, "9"] if op == "in" else value
            each = [_bytes(one) for one in (values if isinstance(values, list) else [values])]
            wanted = [
                key
                for key in sorted(stored)
                if any(_matches(stored[key], "eq" if op == "in" else op, one) for one in each)
            ]
            found = await _keys(world, "m", filters=[ScanFilter("v", op, values)])
            assert found == wanted, (op, value)


@INDEX
async def test_an_index_follows_every_kind_of_write(world: World) -> None:
    records = world.store.records
    await records.create_index("t.", "state", "at")

    async def due(state: str = "run") -> list[str]:
        filters: Sequence[ScanFilter] = [
            ScanFilter("state", "eq", state),
            ScanFilter("at", "lt", 100),
        ]
        return await _keys(world, "t.", filters=filters)

    await records.put("t.1", {"state": "run", "at": 50})
    await records.put("t.2", {"state": "run", "at": 150})
    await records.put("t.3", {"state": "run"})
    await records.put("u.4", {"state": "run", "at": 50})
    assert await due() == ["t.1"]
    await records.set_field("t.2", "at", 99)
    await records.compare_and_swap("t.3", "at", None, -5)
    assert await due() == ["t.1", "t.2", "t.3"]
    await records.compare_and_swap("t.1", "state", "run", "done")
    await records.set_field("t.2", "at", None)
    await records.delete("t.3")
    assert await due() == []
    assert await due("done") == ["t.1"]
    await records.put("t.1", {"state": "run", "at": 1})
    await records.put("t.1", {"other": 1})
    assert await due() == []


@needs(Capability.RECORDS, Capability.RECORDS_INDEX, Capability.MOVABLE_CLOCK)
async def test_an_indexed_scan_sees_nothing_expired(world: World) -> None:
    records = world.store.records
    await records.create_index("", "n")
    await records.put("a", {"n": 1}, ttl=100)
    await records.put("b", {"n": 1})
    await world.move_clock(101)
    assert await _keys(world, filters=[ScanFilter("n", "eq", 1)]) == ["b"]
    await records.set_field("a", "m", 1)
    assert await _keys(world, filters=[ScanFilter("n", "eq", 1)]) == ["b"]
    await records.purge()
    assert await _keys(world, filters=[ScanFilter("n", "lt", 5)]) == ["b"]


@needs(Capability.RECORDS, Capability.RECORDS_INDEX, Capability.MOVABLE_CLOCK)
async def test_find_is_not_stopped_by_what_does_not_match(world: World) -> None:
    records = world.store.records
    for n in range(30):
        await records.put(f"a.{n:02}", {"state": "x", "due": n, "type": "early"}, ttl=10)
    for n in range(30, 60):
        kind = "early" if n < 45 else "late"
        await records.put(f"a.{n:02}", {"state": "x", "due": n, "type": kind})
    filters = [ScanFilter("state", "eq", "x"), ScanFilter("due", "lt", 100)]
    late = [*filters, ScanFilter("type", "eq", "late")]
    await records.create_index("a.", "state", "due")
    assert [key for key, _ in await records.find("a.", filters=late, limit=2)] == ["a.45", "a.46"]
    await world.move_clock(11)
    found = await records.find("a.", filters=filters, limit=2)
    assert found == [
        ("a.30", Record({"state": b"x", "due": b"30", "type": b"early"})),
        ("a.31", Record({"state": b"x", "due": b"31", "type": b"early"})),
    ]
    assert len(await records.find("a.", filters=late)) == 15
    nothing = [filters[0], ScanFilter("due", "in", [])]
    assert await records.find("a.", filters=nothing) == []
    assert await records.find("a.", filters=late, limit=0) == []


@INDEX
async def test_find_gives_the_smallest_of_several_values_first(world: World) -> None:
    records = world.store.records
    await records.create_index("k", "n")
    for number in (10, 9, 5, 7):
        await records.put(f"k{number}", {"n": number})
    asked = ScanFilter("n", "in", [10, 9, 5])
    assert [key for key, _ in await records.find("k", filters=asked, limit=2)] == ["k5", "k9"]


@needs(Capability.RECORDS)
async def test_find_without_an_index_finds_the_first_keys(world: World) -> None:
    records = world.store.records
    for n in range(5):
        await records.put(f"a.{n}", {"x": n % 2})
    found = await records.find("a.", filters=ScanFilter("x", "eq", 1), limit=1)
    assert found == [("a.1", Record({"x": b"1"}))]


@INDEX
async def test_long_values_are_told_apart_by_an_indexed_scan(world: World) -> None:
    records = world.store.records
    await records.create_index("", "v")
    long = "x" * 2000
    for key, value in (("a", long), ("b", long + "y"), ("c", long[:-1])):
        await records.put(key, {"v": value})
    assert await _keys(world, filters=[ScanFilter("v", "eq", long)]) == ["a"]
    assert await _keys(world, filters=[ScanFilter("v", "gt", long)]) == ["b"]
    assert await _keys(world, filters=[ScanFilter("v", "lt", long)]) == ["c"]


@INDEX
async def test_an_index_belongs_to_a_prefix_and_a_namespace(world: World) -> None:
    records, other = world.store.records, world.store.namespace("other").records
    await records.create_index("a.", "n")
    for store in (records, other):
        await store.put("a.1", {"n": 1})
        await store.put("b.1", {"n": 1})
    one = ScanFilter("n", "eq", 1)
    assert await _keys(world, filters=[one]) == ["a.1", "b.1"]
    assert await _keys(world, "a.", filters=[one]) == ["a.1"]
    assert await _keys(world, "a.1", filters=[one]) == ["a.1"]
    assert [key async for key, _ in other.scan("b", filters=[one])] == ["b.1"]
    assert await records.list_indexes() == [RecordIndex("a.", ("n",))]
    assert await other.list_indexes() == []


@INDEX
async def test_a_dropped_index_is_gone_and_scans_go_on(world: World) -> None:
    records = world.store.records
    await records.create_index("", "n")
    await records.create_index("", "n")
    await records.put("a", {"n": 1})
    assert await records.drop_index("", "n") is True
    assert await records.drop_index("", "n") is False
    await records.put("b", {"n": 1})
    assert await _keys(world, filters=[ScanFilter("n", "eq", 1)]) == ["a", "b"]
    await records.create_index("", "n")
    assert await _keys(world, filters=[ScanFilter("n", "eq", 1)]) == ["a", "b"]


@INDEX
async def test_an_index_made_while_others_write_is_complete(world: World) -> None:
    records = world.store.records
    await world.together(records.put(f"k{number:03}", {"n": number}) for number in range(300))

    async def write() -> None:
        for number in range(0, 300, 7):
            await records.set_field(f"k{number:03}", "n", 1000 + number)

    await world.together([write(), records.create_index("k", "n"), write()])
    wanted = [f"k{number:03}" for number in range(0, 300, 7)]
    assert await _keys(world, "k", filters=[ScanFilter("n", "gt", 999)]) == wanted
    rest = [f"k{number:03}" for number in range(300) if number % 7]
    assert await _keys(world, "k", filters=[ScanFilter("n", "lt", 1000)]) == rest


@needs(Capability.RECORDS, Capability.RECORDS_INDEX, Capability.TRANSACTIONS)
async def test_an_index_commits_and_rolls_back_with_its_records(world: World) -> None:
    records = world.store.records
    await records.create_index("", "n")
    one = ScanFilter("n", "eq", 1)

    async def fail() -> None:
        async with world.store.transaction() as tx:
            await tx.records.put("a", {"n": 1})
            assert [key async for key, _ in tx.records.scan(filters=[one])] == ["a"]
            raise _CalledOffError

    with pytest.raises(_CalledOffError):
        await fail()
    assert await _keys(world, filters=[one]) == []

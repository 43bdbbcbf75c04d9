"""Specs for records: fields, compare-and-set, claims, operation ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Capability, InvalidArgument, Record, Stamp, StoreConfig
from holdfast.aio.records import AsyncRecords
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

BYTES = bytes(range(256))


class _CalledOffError(Exception):
    pass


# put, get, delete


@needs(Capability.RECORDS)
async def test_put_then_get_gives_all_fields_as_bytes(world: World) -> None:
    records = world.store.records
    await records.put("a.b", {"text": "grün", "number": -42, "raw": BYTES, "empty": ""})
    assert await records.get("a.b") == Record(
        {"text": "grün".encode(), "number": b"-42", "raw": BYTES, "empty": b""}, None
    )


@needs(Capability.RECORDS)
async def test_get_of_an_absent_record_is_none(world: World) -> None:
    assert await world.store.records.get("a") is None
    assert await world.store.records.get_field("a", "f") is None


@needs(Capability.RECORDS)
async def test_put_replaces_the_whole_record(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "y": 2})
    await records.put("a", {"y": 3, "z": 4})
    assert await records.get("a") == Record({"y": b"3", "z": b"4"})


@needs(Capability.RECORDS)
async def test_put_without_fields_deletes(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    await records.put("a", {})
    assert await records.get("a") is None
    assert [key async for key, _ in records.scan()] == []
    await records.put("never", {})
    assert await records.get("never") is None


@needs(Capability.RECORDS)
async def test_put_of_fields_that_are_all_none_deletes(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    await records.put("a", {"x": None})
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_delete_tells_whether_there_was_a_record(world: World) -> None:
    records = world.store.records
    assert await records.delete("a") is False
    await records.put("a", {"x": 1})
    assert await records.delete("a") is True
    assert await records.delete("a") is False
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_a_record_can_be_made_again_after_a_delete(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "old": 1}, ttl=1000)
    await records.delete("a")
    await records.set_field("a", "x", 2)
    assert await records.get("a") == Record({"x": b"2"}, None)


@needs(Capability.RECORDS)
async def test_namespaces_are_apart(world: World) -> None:
    other = world.store.namespace("other").records
    await world.store.records.put("a", {"x": 1})
    assert await other.get("a") is None
    await other.put("a", {"x": 2})
    assert await other.delete("a") is True
    assert await world.store.records.get("a") == Record({"x": b"1"})
    assert [key async for key, _ in other.scan()] == []


# Fields


@needs(Capability.RECORDS)
async def test_set_field_leaves_the_others(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "y": 2})
    await records.set_field("a", "x", "new")
    await records.set_fields("a", {"z": 3, "y": None})
    assert await records.get("a") == Record({"x": b"new", "z": b"3"})
    assert await records.get_field("a", "x") == b"new"
    assert await records.get_field("a", "y") is None


@needs(Capability.RECORDS)
async def test_set_fields_on_an_absent_record_creates_it(world: World) -> None:
    records = world.store.records
    await records.set_fields("a", {"x": 1, "gone": None})
    assert await records.get("a") == Record({"x": b"1"}, None)


@needs(Capability.RECORDS)
async def test_removing_the_last_field_removes_the_record(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1, "y": 2})
    await records.set_fields("a", {"x": None, "y": None})
    assert await records.get("a") is None
    assert await records.delete("a") is False
    await records.set_field("never", "x", None)
    assert await records.get("never") is None


@needs(Capability.RECORDS)
async def test_fields_of_one_write_are_set_together(world: World) -> None:
    records = world.store.records

    async def write(number: int) -> None:
        for step in range(10):
            await records.set_fields("a", {"x": f"{number}.{step}", "y": f"{number}.{step}"})

    async def read() -> set[bool]:
        found = [await records.get("a") for _ in range(20)]
        return {one.fields["x"] == one.fields["y"] for one in found if one is not None}

    results: list[Any] = await world.together([write(1), write(2), read(), read()])
    assert False not in {same for result in results if result for same in result}


@needs(Capability.RECORDS)
async def test_concurrent_writes_to_different_fields_are_all_kept(world: World) -> None:
    records = world.store.records
    await world.together(records.set_field("hot", f"f{number}", number) for number in range(30))
    found = await records.get("hot")
    assert found == Record({f"f{number}": b"%d" % number for number in range(30)})


@needs(Capability.RECORDS)
@pytest.mark.parametrize(
    "name", ["ü", "a b", "%", "_", "*", "[x]", "\\", "'", '"', "$.x", "x" * 1024]
)
async def test_keys_and_fields_may_hold_any_sign(world: World, name: str) -> None:
    records = world.store.records
    await records.put(name, {name: "1"})
    await records.set_field(name, name + "" if len(name) > 1000 else name + "2", "2")
    found = await records.get(name)
    assert found is not None
    assert found.fields[name] in {b"1", b"2"}
    assert [key async for key, _ in records.scan(name)] == [name]
    assert await records.get_field(name, name) is not None


@needs(Capability.RECORDS)
async def test_large_values_come_back(world: World) -> None:
    value = BYTES * 2000
    await world.store.records.put("a", {"x": value})
    assert await world.store.records.get("a") == Record({"x": value})


# compare_and_swap, compare_and_set, claim


@needs(Capability.RECORDS)
async def test_compare_and_swap_changes_what_is_as_expected(world: World) -> None:
    records = world.store.records
    await records.put("a", {"state": "pending", "x": 1})
    assert await records.compare_and_swap("a", "state", "pending", "claimed") is True
    assert await records.compare_and_swap("a", "state", "pending", "claimed") is False
    assert await records.get("a") == Record({"state": b"claimed", "x": b"1"})


@needs(Capability.RECORDS)
async def test_compare_and_swap_of_an_absent_field_or_record_creates_nothing(world: World) -> None:
    records = world.store.records
    assert await records.compare_and_swap("a", "state", "pending", "claimed") is False
    assert await records.get("a") is None
    await records.put("b", {"x": 1})
    assert await records.compare_and_swap("b", "state", "pending", "claimed") is False
    assert await records.compare_and_swap("b", "state", "", "claimed") is False
    assert await records.get("b") == Record({"x": b"1"})


@needs(Capability.RECORDS)
async def test_expected_none_means_must_be_absent(world: World) -> None:
    records = world.store.records
    assert await records.compare_and_swap("a", "lock", None, "me") is True
    assert await records.compare_and_swap("a", "lock", None, "you") is False
    assert await records.compare_and_swap("a", "other", None, "me") is True
    assert await records.get("a") == Record({"lock": b"me", "other": b"me"})


@needs(Capability.RECORDS)
async def test_swapping_to_none_removes_the_field(world: World) -> None:
    records = world.store.records
    await records.put("a", {"lock": "me"})
    assert await records.compare_and_swap("a", "lock", "you", None) is False
    assert await records.compare_and_swap("a", "lock", "me", None) is True
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_compare_and_set_looks_at_all_fields_and_sets_all(world: World) -> None:
    records = world.store.records
    await records.put("a", {"state": "running", "worker": "w1", "step": 3})
    refused = await records.compare_and_set(
        "a", expect={"state": "running", "worker": "w2"}, set={"step": 4}
    )
    assert refused is False
    assert await records.compare_and_set(
        "a",
        expect={"state": "running", "worker": "w1", "error": None},
        set={"state": "completed", "step": None, "result": BYTES},
    )
    assert await records.get("a") == Record(
        {"state": b"completed", "worker": b"w1", "result": BYTES}
    )


@needs(Capability.RECORDS)
async def test_a_record_may_have_thousands_of_fields(world: World) -> None:
    records = world.store.records
    many = {f"f{number}": number for number in range(12_000)}
    await records.put("a", many)
    assert await records.compare_and_set("a", expect={**many, "f11999": 0}, set={"x": 1}) is False
    assert await records.compare_and_set("a", expect=many, set={"x": 1}) is True
    found = await records.get("a")
    assert found == Record({field: b"%d" % value for field, value in many.items()} | {"x": b"1"})
    await records.set_fields("a", dict.fromkeys(many))
    assert await records.get("a") == Record({"x": b"1"})


@needs(Capability.RECORDS)
async def test_expected_bytes_are_compared_exactly(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": BYTES})
    assert await records.compare_and_swap("a", "x", BYTES[:-1], "no") is False
    assert await records.compare_and_swap("a", "x", BYTES, "7") is True
    assert await records.compare_and_swap("a", "x", "07", "no") is False
    assert await records.compare_and_swap("a", "x", 7, "yes") is True


@needs(Capability.RECORDS)
async def test_of_many_claims_one_wins(world: World) -> None:
    records = world.store.records
    await records.put("job", {"state": "pending", "task_id": 7})
    won = await world.together(
        records.claim("job", f"w{number}", timeout=30) for number in range(30)
    )
    assert won.count(True) == 1
    found = await records.get("job")
    assert found is not None
    assert found.fields["worker"] == f"w{won.index(True)}".encode()
    assert found.fields["state"] == b"claimed"
    assert found.fields["task_id"] == b"7"
    assert int(found.fields["timeout_at"]) - int(found.fields["updated_at"]) == 30_000


@needs(Capability.RECORDS)
async def test_claim_of_an_absent_record_creates_nothing(world: World) -> None:
    records = world.store.records
    assert await records.claim("job", "w", timeout=30) is False
    assert await records.get("job") is None


@needs(Capability.RECORDS)
async def test_concurrent_swaps_lose_no_increment(world: World) -> None:
    records = world.store.records
    await records.put("counter", {"n": 0})

    async def add() -> None:
        for _ in range(5):
            while True:
                found = await records.get_field("counter", "n")
                assert found is not None
                if await records.compare_and_swap("counter", "n", found, int(found) + 1):
                    break

    await world.together(add() for _ in range(8))
    assert await records.get_field("counter", "n") == b"40"


# Stamps


@needs(Capability.RECORDS)
async def test_a_stamp_is_the_stores_clock_in_milliseconds(world: World) -> None:
    records = world.store.records
    before = (await world.store.now()).timestamp()
    await records.put("a", {"at": Stamp(), "later": Stamp(after=60)})
    after = (await world.store.now()).timestamp()
    found = await records.get("a")
    assert found is not None
    assert before * 1000 - 2 <= int(found.fields["at"]) <= after * 1000 + 2
    assert int(found.fields["later"]) - int(found.fields["at"]) == 60_000


@needs(Capability.RECORDS, Capability.MOVABLE_CLOCK)
async def test_a_stamp_moves_with_the_stores_clock(world: World) -> None:
    records = world.store.records
    await records.put("a", {"at": Stamp()})
    await world.move_clock(3600)
    await records.put("b", {"at": Stamp()})
    first, second = await records.get_field("a", "at"), await records.get_field("b", "at")
    assert first is not None
    assert second is not None
    assert 3_600_000 <= int(second) - int(first) < 3_660_000


# Operation ids


@needs(Capability.RECORDS)
async def test_the_same_operation_again_gives_the_first_answer(world: World) -> None:
    records = world.store.records
    await records.put("a", {"state": "pending"})
    op = uuid4()
    for _ in range(3):
        assert await records.compare_and_swap("a", "state", "pending", "claimed", op_id=op)
    assert await records.compare_and_swap("a", "state", "pending", "claimed") is False


@needs(Capability.RECORDS)
async def test_the_same_delete_again_gives_the_first_answer(world: World) -> None:
    records = world.store.records
    await records.put("a", {"x": 1})
    op = uuid4()
    assert await records.delete("a", op_id=op) is True
    assert await records.delete("a", op_id=op) is True
    assert await records.delete("a", op_id=uuid4()) is False
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_a_refusal_is_not_remembered(world: World) -> None:
    records = world.store.records
    op = uuid4()
    assert await records.compare_and_swap("a", "x", "1", "2", op_id=op) is False
    await records.put("a", {"x": 1})
    assert await records.compare_and_swap("a", "x", "1", "2", op_id=op) is True


def _to_nothing(
    records: AsyncRecords, op: UUID | None = None
) -> list[Callable[[], Awaitable[object]]]:
    """Writes that apply to an absent record, and leave it absent."""
    return [
        lambda: records.put("a", {}, op_id=op),
        lambda: records.put("a", {"x": None}, ttl=100, op_id=op),
        lambda: records.set_field("a", "x", None, op_id=op),
        lambda: records.set_fields("a", {"x": None, "y": None}, op_id=op),
        lambda: records.compare_and_swap("a", "x", None, None, op_id=op),
        lambda: records.compare_and_set("a", expect={"y": None}, set={"x": None}, op_id=op),
    ]


@needs(Capability.RECORDS)
async def test_what_leaves_an_absent_record_absent_is_not_remembered(world: World) -> None:
    records = world.store.records
    op = uuid4()
    for deleted in (False, True):
        for write in _to_nothing(records, op):
            assert await write() in (None, True)
        await records.put("a", {"x": 1}, op_id=op)
        assert await records.get("a") == Record({"x": b"1"}), f"after a delete: {deleted}"
        assert await records.delete("a") is True


@needs(Capability.RECORDS)
async def test_what_leaves_an_absent_record_absent_leaves_its_last_operation_known(
    world: World,
) -> None:
    records = world.store.records
    op = uuid4()
    await records.put("a", {"x": 1})
    assert await records.delete("a", op_id=op) is True
    for write in _to_nothing(records):
        await write()
        assert await records.delete("a", op_id=op) is True
    assert await records.delete("a") is False


@needs(Capability.RECORDS)
async def test_what_leaves_a_record_as_it_is_is_remembered(world: World) -> None:
    records = world.store.records
    before, op = uuid4(), uuid4()
    await records.put("a", {"x": 1}, op_id=before)
    for write in (
        lambda: records.set_field("a", "x", 1, op_id=op),
        lambda: records.set_field("a", "other", None, op_id=op),
        lambda: records.set_fields("a", {}, op_id=op),
        lambda: records.put("a", {"x": 1}, op_id=op),
        lambda: records.compare_and_swap("a", "x", 1, 1, op_id=op),
        lambda: records.compare_and_set("a", expect={}, set={}, op_id=op),
        lambda: records.expire("a", None, op_id=op),
    ):
        assert await write() in (None, True)
        await records.put("a", {"x": 2}, op_id=op)
        assert await records.get_field("a", "x") == b"1"
        await records.put("a", {"x": 1}, op_id=before)


@needs(Capability.RECORDS)
async def test_an_operation_id_belongs_to_one_record(world: World) -> None:
    records = world.store.records
    op = uuid4()
    await records.put("a", {"x": 1}, op_id=op)
    await records.put("b", {"x": 2}, op_id=op)
    await records.put("a", {"x": 3}, op_id=op)
    assert await records.get_field("a", "x") == b"1"
    assert await records.get_field("b", "x") == b"2"


# Bad input


@needs(Capability.RECORDS)
@pytest.mark.parametrize("key", ["", "a:b", "a\0b", "x" * 1025, 5, None, "\ud800"])
async def test_bad_keys_are_refused(world: World, key: Any) -> None:  # noqa: ANN401 - on purpose
    records = world.store.records
    for call in (
        records.get(key),
        records.put(key, {"x": 1}),
        records.delete(key),
        records.set_field(key, "x", 1),
        records.compare_and_swap(key, "x", None, 1),
        records.expire(key, 1),
    ):
        with pytest.raises(InvalidArgument):
            await call


@needs(Capability.RECORDS)
@pytest.mark.parametrize("field", ["", "a\0b", "x" * 1025, 5, None])
async def test_bad_field_names_are_refused(world: World, field: Any) -> None:  # noqa: ANN401 - on purpose
    records = world.store.records
    for call in (
        records.put("a", {field: 1}),
        records.set_field("a", field, 1),
        records.get_field("a", field),
        records.compare_and_swap("a", field, None, 1),
    ):
        with pytest.raises(InvalidArgument):
            await call
    assert await records.get("a") is None


@needs(Capability.RECORDS)
@pytest.mark.parametrize(
    "value",
    [
        1.5,
        True,
        [],
        {},
        2**64,
        -(2**63) - 1,
        "\ud800",
        object(),
        pytest.param(-(10**5000), id="5,000 digits"),
    ],
)
async def test_bad_values_are_refused(world: World, value: Any) -> None:  # noqa: ANN401 - on purpose
    records = world.store.records
    for call in (
        records.put("a", {"x": value}),
        records.set_field("a", "x", value),
        records.compare_and_swap("a", "x", None, value),
        records.compare_and_swap("a", "x", value, 1),
    ):
        with pytest.raises(InvalidArgument):
            await call
    assert await records.get("a") is None


@needs(Capability.RECORDS)
@pytest.mark.parametrize("after", ["soon", None, True, float("nan"), 300 * 366 * 86400, -1e12])
async def test_a_bad_stamp_is_refused(world: World, after: Any) -> None:  # noqa: ANN401 - on purpose
    records = world.store.records
    for call in (
        records.put("a", {"x": Stamp(after)}),
        records.compare_and_swap("a", "x", None, Stamp(after)),
    ):
        with pytest.raises(InvalidArgument):
            await call
    assert await records.get("a") is None


@needs(Capability.RECORDS)
async def test_fields_must_be_a_mapping(world: World) -> None:
    wrong: Any = [("x", 1)]
    with pytest.raises(InvalidArgument):
        await world.store.records.put("a", wrong)
    with pytest.raises(InvalidArgument):
        await world.store.records.compare_and_set("a", expect=wrong, set={})


@needs(Capability.RECORDS)
async def test_oversize_records_are_refused_with_a_hint(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=1000))
    with pytest.raises(InvalidArgument, match="claim check"):
        await store.records.put("a", {"x": b"x" * 1001})
    await store.records.put("a", {"x": b"x" * 900})
    # A name counts with its bytes, as it is sent and kept.
    await store.records.put("a", {"\U00010400" * 100: ""})
    with pytest.raises(InvalidArgument, match="1205 bytes"):
        await store.records.put(
            "a", {"\U00010400" * 100 + str(at): "" for at in range(3)} | {"x": 1}
        )


@needs(Capability.RECORDS)
async def test_a_claim_needs_a_worker_and_a_timeout_above_zero(world: World) -> None:
    await world.store.records.put("a", {"state": "pending"})
    nobody: Any = None
    for worker, timeout in (("w", 0), ("w", -1), (nobody, 1)):
        with pytest.raises(InvalidArgument):
            await world.store.records.claim("a", worker, timeout=timeout)
    assert await world.store.records.get("a") == Record({"state": b"pending"})


# Transactions


@needs(Capability.RECORDS, Capability.TRANSACTIONS)
async def test_a_bad_value_does_not_end_a_transaction(world: World) -> None:
    soon: Any = "soon"
    async with world.store.transaction() as tx:
        await tx.records.put("a", {"x": 1})
        with pytest.raises(InvalidArgument):
            await tx.records.put("b", {"x": Stamp(soon)})
    assert await world.store.records.get("a") == Record({"x": b"1"})


@needs(Capability.RECORDS, Capability.TRANSACTIONS)
async def test_records_and_cells_commit_together_or_not_at_all(world: World) -> None:
    store = world.store
    async with store.transaction() as tx:
        await tx.records.put("a", {"x": 1})
        await tx.cells.set("c", 1)
        assert await tx.records.get("a") == Record({"x": b"1"})
        assert [key async for key, _ in tx.records.scan()] == ["a"]

    async def fail() -> None:
        async with store.transaction() as tx:
            await tx.records.set_field("a", "x", 2)
            await tx.records.delete("a")
            await tx.cells.set("c", 2)
            raise _CalledOffError

    with pytest.raises(_CalledOffError):
        await fail()
    assert await store.records.get("a") == Record({"x": b"1"})
    assert await store.cells.get("c") == 1

"""Records when the disk fails: every write and sync of a script, and commits of many callers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

import holdfast
from holdfast import AsyncStore, Record, ScanFilter, StoreError
from holdfast.testing.disk import Failure, Fault, FaultyDisk, Operation
from holdfast.testing.world import BlockingColour, Colour
from tests.faults.scripts import Script, sweep

FIELDS = ("a", "b", "c", "d", "e")
LARGE: Mapping[str, str | int] = {"state": "pending", "n": 1, "data": "x" * 3000}
HOUR = 3600


async def _index(store: AsyncStore) -> None:
    await store.records.create_index("job.", "state", "n")


async def _everything(store: AsyncStore) -> dict[str, object]:
    """Every record, and what the index says of them."""
    found: dict[str, object] = {}
    async for key, record in store.records.scan():
        found[key] = (record.fields, record.ttl is not None)
    filters = [ScanFilter("state", "eq", "pending"), ScanFilter("n", "gt", 0)]
    by_index = await store.records.find("job.", filters=filters)
    return found | {"indexed": sorted(key for key, _ in by_index)}


SCRIPT = Script(
    (
        lambda store, op: store.records.put("job.1", LARGE, op_id=op),
        lambda store, _: _index(store),
        lambda store, op: store.records.put("job.2", LARGE, ttl=HOUR, op_id=op),
        lambda store, op: store.records.set_fields("job.1", {"n": 2, "more": "y" * 5000}, op_id=op),
        lambda store, op: store.records.compare_and_swap("job.1", "n", 2, 3, op_id=op),
        lambda store, op: store.records.compare_and_set(
            "job.2", expect={"n": 1, "gone": None}, set={"n": 5, "data": None}, op_id=op
        ),
        lambda store, op: store.records.delete("job.1", op_id=op),
        lambda store, op: store.records.expire("job.2", None, op_id=op),
        lambda store, op: store.records.compare_and_swap("job.1", "n", None, 7, op_id=op),
        lambda store, op: store.records.put("job.3", LARGE, op_id=op),
        lambda store, op: store.records.compare_and_swap("job.3", "n", 5, 6, op_id=op),  # refused
        lambda store, op: store.records.set_field("job.3", "state", "done", op_id=op),
        lambda store, op: store.records.delete("job.1", op_id=op),
        lambda store, op: store.records.put("job.1", LARGE, ttl=HOUR, op_id=op),
    ),
    _everything,
)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_call_repeated_after_a_fault_has_one_effect(
    colour: Colour, operation: Operation, *, persistent: bool
) -> None:
    sweep(colour, SCRIPT, operation, persistent=persistent)


def test_control_writes_that_corrupt_instead_of_failing_are_found() -> None:
    with pytest.raises((AssertionError, StoreError)):
        sweep(BlockingColour(), SCRIPT, "write", persistent=True, failures=("corrupt",))


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
def test_a_failed_commit_of_many_writes_to_one_record_is_settled(failure: Failure) -> None:
    async def together() -> None:
        disk = FaultyDisk("io-faults-records")
        url = f"sqlite:////disk/records.db?vfs={disk.name}&locking=exclusive"
        async with holdfast.open_async(url) as store:
            disk.fault = Fault("sync", disk.operations["sync"] + 1, failure)
            await asyncio.gather(*(store.records.set_field("hot", field, 1) for field in FIELDS))
            assert await store.records.get("hot") == Record(dict.fromkeys(FIELDS, b"1"))
        assert disk.operations["sync"] >= disk.fault.nth

    asyncio.run(together())

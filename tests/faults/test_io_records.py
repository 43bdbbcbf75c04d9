"""Records when a commit fails: the callers who shared it are all told the truth."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.testing.disk import Failure, Fault, FaultyDisk

FIELDS = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
def test_a_failed_commit_of_many_writes_to_one_record_is_settled(failure: Failure) -> None:
    async def together() -> None:
        disk = FaultyDisk("io-faults-records")
        url = f"sqlite:////disk/records.db?vfs={disk.name}&locking=exclusive"
        async with holdfast.open_async(url) as store:
            disk.fault = Fault("sync", disk.operations["sync"] + 1, failure)
            await asyncio.gather(*(store.records.set_field("hot", field, 1) for field in FIELDS))
            assert await store.records.get("hot") == holdfast.Record(dict.fromkeys(FIELDS, b"1"))
        assert disk.operations["sync"] >= disk.fault.nth

    asyncio.run(together())

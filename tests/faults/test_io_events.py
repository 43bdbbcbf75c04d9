"""Every write and sync of appends, snapshots and deletes fails once, and for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

import holdfast
from holdfast import CAUGHT_UP, AsyncStore, Conflict, Event, NotFound, StoreError
from holdfast.testing.disk import Failure, Fault, FaultyDisk, Operation
from holdfast.testing.world import BlockingColour, Colour
from tests.faults.scripts import Script, sweep

AT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
LARGE = "x" * 3000
PATIENCE = 30


async def _append(
    store: AsyncStore, run_id: str, keys: Iterable[str], expected: int | None = None
) -> object:
    """The numbers, which are the same each time; or that nothing was appended."""
    events = [Event(run_id, "Noted", key, LARGE, emitted_at=AT) for key in keys]
    try:
        appended = await store.events.append_events(events, expected_seq=expected)
    except Conflict as exc:
        return exc.last_seq
    return [one.run_seq for one in appended]


async def _delete(store: AsyncStore, run_id: str) -> None:
    try:
        await store.events.delete_run(run_id, force=True)
    except NotFound:  # the first try did it
        assert run_id not in await store.events.list_runs()


async def _keep(store: AsyncStore, run_id: str) -> object:
    snapshot = await store.events.keep_snapshot(run_id)
    return snapshot and snapshot.hash


async def _everything(store: AsyncStore) -> object:
    """Each run with its events and its snapshot, and the feed over all of them."""
    found: dict[str, object] = {}
    for run_id in await store.events.list_runs():
        events = await store.events.fetch_events(run_id)
        snapshot = await store.events.get_snapshot(run_id)
        assert snapshot == await store.events.project_snapshot(run_id)
        found[run_id] = [(one.run_seq, one.idempotency_key, one.event_data) for one in events]
    fed = []
    feed = store.events.feed(marker=True)
    while (one := await feed.next(PATIENCE)) is not CAUGHT_UP:
        assert isinstance(one, holdfast.FeedEvent)
        fed.append((one.event.run_id, one.event.run_seq))
    feed.close()
    return found, fed


SCRIPT = Script(
    (
        lambda store, _: _append(store, "a", ["1"]),
        lambda store, _: _append(store, "b", ["1", "2", "3"], 0),
        lambda store, _: _append(store, "a", ["2", "1", "3"], 1),
        lambda store, _: _append(store, "a", ["4"], 7),  # refused
        lambda store, _: _keep(store, "a"),
        lambda store, _: _append(store, "c", ["1", "2"]),
        lambda store, _: _delete(store, "b"),
        lambda store, _: _append(store, "b", ["2"]),
        lambda store, _: _append(store, "a", ["4", "5"]),
        lambda store, _: _keep(store, "a"),
    ),
    _everything,
)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_append_that_is_repeated_after_a_fault_gives_one_event(
    colour: Colour, operation: Operation, *, persistent: bool
) -> None:
    sweep(colour, SCRIPT, operation, persistent=persistent)


def test_control_writes_that_corrupt_instead_of_failing_are_found() -> None:
    with pytest.raises((AssertionError, StoreError)):
        sweep(BlockingColour(), SCRIPT, "write", persistent=True, failures=("corrupt",))


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
def test_a_failed_commit_of_many_appends_to_one_run_is_settled(failure: Failure) -> None:
    async def together() -> None:
        disk = FaultyDisk("io-faults-events")
        url = f"sqlite:////disk/{uuid4()}.db?vfs={disk.name}&locking=exclusive"
        async with holdfast.open_async(url) as store:
            disk.fault = Fault("sync", disk.operations["sync"] + 1, failure)
            results = await asyncio.gather(
                *(store.events.append_event(Event("hot", "Noted", f"{n}")) for n in range(20))
            )
            assert sorted(one.run_seq for one in results) == [*range(1, 21)]
            found = await store.events.fetch_events("hot")
            by_seq = {one.run_seq: one.idempotency_key for one in found}
            assert by_seq == {one.run_seq: f"{n}" for n, one in enumerate(results)}
        assert disk.operations["sync"] >= disk.fault.nth

    asyncio.run(together())

"""Appends of known keys by several callers at once change nothing, however many they are.

HOLDFAST_DUPLICATES is how many.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast import CAUGHT_UP, AsyncStore, Event, FeedEvent

DUPLICATES = int(os.environ.get("HOLDFAST_DUPLICATES", "100000"))
RUNS, EVENTS, CALLERS = 4, 1000, 4
PATIENCE = 60


@pytest.fixture(params=["sqlite", "postgres", "valkey", "nats"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def events_of(run: int, *, data: object = 1) -> list[Event]:
    return [Event(f"run{run}", "Noted", f"key{n}", data) for n in range(EVENTS)]


async def everything(store: AsyncStore) -> object:
    """All that the store tells of its runs."""
    names = await store.events.list_runs()
    runs = [await store.events.fetch_events(name, limit=10_000) for name in names]
    snapshots = [await store.events.get_snapshot(name) for name in names]
    feed = store.events.feed()
    fed = []
    while (found := await feed.next(PATIENCE)) is not CAUGHT_UP:
        assert isinstance(found, FeedEvent)
        fed.append((found.event, found.cursor))
    feed.close()
    return names, runs, snapshots, fed


async def append_again(store: AsyncStore, calls: int) -> tuple[int, int]:
    """How many appends were answered as known, and how many of those as of other content."""
    known = other = 0
    numbers = iter(range(calls))

    async def caller() -> None:
        nonlocal known, other
        for number in numbers:
            changed = number % 10 == 9
            batch = events_of(number % RUNS, data=2 if changed else 1)
            results = await store.events.append_events(batch, expected_seq=number)
            assert [one.run_seq for one in results] == [*range(1, EVENTS + 1)]
            known += sum(one.idempotent and not one.persisted for one in results)
            other += sum(one.payload_mismatch for one in results)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return known, other


def test_duplicates_change_nothing(engine: str, new_url: Callable[[], str]) -> None:
    calls = -(-DUPLICATES // EVENTS)

    async def main() -> None:
        async with holdfast.open_async(new_url()) as store:
            for run in range(RUNS):
                await store.events.append_events(events_of(run))
            before = await everything(store)
            began = time.monotonic()
            assert await append_again(store, calls) == (calls * EVENTS, calls // 10 * EVENTS)
            took = time.monotonic() - began
            sys.stderr.write(f"{engine}: {calls * EVENTS} duplicates in {took:.1f} s\n")
            assert await everything(store) == before
            # The control: one more event is seen.
            await store.events.append_event(Event("run0", "Noted", "new"))
            assert await everything(store) != before

    asyncio.run(main())

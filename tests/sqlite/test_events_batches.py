"""Appends that share a transaction end as they would one after the other."""

import asyncio
import random
from pathlib import Path
from uuid import UUID

import pytest

import holdfast
from holdfast import Conflict, Event

Call = tuple[list[Event], int | None]
"""Events of one run, and where the run is expected to be."""

RUNS = ("a", "b", "c")


def _calls(choice: random.Random) -> list[Call]:
    """Calls of which many are new, and some are known, twice the same or not as expected."""
    calls: list[Call] = []
    for _ in range(60):
        run_id = choice.choice(RUNS)
        events = []
        for _ in range(choice.choice((1, 1, 1, 2, 3))):
            event_id = str(UUID(int=choice.randrange(200))) if choice.random() < 0.5 else None
            key = f"key-{choice.randrange(150)}"
            events.append(Event(run_id, "Noted", key, choice.randrange(3), event_id=event_id))
        calls.append((events, choice.choice((None, None, None, choice.randrange(12)))))
    return calls


async def _told(store: holdfast.AsyncStore, events: list[Event], expected: int | None) -> object:
    try:
        if len(events) == 1:
            return [await store.events.append_event(events[0], expected_seq=expected)]
        return await store.events.append_events(events, expected_seq=expected)
    except Conflict as conflict:
        return str(conflict)


async def _kept(store: holdfast.AsyncStore) -> list[tuple[object, ...]]:
    return [
        (event.run_id, event.run_seq, event.idempotency_key, event.event_data)
        for run_id in RUNS
        for event in await store.events.fetch_events(run_id)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_calls_in_one_batch_end_as_they_do_one_by_one(tmp_path: Path, seed: int) -> None:
    calls = _calls(random.Random(seed))

    async def main() -> None:
        async with await holdfast.open_async(f"sqlite:///{tmp_path}/one.db") as store:
            one_by_one = [await _told(store, *call) for call in calls]
            kept = await _kept(store)
        async with await holdfast.open_async(f"sqlite:///{tmp_path}/all.db") as store:
            together = await asyncio.gather(*(_told(store, *call) for call in calls))
            assert await _kept(store) == kept
        assert together == one_by_one
        assert any(isinstance(told, str) for told in together)

    asyncio.run(main())


def test_a_run_is_begun_behind_an_event_that_is_known(tmp_path: Path) -> None:
    async def main() -> None:
        async with await holdfast.open_async(f"sqlite:///{tmp_path}/x.db") as store:
            await store.events.append_event(Event("a", "Noted", "1"))
            known, new = Event("a", "Noted", "1"), Event("b", "Noted", "1")
            told = await asyncio.gather(*map(store.events.append_event, (known, new, new)))
            numbers = [(one.run_seq, one.idempotent) for one in told]
            assert numbers == [(1, True), (1, False), (1, True)]
            assert await store.events.list_runs() == ["a", "b"]

    asyncio.run(main())

"""Writers of a race on the same runs, and who follows them; tasks of `holdfast.testing.fleet`."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import holdfast
from holdfast import Event, Store

RUNS = ("a", "b.c", "\u00e4 *")
THREADS = 4
_PATIENCE = 60.0

Acknowledged = tuple[str, str, int, bool]
"""Run, key, number, and whether this call has stored it."""


def append(gate: Callable[[], None], *, url: str, racer: int, calls: int) -> list[Acknowledged]:
    """Append alone, some together, under a condition, and what others append too."""
    with holdfast.open(url) as store:
        gate()
        with ThreadPoolExecutor(THREADS) as pool:
            writers = [f"{racer}.{thread}" for thread in range(THREADS)]
            work = [pool.submit(_append, store, writer, calls) for writer in writers]
            return [one for done in work for one in done.result()]


def _append(store: Store, writer: str, calls: int) -> list[Acknowledged]:
    rng = random.Random(writer)
    acknowledged: list[Acknowledged] = []
    for call in range(calls):
        run = rng.choice(RUNS)
        keys = [f"{writer} {call} {number}" for number in range(rng.choice((1, 1, 1, 5)))]
        if rng.random() < 0.3:
            keys.append(f"everybody's {rng.randrange(calls)}")
        events = [Event(run, "Noted", key, {"writer": writer}) for key in keys]
        expected = None
        if rng.random() < 0.2:
            last = store.events.get_snapshot(run)
            expected = last.last_event_seq if last else 0
        try:
            results = store.events.append_events(events, expected_seq=expected)
        except holdfast.Conflict:
            assert expected is not None
            continue
        acknowledged += [
            (run, key, result.run_seq, result.persisted)
            for key, result in zip(keys, results, strict=True)
        ]
    store.events.append_event(Event(f"end of {writer}", "Ended", "end"))
    return acknowledged


def follow(gate: Callable[[], None], *, url: str, writers: int) -> list[tuple[str, int]]:
    """What the feed tells until all writers have ended, going on from its cursor at times."""
    told: list[tuple[str, int]] = []
    ended = 0
    cursor: str | None = None
    deadline = time.monotonic() + _PATIENCE
    with holdfast.open(url) as store:
        gate()
        while ended < writers:
            with store.events.feed(after=cursor) as feed:
                for _ in range(100):
                    one = feed.next(1.0)
                    if isinstance(one, holdfast.FeedEvent):
                        told.append((one.event.run_id, one.event.run_seq))
                        ended += one.event.event_type == "Ended"
                        cursor = one.cursor
                    assert time.monotonic() < deadline, f"{ended} of {writers} have ended"
                    if ended == writers:
                        break
    return told

"""Sixteen writers on the same runs, and readers of the feed meanwhile.

HOLDFAST_APPENDS is how many calls each writer makes, HOLDFAST_SEED repeats their choices.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.fleet import Fleet
from tests.races.event_checker import Acknowledged, Log, Told, wrong_in_feed, wrong_in_log

TASKS = Path(__file__).with_name("event_tasks.py")
PROCESSES, THREADS = 4, 4
CALLS = int(os.environ.get("HOLDFAST_APPENDS", "25"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))


@pytest.fixture(params=["sqlite", "postgres", "valkey", "nats"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Reader = tuple[str, dict[str, Any]]
FEEDS: list[Reader] = [
    ("follow", {"seed": SEED, "resumed": False}),
    ("follow", {"seed": SEED, "resumed": True}),
]


def race(
    fleet: Fleet, url: str, readers: Sequence[Reader]
) -> tuple[list[Acknowledged], list[Any], Log]:
    """What writers and readers were told, and what there is in the end."""
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    holdfast.open(url).close()
    orders: list[dict[str, Any]] = [
        {"url": url, "seed": SEED, "process": process, "threads": THREADS, "calls": CALLS}
        for process in range(PROCESSES)
    ]
    orders += [{"url": url, "writers": PROCESSES, **order} for _, order in readers]
    tasks = ["append"] * PROCESSES + [task for task, _ in readers]
    results = fleet.run([f"{TASKS}:{task}" for task in tasks], orders)
    acknowledged = [
        (run, key, seq, new)
        for told in results[:PROCESSES]
        for run, key, seq, new in told
    ]  # fmt: skip
    acknowledged += [(f"done/{process}", "done", 1, True) for process in range(PROCESSES)]
    log: dict[str, list[tuple[int, str]]] = {}
    with holdfast.open(url) as store:
        for run in store.events.list_runs():
            events = log.setdefault(run, [])
            while page := store.events.fetch_events(run, after_seq=len(events)):
                events += [(event.run_seq, event.idempotency_key) for event in page]
    return acknowledged, results[PROCESSES:], log


def test_writers_lose_and_double_nothing_and_readers_are_told_all(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    acknowledged, told, log = race(fleet, new_url(), [*FEEDS, ("poll", {})])
    *feeds, pages = told
    assert wrong_in_log(acknowledged, log) == []
    for feed in feeds:
        assert wrong_in_feed(feed, log) == []
    assert feeds[0] == feeds[1], "two readers were told in different orders"
    assert wrong_in_feed([one for page in pages for one in page], log) == []
    assert len(pages) > len(log), "void: each run was read once, at its end"
    assert len(feeds[0]) > PROCESSES * THREADS * CALLS / 2, "void: hardly anything was appended"
    again = sum(not new for _, _, _, new in acknowledged)
    assert again > CALLS, "void: hardly any key came twice"
    writers = Counter(key.split(".")[0] for events in log.values() for _, key in events)
    assert min(writers[str(process)] for process in range(PROCESSES)) > CALLS


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_naive_reader_of_the_feed_misses_events(fleet: Fleet, new_url: Callable[[], str]) -> None:
    for _ in range(5):
        _, (told,), log = race(fleet, new_url(), [("follow_naively", {})])
        if wrong_in_feed(told, log):
            return
    pytest.fail("void: five races, and the control never missed anything")


# The checker


LOG: Log = {"a": [(1, "x"), (2, "y"), (3, "z")], "b": [(1, "x")]}
ACKNOWLEDGED: list[Acknowledged] = [
    ("a", "x", 1, True),
    ("a", "y", 2, True),
    ("b", "x", 1, True),
    ("a", "x", 1, False),
    ("a", "z", 3, True),
]
TOLD: Told = [("a", 1, "x"), ("b", 1, "x"), ("a", 2, "y"), ("a", 3, "z")]


def test_the_checker_finds_nothing_where_nothing_is_wrong() -> None:
    assert wrong_in_log(ACKNOWLEDGED, LOG) == []
    assert wrong_in_feed(TOLD, LOG) == []


@pytest.mark.parametrize(
    ("acknowledged", "log"),
    [
        (ACKNOWLEDGED, {**LOG, "a": [(1, "x"), (3, "z")]}),
        (ACKNOWLEDGED, {**LOG, "a": [(1, "x"), (2, "y"), (4, "z")]}),
        (ACKNOWLEDGED, {**LOG, "a": [(1, "x"), (2, "y"), (3, "z"), (4, "x")]}),
        (ACKNOWLEDGED, {**LOG, "a": [(2, "y"), (1, "x"), (3, "z")]}),
        (ACKNOWLEDGED, {**LOG, "b": [(1, "x"), (2, "never asked for")]}),
        ([*ACKNOWLEDGED, ("b", "lost", 2, True)], LOG),
        ([*ACKNOWLEDGED, ("a", "x", 2, False)], LOG),
        ([*ACKNOWLEDGED, ("a", "x", 1, True)], LOG),
        (ACKNOWLEDGED[1:], LOG),
    ],
    ids=["gap", "number", "twice", "order", "phantom", "lost", "moved", "new_twice", "nobodys"],
)
def test_a_planted_fault_of_a_log_is_found(acknowledged: list[Acknowledged], log: Log) -> None:
    assert wrong_in_log(acknowledged, log)


@pytest.mark.parametrize(
    "told",
    [
        [TOLD[0], *TOLD[2:]],
        TOLD[:-1],
        [*TOLD, TOLD[1]],
        [TOLD[0], TOLD[0], *TOLD[1:]],
        [TOLD[2], TOLD[0], *TOLD[1:2], TOLD[3]],
        [("a", 1, "y"), *TOLD[1:]],
        [*TOLD, ("c", 1, "x")],
    ],
    ids=["missed", "end", "double", "double_first", "order", "other", "phantom"],
)
def test_a_planted_fault_of_a_feed_is_found(told: Told) -> None:
    assert wrong_in_feed(told, LOG)

"""Followers of a store that eight processes write to: nothing missed, doubled or out of order."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.fleet import Fleet

TASKS = Path(__file__).with_name("tasks.py")
CHANGES = int(os.environ.get("HOLDFAST_CHANGES", "12000"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
WRITERS = 8
STARTS = ("live", "resumed", "late")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet(WRITERS + len(STARTS), timeout=60 + CHANGES / 100) as fleet:
        yield fleet


def race(fleet: Fleet, url: str, *, follow: str, starts: tuple[str, ...]) -> list[Any]:
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    writing: list[dict[str, Any]] = [
        {
            "url": url,
            "seed": f"{SEED}/{process}",
            "process": process,
            "writers": WRITERS,
            "changes": CHANGES // WRITERS,
        }
        for process in range(WRITERS)
    ]
    following: list[dict[str, Any]] = [
        {"url": url, "seed": f"{SEED}/{start}", "start": start, "writers": WRITERS}
        for start in starts
    ]
    holdfast.open(url).close()
    tasks = [f"{TASKS}:write"] * WRITERS + [f"{TASKS}:{follow}"] * len(starts)
    return fleet.run(tasks, writing + following)


def test_followers_miss_double_and_reorder_nothing(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    url = new_url()
    results = race(fleet, url, follow="follow", starts=STARTS)
    made, reports = sum(results[:WRITERS]), results[WRITERS:]
    assert made >= CHANGES // WRITERS * WRITERS
    with holdfast.open(url) as store:
        versions = {}
        for name in store.cells.list():
            cell = store.cells.get_versioned(name)
            assert cell is not None
            versions[name] = cell.version
    assert sum(versions.values()) == made + WRITERS
    for start, report in zip(STARTS, reports, strict=True):
        sys.stderr.write(f"{start}: {report['heard']} changes of {made + WRITERS}\n")
        assert report["wrong"] == [], start
        # All but the very last, which others may still have been making when it ended.
        assert report["last"] == versions, start
    assert reports[0]["heard"] == reports[1]["heard"] == made + WRITERS
    assert reports[2]["heard"] <= made + WRITERS


def test_a_naive_follower_misses_changes(fleet: Fleet, new_url: Callable[[], str]) -> None:
    for _ in range(5):
        report = race(fleet, new_url(), follow="follow_naively", starts=("live",))[-1]
        if report["wrong"]:
            return
    pytest.fail("void: five runs, and the control never missed anything")

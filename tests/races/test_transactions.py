"""Transfers between accounts, by the transactions of several processes."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.fleet import Fleet

TASKS = Path(__file__).with_name("tasks.py")
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
PROCESSES = 8
ACCOUNTS = 4
TIMES = 25
START = 1000


def race(fleet: Fleet, url: str, *, together: bool, round_: int = 0) -> int:
    orders = [
        {
            "url": url,
            "seed": f"{SEED}/{round_}/{process}",
            "accounts": ACCOUNTS,
            "times": TIMES,
            "together": together,
        }
        for process in range(PROCESSES)
    ]
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    return sum(fleet.run(f"{TASKS}:transfer", orders))


def names() -> list[str]:
    return [f"account{number}" for number in range(ACCOUNTS)]


def test_transfers_keep_the_sum_and_none_is_lost(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url = new_url()
    with holdfast.open(url) as store:
        store.cells.set_many(dict.fromkeys(names(), START))
        attempts = race(fleet, url, together=True)
        values = [store.cells.get(name) for name in names()]
        versions = sum(len(store.cells.getv(name)) for name in names())
    assert sum(values) == ACCOUNTS * START
    assert versions == ACCOUNTS + 2 * PROCESSES * TIMES
    if url.startswith("postgresql"):
        assert attempts > PROCESSES * TIMES, "void: nobody ever met a conflict"


def test_transfers_in_two_commits_do_not(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url = new_url()
    with holdfast.open(url) as store:
        store.cells.set_many(dict.fromkeys(names(), START))
        for round_ in range(10):
            race(fleet, url, together=False, round_=round_)
            if sum(store.cells.get(name) for name in names()) != ACCOUNTS * START:
                return
    pytest.fail("ten races without transactions left the sum right: the processes do not meet")

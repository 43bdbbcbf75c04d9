"""Counters, first creation and first opening, raced by real processes."""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.fleet import Fleet

TASKS = Path(__file__).with_name("tasks.py")
PROCESSES = 8


def test_cas_increments_of_eight_processes_lose_nothing(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    url, times = new_url(), 30
    total = PROCESSES * times
    with holdfast.open(url) as store:
        store.cells.init("counter", 0)
        order = {"url": url, "name": "counter", "times": times, "cas": True}
        beaten = fleet.run(f"{TASKS}:increment", [order] * PROCESSES)
        history = store.cells.getv("counter")
    assert [(cell.version, cell.value) for cell in history] == [
        (n + 1, n) for n in range(total, -1, -1)
    ]
    assert [cell.commit_id for cell in history] == sorted(
        {cell.commit_id for cell in history}, reverse=True
    )
    assert sum(beaten) >= PROCESSES, "void: the processes hardly met"


def test_increments_by_get_and_set_do_lose(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url, times = new_url(), 30
    with holdfast.open(url) as store:
        for attempt in range(10):
            name = f"counter{attempt}"
            store.cells.init(name, 0)
            order = {"url": url, "name": name, "times": times, "cas": False}
            fleet.run(f"{TASKS}:increment", [order] * PROCESSES)
            if store.cells.get(name) < PROCESSES * times:
                return
    pytest.fail("ten races without cas lost nothing: the processes do not meet")


def test_of_many_creators_exactly_one_wins(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url, rounds, threads = new_url(), 40, 4
    with holdfast.open(url) as store:
        orders = [
            {"url": url, "racer": racer, "threads": threads, "rounds": rounds}
            for racer in range(PROCESSES)
        ]
        won = fleet.run(f"{TASKS}:create", orders)
        for number in range(rounds):
            winners = [me for racer in won for me in racer[number]]
            cell = store.cells.get_versioned(f"round{number}")
            assert cell is not None
            assert winners == [cell.value]
            assert cell.version == 1
            assert len(store.cells.getv(f"round{number}")) == 1
    processes = {me.split(".")[0] for racer in won for names in racer for me in names}
    assert len(processes) > 1, "void: one process won every round, so there was no race"


def test_ten_processes_open_the_same_fresh_database_at_once(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    racers = 10
    urls = [new_url() for _ in range(5)]
    orders = [{"urls": urls, "racer": racer} for racer in range(racers)]
    assert fleet.run(f"{TASKS}:open_first", orders) == [[1] * len(urls)] * racers
    for url in urls:
        with holdfast.open(url) as store:
            assert store.cells.list() == [f"racer{racer}" for racer in range(racers)]

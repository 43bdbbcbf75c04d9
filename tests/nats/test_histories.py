"""Histories of several processes on a few hot cells: linearizable, also while nodes are killed.

HOLDFAST_HISTORIES and HOLDFAST_HISTORY_OPS scale the run; HOLDFAST_SEED repeats one.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.testing.fleet import Fleet
from holdfast.testing.linearizability import CellModel, Operation, check
from holdfast.testing.nats import NatsCluster, NatsServer
from holdfast.testing.recorder import history

HISTORIES = int(os.environ.get("HOLDFAST_HISTORIES", "2"))
OPERATIONS = int(os.environ.get("HOLDFAST_HISTORY_OPS", "1200"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
PROCESSES, CALLERS, CELLS = 4, 2, 3
TASKS = ["holdfast.testing.recorder:record_blocking", "holdfast.testing.recorder:record_async"]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet(PROCESSES) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with NatsCluster() as cluster:
        yield cluster


def record(fleet: Fleet, url: str, number: int) -> list[Operation]:
    orders = [
        {
            "url": url,
            "callers": CALLERS,
            "cells": [f"h{number}.{cell}" for cell in range(CELLS)],
            "operations": OPERATIONS // (PROCESSES * CALLERS),
            "process": process,
            "seed": f"{SEED}/{number}/{process}",
        }
        for process in range(PROCESSES)
    ]
    tasks = list(itertools.islice(itertools.cycle(TASKS), PROCESSES))
    return history(fleet.run(tasks, orders))


def check_histories(fleet: Fleet, url: str, enough: Callable[[], bool] = lambda: True) -> float:
    """The share of calls with no known outcome: in HISTORIES, and more until it is enough."""
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    unknown = 0
    for number in itertools.count():
        if number >= HISTORIES and enough():
            break
        ops = record(fleet, url, number)
        verdict = check(ops, CellModel())
        assert verdict, f"HOLDFAST_SEED={SEED}, history {number}\n{verdict}"
        won = sum(op.call == "cas" and op.result is not None for op in ops)
        assert won > OPERATIONS // 50, f"history {number} is void"
        unknown += sum(op.unknown for op in ops)
    return unknown / (number * OPERATIONS)


def test_one_server_is_linearizable(fleet: Fleet, server: NatsServer) -> None:
    assert check_histories(fleet, server.fresh_url()) == 0


def test_three_replicas_are_linearizable(fleet: Fleet, cluster: NatsCluster) -> None:
    assert check_histories(fleet, cluster.fresh_url(replicas="3")) == 0


def test_three_replicas_are_linearizable_while_nodes_are_killed(
    fleet: Fleet, cluster: NatsCluster
) -> None:
    over = threading.Event()
    kills = 0

    def disturb() -> None:
        nonlocal kills
        for node in itertools.cycle(range(3)):
            cluster.kill(node)
            kills += 1
            cluster.start_node(node)
            if over.wait(1):
                return

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        url = cluster.fresh_url(replicas="3", call_timeout="20")
        unknown = check_histories(fleet, url, enough=lambda: kills > 1 or not disturber.is_alive())
    finally:
        over.set()
        disturber.join()
    assert kills > 1
    assert unknown < 0.1

"""Histories of several processes on a few hot cells: every one is linearizable per cell.

See tests/races for the same on SQL, and for the fault that the checker must find.
"""

from __future__ import annotations

import random

import pytest

from holdfast.testing.fleet import Fleet
from holdfast.testing.linearizability import CellModel, check
from holdfast.testing.recorder import history
from holdfast.testing.valkey import ValkeyServer

PROCESSES = 4
OPERATIONS = 1600
SEED = random.randrange(10**9)


@pytest.mark.parametrize("colours", [["blocking"], ["async"], ["blocking", "async"]], ids="+".join)
def test_every_history_is_linearizable(colours: list[str]) -> None:
    tasks = [f"holdfast.testing.recorder:record_{colour}" for colour in colours]
    with ValkeyServer() as server, Fleet(PROCESSES) as fleet:
        order = {
            "url": server.fresh_url(),
            "callers": 2,
            "cells": ["a", "b", "c"],
            "operations": OPERATIONS // PROCESSES // 2,
        }
        orders = [
            {**order, "process": process, "seed": f"{SEED}/{process}"}
            for process in range(PROCESSES)
        ]
        ops = history(fleet.run([tasks[n % len(tasks)] for n in range(PROCESSES)], orders))
    verdict = check(ops, CellModel())
    assert verdict, f"seed {SEED}\n{verdict}"
    assert not [op for op in ops if op.unknown], "a call failed though nothing disturbed it"
    cas = [op for op in ops if op.call == "cas"]
    assert len(ops) == OPERATIONS
    assert sum(op.result is not None for op in cas) > OPERATIONS // 50
    assert sum(op.result is None for op in cas) > OPERATIONS // 50

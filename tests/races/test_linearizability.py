"""Histories of several processes on a few hot cells: every one is linearizable per cell.

HOLDFAST_HISTORIES (per engine) and HOLDFAST_HISTORY_OPS scale the run; HOLDFAST_SEED repeats one.
"""

import os
import random
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence

import pytest

from holdfast.testing.fleet import Fleet
from holdfast.testing.linearizability import CellModel, Operation, check
from holdfast.testing.recorder import history

COLOURS = [["blocking"], ["async"], ["blocking", "async"]]
HISTORIES = -(-int(os.environ.get("HOLDFAST_HISTORIES", "9")) // len(COLOURS))
OPERATIONS = int(os.environ.get("HOLDFAST_HISTORY_OPS", "2000"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
PROCESSES = 8
CELLS = 4


def record(
    fleet: Fleet, url: str, *, number: int, colours: Sequence[str], torn_cas: bool = False
) -> list[Operation]:
    callers = 2
    order = {
        "url": url,
        "callers": callers,
        "cells": [f"h{number}/{cell}" for cell in range(CELLS)],
        "operations": -(-OPERATIONS // (PROCESSES * callers)),
        **({"torn_cas": True} if torn_cas else {}),
    }
    seeds = [f"{SEED}/{number}/{process}" for process in range(PROCESSES)]
    tasks = [f"holdfast.testing.recorder:record_{colour}" for colour in colours]
    return history(
        fleet.run(
            [tasks[process % len(tasks)] for process in range(PROCESSES)],
            [{**order, "process": process, "seed": seed} for process, seed in enumerate(seeds)],
        )
    )


def overlapping(ops: Sequence[Operation]) -> int:
    """How many operations began while another process was working on the same cell."""
    met = 0
    for name in {op.args[0] for op in ops}:
        here = sorted((op for op in ops if op.args[0] == name), key=lambda op: op.start)
        starts = [op.start for op in here]
        for index, op in enumerate(here):
            inside = here[index + 1 : bisect_left(starts, op.end)]
            met += any(other.process != op.process for other in inside)
    return met


def void(ops: Sequence[Operation]) -> str:
    """Why the run proves nothing, or an empty string."""
    wanted = -(-OPERATIONS // (PROCESSES * 2)) * PROCESSES * 2
    cas = [op for op in ops if op.call == "cas" and not op.unknown]
    found = {
        "operations": (len(ops), wanted),
        "successful cas": (sum(op.result is not None for op in cas), wanted // 50),
        "failed cas": (sum(op.result is None for op in cas), wanted // 50),
        "overlapping operations": (overlapping(ops), wanted // 20),
    }
    return ", ".join(
        f"{what}: {n}, needs {least}" for what, (n, least) in found.items() if n < least
    )


@pytest.mark.parametrize("colours", COLOURS, ids="+".join)
def test_every_history_is_linearizable(
    fleet: Fleet,
    new_url: Callable[[], str],
    engine: str,
    colours: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    url = new_url()
    for number in range(HISTORIES):
        ops = record(fleet, url, number=number, colours=colours)
        verdict = check(ops, CellModel())
        assert verdict, f"HOLDFAST_SEED={SEED}, history {number}\n{verdict}"
        assert not [op for op in ops if op.unknown], "a call failed though nothing disturbed it"
        assert not void(ops), f"history {number} is void: {void(ops)}"
        if "HOLDFAST_HISTORIES" in os.environ:
            with capfd.disabled():
                done = f"{engine} {'+'.join(colours)}: {number + 1} of {HISTORIES} histories"
                sys.stderr.write(f"\r{done}, {verdict} ")
                sys.stderr.flush()


def test_a_cas_in_two_steps_is_found(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url = new_url()
    for number in range(10):
        ops = record(fleet, url, number=number, colours=["blocking"], torn_cas=True)
        verdict = check(ops, CellModel())
        if not verdict:
            assert "cannot be placed" in str(verdict)
            return
    pytest.fail(f"HOLDFAST_SEED={SEED}: ten histories with a torn cas passed as linearizable")

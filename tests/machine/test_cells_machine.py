"""Every engine agrees with the model of cells over thousands of random steps.

HOLDFAST_EXAMPLES scales the run, to programs of 100 steps; HOLDFAST_SEED repeats one.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing.servers import PostgresServer
from tests.machine.cells_machine import CellsMachine
from tests.machine.lockstep import Bench
from tests.machine.planted import BRANCH_FAULTS, FAULTS, Planted, PlantedBranches
from tests.machine.planted_feeds import FEED_FAULTS
from tests.machine.planted_sessions import SESSION_FAULTS

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "300"))
LONG_RUN = "HOLDFAST_EXAMPLES" in os.environ
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
# A new PostgreSQL schema costs 50 ms. Examples share a database in turn, in their own namespaces.
SHARING = 25
SETTINGS = settings(
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
EVERYWHERE = ["set", "init", "cas won", "cas lost", "delete", "set_many", "burst", "refused"]
EVERYWHERE += ["get", "get_versioned", "getv", "list", "get_at", "looks", "blocking", "asyncio"]
EVERYWHERE += ["fork of branches", "delete of branches", "merge of branches", "diff of branches"]
EVERYWHERE += ["merged cells", "merged deletes", "merge conflict", "differences", "missing branch"]
EVERYWHERE += ["sessions committed", "sessions in conflict", "sessions rolled back"]
EVERYWHERE += ["sessions without branch", "watches read", "replayed", "changes told"]
EVERYWHERE += ["watches ended with their branch"]
SHARED = ["watches resumed", "reopened", "second store", "prune", "pruned versions"]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


def test_sqlite_file_agrees_with_the_model(tmp_path: Path) -> None:
    options = itertools.cycle(
        [
            "durability=cache",
            "durability=cache&commit=thread",
            "durability=standard",
            "durability=always",
        ]
    )

    def new_database(number: int) -> str:
        for file in tmp_path.iterdir():
            file.unlink()
        return f"sqlite:///{tmp_path}/{number}.db?{next(options)}"

    counts = compare("SQLite file", in_turns(new_database), steps=16)
    assert_busy(counts, [*EVERYWHERE, *SHARED], steps=16)


def test_sqlite_in_memory_agrees_with_the_model() -> None:
    counts = compare("SQLite in memory", lambda: "sqlite://:memory:", steps=16)
    assert_busy(counts, EVERYWHERE, steps=16)


def test_postgres_agrees_with_the_model(database: str) -> None:
    urls = in_turns(lambda number: f"{database}?schema=s{number}&durability=standard")
    counts = compare("PostgreSQL 18", urls, steps=10)
    assert_busy(counts, [*EVERYWHERE, *SHARED], steps=10)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_machine_finds_a_planted_fault(fault: type[Planted]) -> None:
    find(Bench(lambda: "sqlite://:memory:", Counter(), fault, last=False), fault.__name__)


@pytest.mark.parametrize("fault", BRANCH_FAULTS, ids=lambda fault: fault.__name__)
def test_machine_finds_a_planted_fault_of_branches(fault: type[PlantedBranches]) -> None:
    find(Bench(lambda: "sqlite://:memory:", Counter(), branches=fault, last=False), fault.__name__)


@pytest.mark.parametrize("fault", SESSION_FAULTS, ids=lambda fault: fault.__name__)
def test_machine_finds_a_planted_fault_of_sessions(fault: type[Planted]) -> None:
    find(Bench(lambda: "sqlite://:memory:", Counter(), fault, last=False), fault.__name__)


@pytest.mark.parametrize("fault", FEED_FAULTS, ids=lambda fault: fault.__name__)
def test_machine_finds_a_planted_fault_of_feeds(fault: type[Planted]) -> None:
    bench = Bench(lambda: "sqlite://:memory:", Counter(), fault, patience=0.2, last=False)
    find(bench, fault.__name__)


def find(bench: Bench, fault: str) -> None:
    # Finding it is enough: no shrinking, no search for further ones.
    once = settings(
        SETTINGS,
        max_examples=5000,  # it takes some 500 at most; only a fault that is not found takes all
        stateful_step_count=30,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run(bench, once, fault)


def compare(engine: str, url: Callable[[], str], *, steps: int) -> Counter[str]:
    bench = Bench(url, Counter())
    size = settings(SETTINGS, max_examples=EXAMPLES, stateful_step_count=100 if LONG_RUN else steps)
    try:
        run(bench, size, engine)
    finally:
        activity = ", ".join(f"{count} {what}" for what, count in bench.counts.most_common())
        sys.stderr.write(f"HOLDFAST_SEED={SEED}: {engine}: {activity}\n")
    return bench.counts


def run(bench: Bench, size: settings, label: str) -> None:
    # Every label gets programs of its own from the one seed.
    machine = seed(f"{SEED} {label}")(lambda: CellsMachine(bench))
    run_state_machine_as_test(machine, settings=size)  # type: ignore[arg-type] # any factory does


def in_turns(new_database: Callable[[int], str]) -> Callable[[], str]:
    """Gives the same database to some examples in a row, then the next."""
    urls = (url for number in itertools.count() for url in [new_database(number)] * SHARING)
    return lambda: next(urls)


def assert_busy(counts: Counter[str], activities: list[str], *, steps: int) -> None:
    assert counts["steps"] >= EXAMPLES * steps // 2
    idle = {what: counts[what] for what in activities if counts[what] < EXAMPLES // 100}
    assert not idle, f"HOLDFAST_SEED={SEED}: hardly happened in {EXAMPLES} examples: {idle}"

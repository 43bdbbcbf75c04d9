"""Every engine agrees with the model of events over thousands of random steps.

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

from holdfast import StoreError
from holdfast.testing.nats import NatsServer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer
from tests.machine.events_machine import EventsBench, EventsMachine
from tests.machine.planted_events import EVENT_FAULTS, PlantedEvents

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "60"))
LONG_RUN = "HOLDFAST_EXAMPLES" in os.environ
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
SHARING = 25  # examples on one database, in namespaces of their own
SETTINGS = settings(
    deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
EVERYWHERE = ["new", "known", "mismatches", "refused", "several", "bursts", "deleted"]
EVERYWHERE += ["not deleted", "get_snapshot", "keep_snapshot", "fetched", "followed", "looks"]
SQL = ["transactions", "rolled back"]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


def test_sqlite_file_agrees_with_the_model_of_events(tmp_path: Path) -> None:
    urls = in_turns(lambda number: f"sqlite:///{tmp_path}/{number}.db?durability=cache")
    compare("SQLite file", urls, [*EVERYWHERE, *SQL, "second store"])


def test_sqlite_in_memory_agrees_with_the_model_of_events() -> None:
    compare("SQLite in memory", lambda: "sqlite://:memory:", [*EVERYWHERE, *SQL])


def test_postgres_agrees_with_the_model_of_events(database: str) -> None:
    urls = in_turns(lambda number: f"{database}?schema=s{number}&durability=standard")
    compare("PostgreSQL 18", urls, [*EVERYWHERE, *SQL, "second store"])


def test_valkey_agrees_with_the_model_of_events() -> None:
    with ValkeyServer({"appendfsync": "no"}) as server:
        urls = in_turns(lambda number: server.url(prefix=f"s{number}", durability="standard"))
        compare("Valkey", urls, [*EVERYWHERE, "second store"])


def test_nats_agrees_with_the_model_of_events() -> None:
    with NatsServer() as server:
        urls = in_turns(lambda number: server.url(bucket=f"s{number}"))
        compare("NATS", urls, [*EVERYWHERE, "second store"])


@pytest.mark.parametrize("fault", EVENT_FAULTS, ids=lambda fault: fault.__name__)
def test_machine_finds_a_planted_fault_of_events(fault: type[PlantedEvents]) -> None:
    bench = EventsBench(lambda: "sqlite://:memory:", Counter(), fault, last=False)
    # Finding it is enough: no shrinking, no search for further ones.
    once = settings(
        SETTINGS,
        max_examples=5000,  # it takes some 500 at most; only a fault that is not found takes all
        stateful_step_count=30,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises((AssertionError, pytest.fail.Exception, StoreError)):
        run(bench, once, fault.__name__)


def compare(engine: str, url: Callable[[], str], wanted: list[str]) -> None:
    bench = EventsBench(url, Counter())
    size = settings(SETTINGS, max_examples=EXAMPLES, stateful_step_count=100 if LONG_RUN else 25)
    try:
        run(bench, size, engine)
    finally:
        activity = ", ".join(f"{count} {what}" for what, count in bench.counts.most_common())
        sys.stderr.write(f"HOLDFAST_SEED={SEED}: {engine}: {activity}\n")
    idle = {what: bench.counts[what] for what in wanted if bench.counts[what] < EXAMPLES // 20}
    assert not idle, f"HOLDFAST_SEED={SEED}: hardly happened in {EXAMPLES} examples: {idle}"


def run(bench: EventsBench, size: settings, label: str) -> None:
    machine = seed(f"{SEED} {label}")(lambda: EventsMachine(bench))
    run_state_machine_as_test(machine, settings=size)  # type: ignore[arg-type] # any factory does


def in_turns(new_database: Callable[[int], str]) -> Callable[[], str]:
    """Gives the same database to some examples in a row, then the next."""
    urls = (url for number in itertools.count() for url in [new_database(number)] * SHARING)
    return lambda: next(urls)

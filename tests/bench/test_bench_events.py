"""The benchmark of events runs, counts rightly and checks its work. No time is looked at."""

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from bench.contenders.holdfast_events import Program
from bench.events import ENGINES, scenarios
from bench.goals import GOALS
from bench.scenario import Work
from holdfast import Event
from tests.bench.test_bench import run_bench

FEW = ("--ops", "20", "--rounds", "1")
OURS = ["holdfast blocking", "holdfast async", "holdfast async uvloop"]


def run_events(tmp_path: Path, engine: str, *options: str) -> dict[str, dict[str, Any]]:
    """The rows of the only scenario, by contender."""
    file = tmp_path / "figures.json"
    result = run_bench(*options, "--json", f"{file}", benchmark="events", engine=engine)
    assert result.returncode == 0, result.stdout + result.stderr
    (scenario,) = json.loads(file.read_text())["scenarios"]
    return {row["contender"]: row for row in scenario["rows"]}


def test_appends_are_measured_beside_the_peers(tmp_path: Path) -> None:
    rows = run_events(tmp_path, "sqlite", "--only", "append-1", *FEW)
    assert list(rows) == ["eventsourcing", "raw apsw", *OURS]
    for label in OURS:
        assert rows[label]["per_operation"]["transactions"] == 1.0
    assert rows["raw apsw"]["per_operation"]["statements"] == 1.0


@pytest.mark.parametrize("scenario", ["append-ten", "replay", "feed"])
def test_contenders_do_the_same_work_on_a_server(tmp_path: Path, scenario: str) -> None:
    options = ("--ops", "2", "--rounds", "1", "--events", "300")
    rows = run_events(tmp_path, "postgres", "--only", scenario, *options)
    assert list(rows) == ["eventsourcing", "raw psycopg", *OURS]
    assert {row["failed"] for row in rows.values()} == {None}


def test_snapshot_costs_as_many_statements_for_a_long_run(tmp_path: Path) -> None:
    rows = run_events(tmp_path, "sqlite", "--only", "snapshot", "--events", "3000", *FEW)
    few, many = (rows[label]["per_operation"]["statements"] for label in ("few", "many"))
    assert few == many


def test_other_engines_are_measured_alone(tmp_path: Path) -> None:
    rows = run_events(tmp_path, "redis", "--only", "append-1", *FEW)
    assert list(rows) == OURS


def test_every_goal_is_about_lines_that_there_are() -> None:
    lines = {
        (scenario.name, scenario.engine): {one.label for one in scenario.contenders}
        for scenario in scenarios(1000)
    }
    names = {name for name, _ in lines}
    goals = [goal for goal in GOALS if goal.scenario in names and goal.engine in ENGINES]
    assert {goal.engine for goal in goals} == set(ENGINES)
    for goal in goals:
        assert {goal.contender, goal.against} <= lines[goal.scenario, goal.engine]


def test_program_checks_what_is_in_the_store(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    program = Program(str(file), Work("append_ten"), {}, None)
    program.open()
    step = program.caller(0)
    for number in range(1, 4):
        step(number)
    program.verify(3)
    with holdfast.open(f"sqlite:///{file}") as store:
        store.events.append_event(Event(Work("append_ten").cells(0)[0], "StepCompleted", "more"))
    with pytest.raises(AssertionError, match="31 events arrived, 30 were appended"):
        program.verify(3)
    program.close()

"""The benchmark of records runs, counts rightly and checks its work. No time is looked at."""

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from bench.contenders.holdfast_records import Program
from bench.goals import GOALS
from bench.records import scenarios
from bench.scenario import Work, record
from bench.written import Written
from tests.bench.test_bench import run_bench

FEW = ("--ops", "20", "--rounds", "1")


def run_records(tmp_path: Path, engine: str, *options: str) -> dict[str, dict[str, Any]]:
    """The rows of the only scenario, by contender."""
    file = tmp_path / "figures.json"
    result = run_bench(*options, "--json", f"{file}", benchmark="records", engine=engine)
    assert result.returncode == 0, result.stdout + result.stderr
    (scenario,) = json.loads(file.read_text())["scenarios"]
    return {row["contender"]: row for row in scenario["rows"]}


def test_swaps_are_measured_and_counted(tmp_path: Path) -> None:
    rows = run_records(tmp_path, "sqlite", "--only", "record-swap-1", *FEW)
    ours = [label for label in rows if label.startswith("holdfast")]
    assert ours == ["holdfast blocking", "holdfast async", "holdfast async uvloop"]
    for label in ours:
        assert rows[label]["per_operation"]["transactions"] == 1.0
        assert rows[label]["per_operation"]["cpu_us"] > 0


def test_scan_costs_as_many_statements_among_many(tmp_path: Path) -> None:
    options = ("--only", "record-due", "--rows", "12000", *FEW)
    rows = run_records(tmp_path, "sqlite", *options)
    few, many = (rows[label]["per_operation"]["statements"] for label in ("few", "many"))
    assert few == many == 3.0


def test_syncs_of_a_server_are_counted(tmp_path: Path) -> None:
    rows = run_records(tmp_path, "redis", "--only", "record-swap-1", *FEW)
    # Without a compiler there is nothing that counts them.
    assert {row["per_operation"]["syncs"] for row in rows.values()} <= {1.0, None}


def test_bare_nats_is_measured_beside_ours(tmp_path: Path) -> None:
    rows = run_records(tmp_path, "nats", "--only", "record-field-1", *FEW)
    assert next(iter(rows)) == "nats-py"
    assert all(row["per_operation"]["server_cpu_us"] is not None for row in rows.values())


def test_every_goal_is_about_lines_that_there_are() -> None:
    lines = {
        (scenario.name, scenario.engine): {one.label for one in scenario.contenders}
        for scenario in scenarios(1000)
    }
    goals = [goal for goal in GOALS if goal.scenario.startswith("record-")]
    assert goals
    for goal in goals:
        assert {goal.contender, goal.against} <= lines[goal.scenario, goal.engine]


def test_record_has_12_fields_and_differs_from_write_to_write() -> None:
    assert len(record(1)) == 12
    assert record(1) != record(2)


def test_write_that_did_not_arrive_is_found() -> None:
    written = Written(Work("put"))
    name = next(iter(written.last))
    written.last[name] = 2
    written.check(name, record(2))
    with pytest.raises(AssertionError, match="did not arrive"):
        written.check(name, record(1))
    with pytest.raises(AssertionError, match="did not arrive"):
        written.check(name, None)


def test_program_checks_what_is_in_the_store(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    program = Program(str(file), Work("put"), {}, None)
    program.open()
    step = program.caller(0)
    for number in range(1, 4):
        step(number)
    program.verify(3)
    with holdfast.open(f"sqlite:///{file}") as store:
        store.records.set_field(Work("put").all_cells()[1], "step", 7)
    with pytest.raises(AssertionError, match="write 1 did not arrive"):
        program.verify(3)
    program.close()

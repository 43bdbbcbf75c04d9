"""The benchmark runs, counts rightly and judges its goals. No figure of time is looked at."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import transfers
from bench.goals import Goal, Verdict, judge
from bench.results import Outcome, Row
from bench.scenario import Contender, Scenario, Work
from holdfast import Cell

ROOT = Path(__file__).parents[2]


def run_bench(
    *options: str, benchmark: str = "cells", engine: str = "sqlite"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", benchmark, "--engine", engine, *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("shim", [[], ["--no-shim"]], ids=["shim if possible", "no shim"])
def test_table_and_json_tell_what_each_operation_cost(tmp_path: Path, shim: list[str]) -> None:
    file = tmp_path / "figures.json"
    result = run_bench(
        "--only", "set-10", "--ops", "50", "--rounds", "1", "--json", f"{file}", *shim
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "sqlite set-10" in result.stdout
    report = json.loads(file.read_text())
    assert report["run"]["ops"] == 50
    (scenario,) = report["scenarios"]
    rows: dict[str, Any] = {row["contender"]: row for row in scenario["rows"]}
    assert list(rows) == ["raw apsw", "holdfast async", "holdfast async uvloop"]
    for label, row in rows.items():
        assert label in result.stdout
        assert row["failed"] is None
        assert row["lowest"] <= row["ops_per_second"] <= row["highest"]
        assert row["per_operation"]["cpu_us"] > 0
    assert scenario["baseline"] == "raw apsw"
    assert rows["raw apsw"]["ratio"] == 1.0
    # What is known by hand holds the counters to account: a commit each against one for ten.
    raw, ours = (rows[label]["per_operation"] for label in ("raw apsw", "holdfast async"))
    assert (raw["syncs"], raw["statements"], raw["transactions"]) == (1.0, 1.0, 1.0)
    assert 0 < ours["syncs"] < 1
    assert 0 < ours["transactions"] < 1


def test_branches_are_measured_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ("--only", "levels", "--ops", "20", "--rounds", "1", "--json", f"{file}")
    result = run_bench(*options)
    assert result.returncode == 0, result.stdout + result.stderr
    (scenario,) = json.loads(file.read_text())["scenarios"]
    # One statement, through however many levels.
    assert {
        row["contender"]: row["per_operation"]["statements"] for row in scenario["rows"]
    } == dict.fromkeys(["main", "1 level", "16 levels", "async, main", "async, 16 levels"], 1.0)
    assert [goal["contender"] for goal in scenario["goals"]] == ["16 levels", "async, 16 levels"]


def test_sessions_are_measured_against_loops(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ("--only", "transfer-1-threads", "--ops", "20", "--rounds", "1", "--json", f"{file}")
    result = run_bench(*options)
    assert result.returncode == 0, result.stdout + result.stderr
    (scenario,) = json.loads(file.read_text())["scenarios"]
    assert {
        row["contender"]: (row["per_operation"]["transactions"], row["accepted"])
        for row in scenario["rows"]
    } == {"all in one cell, CAS": (1.0, 1.0), "two CAS loops": (2.0, 1.0), "session": (1.0, 1.0)}


def test_transfers_that_lose_something_have_failed() -> None:
    def cell(value: object, version: int) -> Cell:
        return Cell(value, version, updated_at=0, commit_id=0)

    good = [cell(999, 2), cell(1001, 2)]
    assert transfers.check("session", good, tried=2, done=1) == {"accepted": 0.5}
    with pytest.raises(AssertionError, match="is left"):
        transfers.check("session", [cell(999, 2), cell(1000, 2)], tried=1, done=1)
    with pytest.raises(AssertionError, match="counted"):
        transfers.check("session", good, tried=2, done=2)
    everyone = [cell({"a": 999, "b": 1001}, 2)]
    assert transfers.check("one cell", everyone, tried=1, done=1) == {"accepted": 1.0}


def test_unknown_scenario_is_refused() -> None:
    result = run_bench("--only", "no-such-scenario")
    assert result.returncode == 2
    assert "--list" in result.stderr


def outcome(mine: float, theirs: float) -> Outcome:
    work = Work("set")
    rows = {
        label: Row(Contender(label, "unused", work), timed=[{"ops": rate, "seconds": 1.0}])
        for label, rate in (("holdfast blocking", mine), ("holdfast async", mine))
    }
    rows["raw apsw"] = Row(
        Contender("raw apsw", "unused", work), timed=[{"ops": theirs, "seconds": 1.0}]
    )
    contenders = tuple(row.contender for row in rows.values())
    return Outcome(Scenario("set-1", "set", "sqlite", contenders, "raw apsw"), rows)


def test_goal_is_met_from_its_ratio_on() -> None:
    assert [verdict.met for verdict in judge(outcome(80.0, 100.0))] == [True, True]
    assert [verdict.met for verdict in judge(outcome(79.0, 100.0))] == [False, False]


def test_goal_without_figures_is_neither_met_nor_missed() -> None:
    without = outcome(80.0, 100.0)
    without.rows["raw apsw"].timed.clear()
    assert [verdict.met for verdict in judge(without)] == [None, None]


def test_count_goal_is_met_up_to_its_number() -> None:
    goal = Goal("budget", "sqlite", "async, 1 caller", "syncs", 1.02)
    assert Verdict(goal, 1.02).met is True
    assert Verdict(goal, 1.03).met is False

"""Projectors as processes: killed and started anew, several at once, stopped by a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import holdfast
from tests.daemons.processes import command, kill, totals, until
from tests.projector.views import PATH, check_kept, event, kept

RUNS = [f"run-{number}" for number in range(10)]


def _start(url: str, lease: float) -> subprocess.Popen[str]:
    options = ("--projection", PATH, "--lease", lease, "--every", "0.02", "--json")
    return command("project", url, *options)


def _parts(store: holdfast.Store) -> list[int]:
    """How many shards each projector has."""
    found = store.records.scan("holdfast.projector.shard.")
    return sorted(Counter(record.fields.get("owner") for _, record in found).values())


def _stop(process: subprocess.Popen[str]) -> dict[str, float]:
    process.send_signal(signal.SIGTERM)
    return totals(process)


def test_killed_projectors_leave_nothing_out_and_fold_nothing_twice(url: str) -> None:
    with holdfast.open(url) as store:
        running = [_start(url, 0.5), _start(url, 0.5)]
        number = 0
        for _ in range(2):
            for _ in range(30):
                for run_id in RUNS:
                    store.events.append_event(event(run_id, number))
                number += 1
            until(lambda: any(min(kept(url, run_id)) > 0 for run_id in RUNS))
            kill(running.pop(0))
            running.append(_start(url, 0.5))
        for run_id in RUNS:
            store.events.append_event(event(run_id, number))
        until(lambda: all(kept(url, run_id) == (number + 1,) * 2 for run_id in RUNS))
        until(lambda: _parts(store) == [8, 8])  # both are there to hear the signal
        left = [_stop(process) for process in running]
    assert check_kept(url, RUNS) == len(RUNS) * (number + 1)
    for done in left:
        assert (done["failed"], done["gaps"], done["marked"]) == (0, 0, 0)


def test_two_that_nobody_kills_do_every_event_once(url: str) -> None:
    with holdfast.open(url) as store:
        for run_id in RUNS:
            store.events.append_event(event(run_id, 0))
        # Long enough for a slow machine: one that stands still for longer does some work again.
        running = [_start(url, 6), _start(url, 6)]
        until(lambda: all(kept(url, run_id) == (1, 1) for run_id in RUNS))
        until(lambda: _parts(store) == [8, 8])
        for number in range(1, 40):
            for run_id in RUNS:
                store.events.append_event(event(run_id, number))
        until(lambda: all(kept(url, run_id) == (40, 40) for run_id in RUNS))
        done = [_stop(process) for process in running]
    count = check_kept(url, RUNS)
    assert sum(one["events"] for one in done) == 2 * count
    assert min(one["events"] for one in done) > 0


def test_once_does_what_is_there_in_all_namespaces(url: str) -> None:
    with holdfast.open(url) as store:
        for name in ("default", "other"):
            for number in range(3):
                store.namespace(name).events.append_event(event("r", number))
    options = ("--projection", PATH, "--once", "--json")
    done = totals(command("project", url, *options, "--all-namespaces"))
    assert (done["events"], done["kept"], done["marked"]) == (12, 4, 0)
    for name in ("default", "other"):
        assert check_kept(url, ["r"], name) == 3
    again = totals(command("project", url, *options))
    assert (again["events"], again["kept"]) == (0, 0)


def test_a_namespace_that_is_new_is_projected_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with holdfast.open(url) as store:
        one, two = store.namespace("one"), store.namespace("two")
        process = command("project", url, "--projection", PATH, "--all-namespaces", "--json")
        one.events.append_event(event("r", 0))
        until(lambda: kept(url, "r", "one") == (1, 1))
        two.events.append_event(event("r", 0))
        until(lambda: kept(url, "r", "two") == (1, 1))
        assert _stop(process)["events"] == 4
        for view in (one, two):  # what it looked after is free
            shards = list(view.records.scan("holdfast.projector.shard."))
            assert [record.fields.get("owner") for _, record in shards] == [None] * 16


def test_a_fold_that_raises_is_told_at_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    module = tmp_path / "broken_views.py"
    module.write_text(
        "from holdfast import Projection\n"
        "broken = Projection('broken', lambda total, event: total + event.event_data, initial=0)\n"
    )
    with holdfast.open(url) as store:
        store.events.append_event(event("r", 0))
    words = ["project", url, "--once", "--projection", "broken_views:broken"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kept 1" in done.stdout
    assert "failed 1, marked 1" in done.stdout
    assert "TypeError" in done.stderr

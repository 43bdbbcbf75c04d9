"""The tables that a benchmark prints, and the same figures as JSON."""

import os
import platform
import sys
from collections.abc import Iterable
from statistics import median
from typing import Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from bench.disk import IN_MEMORY_RATE
from bench.goals import Verdict, judge
from bench.results import Outcome, Row

_WIDTH: Final = 132  # when the output is no terminal: nothing is cut off
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_TO: Final = "\N{EN DASH}"
_NONE: Final = _TO
_COLUMNS: Final = ("ops/s", f"min{_TO}max", "ratio", "syncs", "stmts", "tx", "CPU µs", "server µs")


def console() -> Console:
    """Where the tables go: standard output, as wide as they need."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def table(outcome: Outcome) -> Group:
    """One scenario: a line per contender, then a line per goal."""
    scenario = outcome.scenario
    title = f"{scenario.engine} {scenario.name}: {scenario.title}"
    grid = Table(title=title, title_justify="left", title_style="bold", caption=_disk(outcome))
    grid.caption_justify = "left"
    grid.add_column("contender", min_width=24)
    for name in _COLUMNS:
        grid.add_column(name, justify="right", no_wrap=True)
    for row in outcome.rows.values():
        grid.add_row(row.contender.label, *_cells(row, outcome.baseline))
    problems = [_problem_line(row) for row in outcome.rows.values() if _problem(row)]
    return Group(grid, *problems, *(_goal_line(verdict) for verdict in judge(outcome)), "")


def as_json(outcomes: Iterable[Outcome], run: dict[str, object]) -> dict[str, object]:
    """Everything that the tables show, and the rates of every round."""
    return {
        "run": {**machine(), **run},
        "scenarios": [
            {
                "name": outcome.scenario.name,
                "engine": outcome.scenario.engine,
                "title": outcome.scenario.title,
                "baseline": outcome.scenario.baseline,
                "disk_syncs_per_second": [outcome.syncs_before, outcome.syncs_after],
                "rows": [row.as_json(outcome.baseline) for row in outcome.rows.values()],
                "goals": [verdict.as_json() for verdict in judge(outcome)],
            }
            for outcome in outcomes
        ],
    }


def machine() -> dict[str, object]:
    """What the figures depend on: interpreter, cores, and how busy they were."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def summary(outcomes: Iterable[Outcome]) -> Text:
    """How many goals were met, and which were missed."""
    verdicts = [(o.scenario, verdict) for o in outcomes for verdict in judge(o)]
    missed = [f"{s.engine} {s.name}" for s, verdict in verdicts if verdict.met is False]
    met = sum(verdict.met is True for _, verdict in verdicts)
    aims = sum(verdict.aim_met is True for _, verdict in verdicts)
    unknown = sum(verdict.met is None for _, verdict in verdicts)
    text = Text(f"goals: {met} of {len(verdicts)} met, {aims} of them at what we aim for")
    if unknown:
        text.append(f"; {unknown} not measured")
    if missed:
        text.append("; missed: " + ", ".join(dict.fromkeys(missed)), style="red")
    return text


def _cells(row: Row, baseline: Row | None) -> list[str | Text]:
    if problem := _problem(row):
        return [Text(problem, style="yellow"), *[""] * (len(_COLUMNS) - 1)]
    rates = row.rates
    ratio = None if baseline is None else row.ratio_to(baseline)
    accepted = row.note("accepted")
    return [
        f"{median(rates):,.0f}" + ("" if accepted is None else f" ({accepted:.0%} accepted)"),
        f"{min(rates):,.0f}{_TO}{max(rates):,.0f}",
        _NONE if ratio is None else f"{ratio:.2f}{_TIMES}",
        *(_number(row.per_operation(name)) for name in ("syncs", "statements", "transactions")),
        *(_micros(row.per_operation(name)) for name in ("cpu_seconds", "server_cpu_seconds")),
    ]


def _problem(row: Row) -> str:
    if row.unavailable:
        return "not available"
    return "FAILED" if row.failed else ""


def _problem_line(row: Row) -> Text:
    reason = row.unavailable or row.failed
    return Text(f"  {row.contender.label}, {_problem(row)}: {reason}", style="yellow")


def _number(count: float | None) -> str:
    return _NONE if count is None else f"{count:.3f}"


def _micros(seconds: float | None) -> str:
    return _NONE if seconds is None else f"{seconds * 1e6:.1f}"


def _disk(outcome: Outcome) -> str:
    before, after = outcome.syncs_before, outcome.syncs_after
    if before is None or after is None:
        return "every sync has the fixed length"
    text = f"the disk by itself: {before:,.0f} syncs/s before, {after:,.0f} after"
    if max(before, after) > IN_MEMORY_RATE:
        text += "; this is no disk: pass --dir with a folder on one"
    return text


def _goal_line(verdict: Verdict) -> Text:
    goal = verdict.goal
    if goal.measure == "rate":
        wanted = f"≥ {goal.must:g}{_TIMES} {goal.against}" + (
            f", aim {goal.aim:g}{_TIMES}" if goal.aim else ""
        )
        measured = "" if verdict.measured is None else f"{verdict.measured:.2f}{_TIMES}"
    else:
        wanted = f"≤ {goal.must:g} {goal.measure} per operation"
        measured = "" if verdict.measured is None else f"{verdict.measured:.3f}"
    words, style = {
        None: ("not measured", "yellow"),
        False: ("MISSED", "red"),
        True: ("met, and the aim" if verdict.aim_met else "met", "green"),
    }[verdict.met]
    line = Text(f"  goal: {goal.contender} {wanted}: ")
    return line.append(f"{measured} {words}".strip(), style=style)

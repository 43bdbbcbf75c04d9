"""The goals of PERFORMANCE.md and of the issues, in one table, and the verdict on each.

A goal holds one line of one scenario against another line of it (`rate`), or against a number
per operation (`syncs`, `statements`). Nothing here is a result.
"""

from dataclasses import dataclass
from typing import Final, Literal

from bench.results import Outcome
from bench.scenario import Engine

Measure = Literal["rate", "syncs", "statements"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a contender must reach: a ratio of rates at least, or a count at most."""

    scenario: str
    engine: Engine
    contender: str
    measure: Measure
    must: float
    aim: float | None = None
    against: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal with what was measured; None if its rows have no figures."""

    goal: Goal
    measured: float | None

    @property
    def met(self) -> bool | None:
        """Whether what must be is."""
        return self._reaches(self.goal.must)

    @property
    def aim_met(self) -> bool | None:
        """Whether what we aim for is."""
        return None if self.goal.aim is None else self._reaches(self.goal.aim)

    def _reaches(self, wanted: float) -> bool | None:
        if self.measured is None:
            return None
        if self.goal.measure == "rate":
            return self.measured >= wanted
        return self.measured <= wanted

    def as_json(self) -> dict[str, object]:
        """The verdict for the JSON file."""
        return {
            "contender": self.goal.contender,
            "measure": self.goal.measure,
            "against": self.goal.against,
            "must": self.goal.must,
            "aim": self.goal.aim,
            "measured": self.measured,
            "met": self.met,
            "aim_met": self.aim_met,
        }


def _rate(
    place: tuple[str, Engine], contender: str, against: str, must: float, aim: float | None = None
) -> Goal:
    return Goal(*place, contender, "rate", must, aim, against)


def _counts(
    place: tuple[str, Engine], contender: str, *, syncs: float, statements: float
) -> list[Goal]:
    goals = [Goal(*place, contender, "syncs", syncs)]
    if place[1] == "postgres":
        goals.append(Goal(*place, contender, "statements", statements))
    return goals


_ALL: Final[tuple[Engine, ...]] = ("sqlite", "postgres", "redis", "nats")

GOALS: Final[list[Goal]] = [
    # A durable set costs little more than a commit by hand, in both colours.
    _rate(("set-1", "sqlite"), "holdfast blocking", "raw apsw", 0.8),
    _rate(("set-1", "sqlite"), "holdfast async", "raw apsw", 0.8),
    _rate(("set-1", "postgres"), "holdfast blocking", "raw psycopg", 0.8),
    # Like against like: psycopg's async colour by itself costs a part of the rate.
    _rate(("set-1", "postgres"), "holdfast async", "raw psycopg async", 0.8),
    _rate(("cas-1", "sqlite"), "holdfast blocking", "strata", 0.9, 1.0),
    _rate(("cas-1", "sqlite"), "holdfast async", "strata", 0.9, 1.0),
    _rate(("cas-100", "sqlite"), "holdfast async", "strata", 10, 15),
    _rate(("get-1", "sqlite"), "holdfast blocking", "raw apsw", 0.5),
    # "The same" at 5,000 versions: within what two rounds of the same program differ.
    _rate(("history", "sqlite"), "5,000 versions", "1 version", 0.9),
    _rate(("history", "postgres"), "5,000 versions", "1 version", 0.9),
    # Ours: a point read is a point read, also while the database's statistics are old.
    _rate(("grown", "sqlite"), "20,064 cells", "64 cells", 0.8),
    _rate(("grown", "postgres"), "20,064 cells", "64 cells", 0.8),
    _rate(("saturated", "sqlite"), "holdfast inline", "aiosqlite", 20, 50),
    *(
        _rate((scenario, engine), crowd, "one by one", 5, 15)
        for engine in ("sqlite", "postgres")
        for scenario, crowd in (
            ("hot-set", "100 tasks"),
            ("hot-set-threads", "100 threads"),
            ("hot-cas", "100 tasks"),
        )
    ),
    # A fork copies nothing: within what two rounds of the same program differ.
    *(
        _rate(("fork", engine), f"{colour}100,000 cells", f"{colour}100 cells", 0.9)
        for engine in ("sqlite", "postgres")
        for colour in ("", "async, ")
    ),
    *(
        _rate(("levels", engine), f"{colour}16 levels", f"{colour}main", 1 / 5)
        for engine in ("sqlite", "postgres")
        for colour in ("", "async, ")
    ),
    *(
        goal
        for engine in ("sqlite", "postgres")
        for contender, syncs, statements in (
            ("blocking, 1 caller", 1.02, 1.0),
            ("async, 1 caller", 1.02, 1.0),
            ("async, 100 callers", 0.02, 0.02),
        )
        for goal in _counts(("budget", engine), contender, syncs=syncs, statements=statements)
    ),
    *(
        _rate(("record-put-1", "sqlite"), colour, "diskcache, FULL", 1, 1.1)
        for colour in ("holdfast blocking", "holdfast async")
    ),
    _rate(("record-put-100", "sqlite"), "holdfast async", "py-key-value, NORMAL", 4, 8),
    _rate(("record-get-1", "sqlite"), "holdfast blocking", "diskcache, FULL", 1.1, 1.4),
    _rate(("record-get-1", "sqlite"), "holdfast async", "py-key-value, NORMAL", 3, 5),
    # Like against like: py-key-value is async.
    _rate(("record-put-1", "postgres"), "holdfast async", "py-key-value", 1.3, 1.5),
    _rate(("record-put-100", "postgres"), "holdfast async", "py-key-value", 8, 15),
    _rate(("record-put-1", "redis"), "holdfast async", "py-key-value", 1.1, 1.4),
    _rate(("record-put-100", "redis"), "holdfast async", "py-key-value", 6, 9),
    *(
        _rate((f"record-{operation}-{callers}", "nats"), "holdfast async", "nats-py", must, 0.95)
        for operation in ("put", "get")
        for callers, must in ((1, 0.85), (100, 0.8))
    ),
    *(
        _rate(("append-1", "sqlite"), colour, "eventsourcing", 1, 1.15)
        for colour in ("holdfast blocking", "holdfast async")
    ),
    _rate(("append-1", "postgres"), "holdfast blocking", "eventsourcing", 1.3, 1.8),
    # The peer takes one writer at a time, and is fastest when nobody waits for its lock.
    _rate(("append-100", "sqlite"), "holdfast async", "eventsourcing, 1 caller", 15, 30),
    _rate(("append-100", "postgres"), "holdfast async", "eventsourcing, 1 caller", 15, 40),
    *(_rate(("append-hot", engine), "100 tasks", "one by one", 5, 15) for engine in _ALL),
    _rate(("replay", "sqlite"), "holdfast blocking", "eventsourcing", 2, 3),
    *(
        _rate(("snapshot", engine), f"{colour}many", f"{colour}few", 0.5)
        for engine in _ALL
        for colour in ("", "async, ")
    ),
    # "Within 2x": half the rate.
    *(
        _rate(("record-due", engine), f"{colour}many", f"{colour}few", 0.5)
        for engine in ("sqlite", "postgres", "redis")
        for colour in ("", "async, ")
    ),
]


def judge(outcome: Outcome) -> list[Verdict]:
    """The verdicts on every goal of the outcome's scenario."""
    scenario = outcome.scenario
    here = [g for g in GOALS if (g.scenario, g.engine) == (scenario.name, scenario.engine)]
    return [Verdict(goal, _measured(goal, outcome)) for goal in here]


def _measured(goal: Goal, outcome: Outcome) -> float | None:
    row = outcome.rows[goal.contender]
    if goal.measure != "rate":
        return row.per_operation(goal.measure)
    assert goal.against is not None
    return row.ratio_to(outcome.rows[goal.against])

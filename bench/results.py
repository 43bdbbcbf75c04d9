"""What the rounds of a scenario gave: figures per contender, and their medians.

A ratio is the median of the ratios within each round, not the ratio of two medians: a round's
contenders ran side by side on the same mood of the disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.scenario import Contender, Scenario

Figures = Mapping[str, float]

_COUNTS: Final = ("syncs", "statements", "transactions")


@dataclass(slots=True)
class Row:
    """One contender's figures: a timed run per round, and one run that counted."""

    contender: Contender
    timed: list[Figures] = field(default_factory=list)
    counted: Figures = field(default_factory=dict)
    # Why there are no figures: the package is not to be had, or the program failed.
    unavailable: str | None = None
    failed: str | None = None

    @property
    def rates(self) -> list[float]:
        """Operations per second, round by round."""
        return [figures["ops"] / figures["seconds"] for figures in self.timed]

    def per_operation(self, name: str) -> float | None:
        """A count or a number of seconds, divided by the operations; None if not measured.

        From the timed rounds where it costs nothing to know, else from the counting run.
        """
        values = [figures[name] / figures["ops"] for figures in self.timed if name in figures]
        if values:
            return median(values)
        return self.counted[name] / self.counted["ops"] if name in self.counted else None

    def note(self, name: str) -> float | None:
        """The median of a figure that the program adds on its own; None if it has none."""
        values = [figures[name] for figures in self.timed if name in figures]
        return median(values) if values else None

    def ratio_to(self, other: "Row") -> float | None:
        """How many times the other's rate this one's is; None if one of them has none."""
        if self.failed or other.failed:
            return None
        pairs = list(zip(self.rates, other.rates, strict=False))
        return median(mine / theirs for mine, theirs in pairs) if pairs else None

    def as_json(self, baseline: "Row | None") -> dict[str, object]:
        """The row for the JSON file."""
        rates = self.rates
        microseconds = {
            f"{name}_us": None
            if (secs := self.per_operation(f"{name}_seconds")) is None
            else secs * 1e6
            for name in ("cpu", "server_cpu")
        }
        return {
            "contender": self.contender.label,
            "callers": self.contender.work.callers,
            "ops_per_second": median(rates) if rates else None,
            "lowest": min(rates, default=None),
            "highest": max(rates, default=None),
            "rounds": rates,
            "ratio": None if baseline is None else self.ratio_to(baseline),
            "per_operation": {
                **{name: self.per_operation(name) for name in _COUNTS},
                **microseconds,
            },
            "accepted": self.note("accepted"),
            "unavailable": self.unavailable,
            "failed": self.failed,
        }


@dataclass(slots=True)
class Outcome:
    """A scenario with its rows, and the disk's sync rate before and after (None: length fixed)."""

    scenario: Scenario
    rows: dict[str, Row]
    syncs_before: float | None = None
    syncs_after: float | None = None

    @property
    def baseline(self) -> Row | None:
        """The row that the others are divided by."""
        return None if self.scenario.baseline is None else self.rows[self.scenario.baseline]

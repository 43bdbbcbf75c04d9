"""What is compared: a scenario, its contenders, and the work each of them does.

A contender is a program of `bench.contenders` with a piece of work. The work usually is the
same for all contenders of a scenario; where it is what is compared (one caller or a hundred,
one version or thousands) the program is the same instead.

This module and all that the child process imports use the standard library only: some
contenders live in an environment of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

Engine = Literal["sqlite", "postgres", "redis", "nats"]
Operation = Literal[
    "set", "cas", "increment", "get", "get_versioned", "fork", "merge", "transfer",
    "put", "set_field", "compare_and_swap", "scan",
    "append", "append_ten", "replay", "feed", "snapshot",
]  # fmt: skip
Environment = Literal["own", "strata", "aiosqlite", "diskcache", "py-key-value", "eventsourcing"]

# One caller walks over this many cells, many callers share them out: a single page would
# flatter every contender.
_CELLS: Final = 64


@dataclass(frozen=True, slots=True)
class Work:
    """What the callers do together, `operation` by `operation`."""

    operation: Operation
    callers: int = 1
    # All callers on one cell, instead of cells of their own.
    hot: bool = False
    # Versions that each cell has before the clock starts.
    versions: int = 1
    # Cells that others add after the store was opened and used: plans made early must hold.
    others: int = 0
    # Milliseconds that another task of the loop burns before it lets the others run, in turn.
    burn_ms: Sequence[float] = ()
    # Forks, one of the other, between `main` and the branch that is read.
    levels: int = 0
    # Cells that are written on a branch before each merge.
    changes: int = 0
    # What is written are records of 12 fields, not the small values of cells.
    records: bool = False
    # Records that are there before the clock starts, in a database that all rounds share.
    rows: int = 0
    # Events that are there before the clock starts, all of one run.
    events: int = 0

    def cells(self, caller: int) -> list[str]:
        """The names that a caller uses in turn."""
        if self.hot or self.versions > 1 or self.events:
            return ["cell-hot"]
        return [f"cell-{caller}-{number}" for number in range(max(1, _CELLS // self.callers))]

    def all_cells(self) -> list[str]:
        """Every name that any caller uses, each once."""
        return list(dict.fromkeys(name for n in range(self.callers) for name in self.cells(n)))

    def other_cells(self) -> list[str]:
        """The names of the cells that others add."""
        return [f"other-{number}" for number in range(self.others)]

    def chain(self) -> list[tuple[str, str]]:
        """The branches that are there before the clock starts: source and name."""
        if self.changes:
            return [("main", "trial")]
        names = ["main", *(f"level-{level}" for level in range(1, self.levels + 1))]
        return list(pairwise(names))

    def content(self, number: int) -> Mapping[str, object]:
        """What the write of that number writes."""
        return record(number) if self.records else value(number)

    @property
    def branch(self) -> str:
        """The branch that is read."""
        return f"level-{self.levels}" if self.levels else "main"

    @property
    def writes(self) -> bool:
        """Whether each operation leaves something new in the database."""
        return self.operation in {"set", "cas", "increment", "put"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A line of the table: `program` is a module of bench.contenders that does `work`."""

    label: str
    program: str
    work: Work
    environment: Environment = "own"
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table: contenders that run interleaved, and the one that the others are divided by."""

    name: str
    title: str
    engine: Engine
    contenders: tuple[Contender, ...]
    baseline: str | None = None
    # Counts need no repetition; such a scenario runs one round.
    counts_only: bool = False


def value(number: int) -> dict[str, object]:
    """A small JSON value that is different for each number: the same bytes are not rewritten."""
    return {"n": number, "state": "running", "owner": "worker-7", "score": number * 0.5}


def record(number: int) -> dict[str, str | int]:
    """The record of 12 fields, a task of a job, different for each number."""
    return {
        "state": "claimed",
        "worker": f"worker-{number % 7}",
        "queue": "mail",
        "kind": "send_invoice",
        "priority": 5,
        "attempt": 1 + number % 3,
        "max_attempts": 3,
        "created_at": 1_767_225_600_000,
        "updated_at": 1_767_225_600_000 + number,
        "timeout_at": 1_767_225_630_000 + number,
        "payload_ref": f"claims/2026/01/{number:012x}",
        "step": number,
    }

"""StrataDB's branches with durability "always": a fork copies every cell.

Its merge compares two sides, not three: every cell that differs is one that it reports as a
conflict, and by default the source's value is written. What it says it wrote is checked, and
that a second merge finds nothing to do.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from bench.branches import TRIAL, changed_cells, check_forks
from bench.callers import Step
from bench.scenario import Work, value
from bench.tally import Tally

_AT_ONCE: Final = 1000
_MAIN: Final = "default"


class Program:
    """Strata in its own environment, at the durability that we compare at."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, _options: dict[str, str], tally: Tally | None
    ) -> None:
        self._where: Final = where
        self._work: Final = work
        self._db: Any = None
        if tally is not None:
            tally.source = self._counts

    def open(self) -> None:
        """Set the durability, which counts from the next opening on, and make the cells."""
        strata = importlib.import_module("stratadb").Strata
        strata.open(self._where).configure_set("durability", "always")
        self._db = strata.open(self._where)
        assert self._db.config()["durability"] == "always"
        names = [*self._work.all_cells(), *self._work.other_cells()]
        for begin in range(0, len(names), _AT_ONCE):
            self._set_many(dict.fromkeys(names[begin : begin + _AT_ONCE], value(0)))
        for source, name in self._work.chain():
            self._db.checkout(_MAIN if source == "main" else source)
            self._db.fork(name)
        self._db.checkout(_MAIN)

    def caller(self, _number: int) -> Step:
        """The caller's operation."""
        db, work = self._db, self._work

        def fork(n: int) -> object:
            return db.fork(f"fork-{n}")

        def merge(n: int) -> object:
            db.checkout(TRIAL)
            self._set_many(changed_cells(work, n))
            db.checkout(_MAIN)
            merged = db.merge(TRIAL)["keys_applied"]
            assert merged == work.changes, f"{merged} of {work.changes} were merged"
            return merged

        return {"fork": fork, "merge": merge}[work.operation]

    def verify(self, done: int) -> None:
        """The branches that were made are there; after the last merge nothing differs."""
        if self._work.operation == "fork":
            check_forks(self._db.branches.list(), done)
        else:
            assert self._db.merge(TRIAL)["keys_applied"] == 0

    def close(self) -> None:
        """Strata closes with its last reference."""
        self._db = None

    def _set_many(self, values: Mapping[str, object]) -> None:
        entries = [{"cell": name, "value": item} for name, item in values.items()]
        for answer in self._db.state.batch_set(entries):
            assert "version" in answer, answer

    def _counts(self) -> Mapping[str, int]:
        counters = self._db.durability_counters()
        return {"transactions": counters["wal_appends"], "syncs": counters["sync_calls"]}

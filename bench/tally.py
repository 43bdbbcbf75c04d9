"""Counts that a contender's own process keeps: statements, transactions and, if need be, syncs.

Counting costs time, so it is done in a run of its own that is not timed.
"""

from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Tally:
    """What was counted so far, by hooks that others attach or by a source that a program names."""

    def __init__(self) -> None:
        # next() on a count is one step for the interpreter: threads lose nothing.
        self._numbers: Final = {name: count() for name in ("statements", "transactions")}
        self._readings = 0
        # Whether anybody attached hooks; without, there is nothing to tell.
        self.hooked = False
        self.sync_source: Callable[[], int] | None = None
        # A program that keeps counts by itself (a store that is not SQL) puts this here.
        self.source: Callable[[], Mapping[str, int]] | None = None

    def statement(self, *_: object) -> None:
        """Note one statement."""
        next(self._numbers["statements"])

    def transaction(self) -> None:
        """Note one transaction that wrote."""
        next(self._numbers["transactions"])

    def read(self) -> dict[str, int]:
        """The counts now; what is not counted is not there."""
        if self.source is not None:
            return dict(self.source())
        if not self.hooked:
            return {}
        # Looking at a count moves it on, so the looks before this one are taken off.
        counts = {name: next(number) - self._readings for name, number in self._numbers.items()}
        self._readings += 1
        if self.sync_source is not None:
            counts["syncs"] = self.sync_source()
        return counts

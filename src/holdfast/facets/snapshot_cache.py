"""Snapshots of runs that were read lately, for callers who take them a little older.

What this store object writes itself is never hidden: what was read before the last write to the
run does not count, also when its reader is slow and remembers it only after the write:

    reader                         writer
    begins to read, at 10
                                   has appended, at 11
    remembers what it saw at 10    -> never handed out
"""

from __future__ import annotations

import time
from typing import NamedTuple

from holdfast.facets.events import RunKey
from holdfast.facets.projection import RunSnapshot
from holdfast.facets.views_reading import Read, Warned

_MOST = 1000  # runs that were read
_MOST_WRITTEN = 10_000


class _Read(NamedTuple):
    at: float
    found: Read[RunSnapshot]


class SnapshotCache:
    """Of one store and all its namespaces. Single steps on dicts only, so threads may share it."""

    def __init__(self) -> None:
        self._read: dict[RunKey, _Read] = {}
        self._written: dict[RunKey, float] = {}
        self._begun = 0.0  # what was read before counts for nothing
        self._used = False
        self._closed = False
        self.warned = Warned()

    def begin(self) -> float:
        """Now, for who is about to read."""
        self._used = True
        return time.monotonic()

    def get(self, run: RunKey, max_age: float) -> Read[RunSnapshot] | None:
        """What was read at most so many seconds ago."""
        read = self._read.get(run)
        if read is None or self._closed or read.at <= max(self._begun, self._written.get(run, 0.0)):
            return None
        return read.found if time.monotonic() - read.at <= max_age else None

    def put(self, run: RunKey, begun: float, found: Read[RunSnapshot]) -> None:
        """Remember what somebody read who began then."""
        if len(self._read) >= _MOST:
            self._begin_anew()
        self._read[run] = _Read(begun, found)

    def forget(self, run: RunKey) -> None:
        """The run was written to, or may have been."""
        if not self._used:
            return
        if len(self._written) >= _MOST_WRITTEN:
            self._begin_anew()
        self._written[run] = time.monotonic()

    def close(self) -> None:
        """The store is closed: whoever asks is to hear that."""
        self._closed = True
        self._read.clear()

    def _begin_anew(self) -> None:
        # Rare, and cheaper than to know who was asked for last. First the time: who is reading now
        # may have begun before a write that is no longer known.
        self._begun = time.monotonic()
        self._read.clear()
        self._written.clear()


class TransactionCache(SnapshotCache):
    """In a transaction: remembers nothing but the runs to forget when it has been committed."""

    def __init__(self, of: SnapshotCache | None = None) -> None:
        super().__init__()
        self._of = of
        if of is not None:
            self.warned = of.warned
        self._runs: set[RunKey] = set()

    def get(self, run: RunKey, max_age: float) -> Read[RunSnapshot] | None:
        """See SnapshotCache."""
        del run, max_age
        return None

    def put(self, run: RunKey, begun: float, found: Read[RunSnapshot]) -> None:
        """See SnapshotCache."""
        del run, begun, found

    def forget(self, run: RunKey) -> None:
        """See SnapshotCache."""
        self._runs.add(run)

    def committed(self) -> None:
        """What the transaction wrote is there now."""
        for run in self._runs:
            if self._of is not None:
                self._of.forget(run)

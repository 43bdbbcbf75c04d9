"""What every write begins with: the time, the last commit id, and what there is to care for.

Reading that touches half a dozen tables, a third of what a lone set costs beside its sync. So
it is remembered for as long as nobody else has written: not another process, which the pager
notices when a transaction begins, and not another statement of ours, which SQLite counts.
"""

from __future__ import annotations

from time import time_ns
from typing import Any

import apsw

from holdfast.errors import Corrupt

_READ = """
SELECT
    s.clock_offset_us,
    (SELECT commit_id FROM holdfast_last_commit),
    EXISTS (SELECT 1 FROM holdfast_branches),
    EXISTS (SELECT 1 FROM holdfast_record_indexes)
FROM holdfast_store_state AS s
"""


_MOST_NOTES = 10_000

Moment = tuple[int, int, bool, bool]
"""The time by the store's clock, the last commit id given out, and whether there are branches
and indexes of records."""


class Moments:
    """Those of one writing connection. All inside its transactions."""

    def __init__(self, raw: apsw.Connection) -> None:
        self._read = raw.cursor().execute
        self._version = raw.data_version  # of the file, as the open transaction sees it
        self._changes = raw.total_changes  # rows changed through this connection
        self._offset = 0  # of the store's clock
        self._commit_id = 0
        self._forked = self._indexed = False
        self._at_version = self._at_changes = -1  # the file's and ours when that was so
        self.open = False  # from the first batch of a transaction on, until its end is told
        # What else is so until then, by where it is: ends of runs, newest versions of cells; and
        # which row a record is. Who notes keeps it right.
        self.notes: dict[Any, Any] = {}
        self.rows: dict[Any, tuple[int, bytes]] = {}

    def begin(self) -> Moment:
        """The moment of a batch that begins now."""
        self.open = True
        if self._version() != self._at_version or self._changes() != self._at_changes:
            self._look()
        # As clock.machine_us has it, without a frame for each write.
        return time_ns() // 1000 + self._offset, self._commit_id, self._forked, self._indexed

    def gave_out(self, commit_id: int) -> None:
        """The batch that has begun last gave out ids up to this one, and changed nothing else."""
        self._commit_id = commit_id
        self._at_changes = self._changes()
        if len(self.notes) + len(self.rows) > _MOST_NOTES:
            self._drop_notes()

    def committed(self) -> None:
        """The transaction is done: the file's version is ours."""
        if self.open:  # else nobody has looked whether others had written before
            self._at_version = self._version()
        self.open = False

    def forget(self) -> None:
        """The transaction was undone."""
        self._drop_notes()
        self._at_version = self._at_changes = -1
        self.open = False

    def _look(self) -> None:
        known = self._read(_READ).get
        if known is None:  # a guessed commit id could hide newer versions behind older ones
            raise Corrupt("SQLite: the row of holdfast_store_state is missing")
        self._offset, self._commit_id, self._forked, self._indexed = known
        self._at_version, self._at_changes = self._version(), self._changes()
        self._drop_notes()

    def _drop_notes(self) -> None:
        self.notes.clear()
        self.rows.clear()

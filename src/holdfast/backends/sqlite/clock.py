"""The store's clock on SQLite: this machine's, plus an offset that tests can move."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sqlite.connection import SqliteConnection

READ_OFFSET = "SELECT clock_offset_us FROM holdfast_store_state"
_MOVE = "UPDATE holdfast_store_state SET clock_offset_us = clock_offset_us + :by WHERE id = 1"


class MoveClock:
    """Shifts the offset by so many microseconds."""

    def apply(self, on: SqliteConnection, items: Sequence[int], *, repeat: bool) -> list[None]:
        """See Batch."""
        del repeat  # for tests only, which do not lose connections here
        for by in items:
            on.execute(_MOVE, {"by": by})
        return [None for _ in items]

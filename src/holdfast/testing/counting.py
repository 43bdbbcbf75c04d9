# ruff: noqa: N802, D102 -- apsw calls the x-methods by SQLite's names, SQLite documents them
"""The real disk, with a count of what SQLite writes and syncs.

Open a store with `?vfs=NAME`; locks, WAL and its shared memory work as without it.
The count is of SQLite's calls: a rate can be read on any machine as syncs per operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(slots=True)
class FileCounts:
    """How often a file was written and synced, and how many bytes were written."""

    syncs: int = 0
    writes: int = 0
    bytes_written: int = 0

    def __add__(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            self.syncs + other.syncs,
            self.writes + other.writes,
            self.bytes_written + other.bytes_written,
        )

    def __sub__(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            self.syncs - other.syncs,
            self.writes - other.writes,
            self.bytes_written - other.bytes_written,
        )


class CountingDisk(apsw.VFS):
    """The real disk, with a count of writes and syncs per file; WAL and its shared memory work.

    One count per connection, summed on request: connections of several threads
    need no lock to count.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self._counts: list[tuple[str, FileCounts]] = []

    def counts(self) -> dict[str, FileCounts]:
        """The counts by path since the disk was made."""
        total: dict[str, FileCounts] = {}
        for path, counts in self._counts:
            total[path] = total.get(path, FileCounts()) + counts
        return total

    def total(self) -> FileCounts:
        """The counts of all files; the cost of some work is the difference of two."""
        return sum((counts for _, counts in self._counts), start=FileCounts())

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        counts = FileCounts()
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._counts.append((path or "(temporary)", counts))
        return CountingFile(name, flags, counts)


class CountingFile(apsw.VFSFile):
    """One connection's handle on a real file."""

    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], counts: FileCounts
    ) -> None:
        super().__init__("", name, flags)
        self._counts = counts

    def xWrite(self, data: Buffer, offset: int) -> None:
        super().xWrite(data, offset)
        self._counts.writes += 1
        self._counts.bytes_written += memoryview(data).nbytes

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._counts.syncs += 1

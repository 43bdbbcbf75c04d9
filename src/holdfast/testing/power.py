"""A disk in memory that loses power, and what is left on it afterwards.

Until a file is synced, its writes wait in a log. `crash` decides what of them reached
the platter, within what a page cache and a journaling file system may do:

- per sector, some prefix of the writes that touched it, the next one perhaps torn;
  sectors are independent, so later writes may survive without earlier ones;
- a file that grew may be long and hold zeros or garbage where no data arrived;
- a truncate happens as a whole or not at all, and nothing after a lost one survives;
- per name, some prefix of its creations and deletions since the directory was synced.

What was synced is always there. A sync that failed has lost its writes for good: the
next one says yes without them, as Linux does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from holdfast.testing.disk import (
    SECTOR_BYTES,
    Failure,
    FaultyDisk,
    FileNode,
    Operation,
    resize,
    write_into,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from random import Random

# In time order, latest first, or each sector for itself.
Survival = Literal["early", "late", "scattered"]
SURVIVALS: tuple[Survival, ...] = ("early", "late", "scattered")

TORN_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that wait to reach the platter; `nth` is their place in time."""

    nth: int
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.offset + len(self.data)

    def by_sector(self) -> Iterator[tuple[int, Write]]:
        """The parts of the write, each inside one sector."""
        start = self.offset
        while start < self.end:
            sector = start // SECTOR_BYTES
            stop = min(self.end, (sector + 1) * SECTOR_BYTES)
            yield (
                sector,
                Write(self.nth, start, self.data[start - self.offset : stop - self.offset]),
            )
            start = stop

    def torn(self, rng: Random) -> Write:
        """The write with its head or its tail missing."""
        at = rng.randrange(len(self.data)) if self.data else 0
        if rng.random() < 0.5:
            return Write(self.nth, self.offset, self.data[:at])
        return Write(self.nth, self.offset + at, self.data[at:])


class PowerLossDisk(FaultyDisk):
    """A disk in memory that loses power at the Nth change, or whenever `crash` is asked.

    After a power cut every operation fails; the surviving files open on a new disk:
    `PowerLossDisk(name, disk.crash(rng))`, or in a folder after `save`.
    """

    def __init__(self, name: str, image: Mapping[str, bytes] | None = None) -> None:
        super().__init__(name, image)
        self.changes = 0
        self.powered = True
        self._cut_at: int | None = None
        self._logs: dict[FileNode, FileLog] = {}
        self._platter_names = dict(self.nodes)
        self._waiting_names: list[tuple[str, FileNode | None]] = []

    def cut_power_at(self, change: int) -> None:
        """Lose power instead of this change, counted from 1 since the disk was made.

        Opens, writes, truncates, syncs and deletions are changes.
        """
        self._cut_at = change

    def unsynced(self, path: str) -> int:
        """How many written bytes of this file a crash could lose now."""
        node = self.nodes.get(path)
        return self._logs[node].waiting_bytes if node in self._logs else 0

    def crash(self, rng: Random) -> dict[str, bytes]:
        """The files that the next boot finds; asking again rolls the dice again."""
        names = dict(self._platter_names)
        for name in sorted({name for name, _ in self._waiting_names}):
            history = [node for changed, node in self._waiting_names if changed == name]
            arrived = rng.randint(0, len(history))
            node = history[arrived - 1] if arrived else names.get(name)
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
        return {name: self._survivor(node, rng) for name, node in names.items()}

    def begin(self, operation: Operation) -> Failure | None:
        """Count the change, and fail it if the power is or goes off."""
        if operation != "read":
            self.changes += 1
            self.powered = self.powered and self.changes != self._cut_at
        if not self.powered:
            raise self.error(operation, "EIO")
        return super().begin(operation)

    def create(self, path: str) -> FileNode:
        """A new empty file whose name waits for a sync of the directory."""
        node = super().create(path)
        self._waiting_names.append((path, node))
        return node

    def write(self, node: FileNode, data: bytes, offset: int) -> None:
        """Write, and log it as waiting."""
        self._log(node).write(data, offset)
        super().write(node, data, offset)

    def write_failed(self, node: FileNode, data: bytes, offset: int) -> None:
        """Leave half a write behind, unless it failed for want of power."""
        if self.powered:
            super().write_failed(node, data, offset)

    def truncate(self, node: FileNode, size: int) -> None:
        """Truncate, and log it as waiting."""
        self._log(node).truncate(size)
        super().truncate(node, size)

    def sync(self, node: FileNode, *, directory: bool) -> None:
        """Put what waits on the platter."""
        self._log(node).sync()
        if directory:
            self._sync_directory()

    def sync_failed(self, node: FileNode) -> None:
        """Forget what waits; a sync that only lost power forgets nothing."""
        if self.powered:
            self._log(node).forget()

    def delete(self, path: str, *, directory: bool) -> None:
        """Take the name away, on the platter too if `directory`."""
        super().delete(path, directory=directory)
        self._waiting_names.append((path, None))
        if directory:
            self._sync_directory()

    def _sync_directory(self) -> None:
        self._platter_names = dict(self.nodes)
        self._waiting_names.clear()

    def _log(self, node: FileNode) -> FileLog:
        log = self._logs.get(node)
        if log is None:
            # Nothing was logged yet: the platter holds what the file holds.
            log = self._logs[node] = FileLog(bytearray(node.content))
        return log

    def _survivor(self, node: FileNode, rng: Random) -> bytes:
        log = self._logs.get(node)
        return bytes(node.content) if log is None else log.survivor(rng)


class FileLog:
    """A file on the platter, and the changes that wait to get there."""

    def __init__(self, platter: bytearray) -> None:
        self._platter = platter
        # The writes before the first truncate, then each truncate with the writes after it.
        self._writes: list[list[Write]] = [[]]
        self._truncates: list[int] = []

    @property
    def waiting_bytes(self) -> int:
        """How many written bytes wait."""
        return sum(len(write.data) for writes in self._writes for write in writes)

    def write(self, data: bytes, offset: int) -> None:
        """Add a write to what waits."""
        self._writes[-1].append(Write(len(self._writes[-1]), offset, data))

    def truncate(self, size: int) -> None:
        """Add a change of length to what waits."""
        self._truncates.append(size)
        self._writes.append([])

    def sync(self) -> None:
        """Put all that waits on the platter, in order."""
        for size, writes in zip([None, *self._truncates], self._writes, strict=True):
            if size is not None:
                resize(self._platter, size)
            for write in writes:
                write_into(self._platter, write.data, write.offset)
        self.forget()

    def forget(self) -> None:
        """Let nothing wait any more."""
        self._truncates = []
        self._writes = [[]]

    def survivor(self, rng: Random) -> bytes:
        """What a power cut now leaves of the file."""
        content = bytearray(self._platter)
        arrived = rng.randint(0, len(self._truncates))
        for size, writes in zip(self._truncates[:arrived], self._writes, strict=False):
            _scatter(content, writes, rng)
            resize(content, size)
        _scatter(content, self._writes[arrived], rng)
        return bytes(content)


def save(image: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of an image into a real folder, under their last names."""
    for path, content in image.items():
        (folder / PurePosixPath(path).name).write_bytes(content)


def _scatter(content: bytearray, writes: list[Write], rng: Random) -> None:
    """Let some of the writes arrive."""
    if not writes:
        return
    arrived = list(_arrivals(writes, rng))
    # The new length may be on the platter before the data is.
    ends = [max((write.end for write in some), default=0) for some in (arrived, writes)]
    grown = rng.choice(ends) - len(content)
    if grown > 0:
        content.extend(rng.choice((bytes, rng.randbytes))(grown))
    for write in arrived:
        if write.offset < len(content):
            write_into(content, write.data[: len(content) - write.offset], write.offset)


def _arrivals(writes: list[Write], rng: Random) -> Iterator[Write]:
    """The parts of the writes that arrive, sector by sector, each sector's in time order."""
    survival = rng.choice(SURVIVALS)
    cut = rng.randint(0, len(writes))
    share = rng.choice((0.1, 0.5, 0.9))
    sectors: dict[int, list[Write]] = {}
    for write in writes:
        for sector, part in write.by_sector():
            sectors.setdefault(sector, []).append(part)
    for parts in sectors.values():
        if survival == "early":
            kept = sum(part.nth < cut for part in parts)
        elif survival == "late":
            kept = len(parts) if parts[-1].nth >= cut else 0
        else:
            kept = len(parts) if rng.random() < share else rng.randint(0, len(parts))
        yield from parts[:kept]
        if kept < len(parts) and rng.random() < TORN_SHARE:
            yield parts[kept].torn(rng)

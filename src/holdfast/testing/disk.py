# ruff: noqa: N802, D102 -- apsw calls the x-methods by SQLite's names, SQLite documents them
"""A disk in memory that fails on demand.

It is a SQLite VFS without shared memory: open a store with `?vfs=NAME&locking=exclusive`.
It behaves as SQLite's unix VFS: its error codes, power-safe overwrites, 4096-byte sectors.

A failing write leaves its first half behind, a failing truncate or delete changes
nothing, a failing sync syncs nothing: what a caller may assume is only the error.
"""

from __future__ import annotations

import errno
import posixpath
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import apsw

from holdfast.testing.counting import FileCounts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Buffer

SECTOR_BYTES = 4096

Operation = Literal["open", "read", "write", "sync", "truncate", "delete"]
Failure = Literal["EIO", "ENOSPC", "corrupt"]

# What SQLite's unix VFS answers when the system call fails with EIO.
_EIO_CODES: dict[Operation, int] = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}

# The highest lock that another connection may hold while this one is granted.
_LOCK_BESIDE = {
    apsw.SQLITE_LOCK_SHARED: apsw.SQLITE_LOCK_RESERVED,
    apsw.SQLITE_LOCK_RESERVED: apsw.SQLITE_LOCK_SHARED,
    apsw.SQLITE_LOCK_EXCLUSIVE: apsw.SQLITE_LOCK_NONE,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` operation of a kind fails (counted from 1), or all from there on.

    "corrupt" fails nothing: the write succeeds with wrong bytes, for negative controls.
    """

    operation: Operation
    nth: int
    failure: Failure = "EIO"
    persistent: bool = False

    def strikes(self, operation: Operation, count: int) -> bool:
        """Whether the operation that is the `count`-th of its kind fails."""
        if operation != self.operation:
            return False
        return count >= self.nth if self.persistent else count == self.nth


class FileNode:
    """A file's content, whatever its name is now."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.handles: list[DiskFile] = []


class FaultyDisk(apsw.VFS):
    """A disk in memory whose Nth operation of a kind can be told to fail.

    `image` is what it holds at first, as file contents by absolute path. Set `fault`
    to break it and to None to mend it; `operations` counts what was asked of it.
    """

    def __init__(self, name: str, image: Mapping[str, bytes] | None = None) -> None:
        super().__init__(name, "")
        self.name = name
        self.fault: Fault | None = None
        self.operations: Counter[Operation] = Counter()
        self.counts: dict[str, FileCounts] = {}
        self.nodes = {path: FileNode(data) for path, data in (image or {}).items()}
        self._errno = 0

    def image(self) -> dict[str, bytes]:
        """The files as a reader sees them now."""
        return {path: bytes(node.content) for path, node in self.nodes.items()}

    # The operations, after the fault check. PowerLossDisk keeps a log of them.

    def create(self, path: str) -> FileNode:
        """A new empty file under this path."""
        node = self.nodes[path] = FileNode()
        return node

    def write(self, node: FileNode, data: bytes, offset: int) -> None:
        """Put the data at its offset; a gap before it reads as zeros."""
        write_into(node.content, data, offset)

    def write_failed(self, node: FileNode, data: bytes, offset: int) -> None:
        """Leave behind what a failed write may leave: its first half."""
        self.write(node, data[: len(data) // 2], offset)

    def truncate(self, node: FileNode, size: int) -> None:
        """Make the file this long."""
        resize(node.content, size)

    def sync(self, node: FileNode, *, directory: bool) -> None:
        """Make the file durable, and the names of all files too if `directory`."""

    def sync_failed(self, node: FileNode) -> None:
        """Note that a sync of this file failed."""

    def delete(self, path: str, *, directory: bool) -> None:  # noqa: ARG002 -- for PowerLossDisk
        """Take the name away; open handles keep the file."""
        del self.nodes[path]

    def begin(self, operation: Operation) -> Failure | None:
        """Count the operation; raise its error, or return "corrupt" for the caller to do."""
        self.operations[operation] += 1
        fault = self.fault
        if fault is None or not fault.strikes(operation, self.operations[operation]):
            return None
        if fault.failure == "corrupt":
            return fault.failure
        raise self.error(operation, fault.failure)

    def error(self, operation: Operation, failure: Failure) -> Exception:
        """The error with which SQLite's unix VFS reports this failure."""
        self._errno = errno.ENOSPC if failure == "ENOSPC" else errno.EIO
        full = failure == "ENOSPC" and operation == "write"
        error = apsw.exception_for(apsw.SQLITE_FULL if full else _EIO_CODES[operation])
        error.args = (f"injected {failure} in {operation}",)
        return error

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self.begin("open")
        flags[1] = flags[0]
        if name is None:
            return DiskFile(self, FileNode(), FileCounts(), flags[0])
        path = name if isinstance(name, str) else name.filename()
        node = self.nodes.get(path)
        if node is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise self.error("open", "EIO")
            node = self.create(path)
        return DiskFile(self, node, self.counts.setdefault(path, FileCounts()), flags[0])

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001 -- SQLite's signature
        self.begin("delete")
        if filename not in self.nodes:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
        self.delete(filename, directory=syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:
        # As on unix, an empty file does not count as existing.
        node = self.nodes.get(pathname)
        return node is not None and (flags != apsw.SQLITE_ACCESS_EXISTS or len(node.content) > 0)

    def xFullPathname(self, name: str) -> str:
        return posixpath.normpath(posixpath.join("/", name))

    def excepthook(
        self,
        etype: type[BaseException] | None,
        evalue: BaseException | None,
        etraceback: TracebackType | None,
    ) -> bool:
        # A second failure while SQLite undoes the first has no caller left to go to.
        return isinstance(evalue, apsw.Error) or super().excepthook(etype, evalue, etraceback)

    def xGetLastError(self) -> tuple[int, str | None]:
        return self._errno, None


class DiskFile(apsw.VFSFile):
    """One connection's handle on a file of a FaultyDisk.

    The base class is not initialised: nothing is inherited from a real file, so
    SQLite finds no shared-memory methods.
    """

    def __init__(self, disk: FaultyDisk, node: FileNode, counts: FileCounts, flags: int) -> None:
        self.disk = disk
        self.node = node
        self.counts = counts
        self.lock = apsw.SQLITE_LOCK_NONE
        # SQLite's unix VFS syncs the directory with the first sync of a new log.
        logs = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
        self._directory = bool(flags & apsw.SQLITE_OPEN_CREATE and flags & logs)
        node.handles.append(self)

    def excepthook(
        self,
        etype: type[BaseException] | None,
        evalue: BaseException | None,
        etraceback: TracebackType | None,
    ) -> bool:
        return self.disk.excepthook(etype, evalue, etraceback)

    def xRead(self, amount: int, offset: int) -> bytes:
        self.disk.begin("read")
        return bytes(self.node.content[offset : offset + amount])

    def xWrite(self, data: Buffer, offset: int) -> None:
        written = bytes(data)
        try:
            corrupt = self.disk.begin("write")
        except apsw.Error:
            self.disk.write_failed(self.node, written, offset)
            raise
        self.disk.write(self.node, _inverted(written) if corrupt else written, offset)
        self.counts.writes += 1
        self.counts.bytes_written += len(written)

    def xTruncate(self, newsize: int) -> None:
        self.disk.begin("truncate")
        self.disk.truncate(self.node, newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002 -- every kind of sync is a full one here
        try:
            self.disk.begin("sync")
        except apsw.Error:
            self.disk.sync_failed(self.node)
            raise
        self.disk.sync(self.node, directory=self._directory)
        self._directory = False
        self.counts.syncs += 1

    def xFileSize(self) -> int:
        return len(self.node.content)

    def xLock(self, level: int) -> None:
        if self._highest_other_lock() > _LOCK_BESIDE[level]:
            raise apsw.BusyError("the file is locked by another connection")
        self.lock = level

    def xUnlock(self, level: int) -> None:
        self.lock = level

    def xCheckReservedLock(self) -> bool:
        return max(self.lock, self._highest_other_lock()) >= apsw.SQLITE_LOCK_RESERVED

    def xClose(self) -> None:
        if self in self.node.handles:
            self.node.handles.remove(self)

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: ARG002 -- nothing to control
        return False

    def xSectorSize(self) -> int:
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def _highest_other_lock(self) -> int:
        others = (handle.lock for handle in self.node.handles if handle is not self)
        return max(others, default=apsw.SQLITE_LOCK_NONE)


def check_integrity(disk: FaultyDisk, path: str) -> None:
    """AssertionError with SQLite's own findings unless the database file is sound."""
    connection = apsw.Connection(path, vfs=disk.name)
    connection.pragma("locking_mode", "exclusive")
    try:
        findings = connection.execute("PRAGMA integrity_check").fetchall()
    except apsw.CorruptError as exc:
        findings = [(str(exc),)]
    connection.close()
    assert findings == [("ok",)], findings


def write_into(content: bytearray, data: bytes, offset: int) -> None:
    """Write the data at its offset; a gap before it becomes zeros."""
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Cut the content, or extend it with zeros."""
    del content[size:]
    content.extend(bytes(size - len(content)))


def _inverted(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)

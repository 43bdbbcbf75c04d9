"""Objects as files of one folder.

    .holdfast.lock                          see below
    .5b2c….partial                          content on its way; after a crash, waste
    ba7816bf…0015ad                         an object, named by its digest

A put writes a partial file, syncs it, renames it and syncs the folder: a name leads to the whole
content or to nothing, also after power loss. Not through fsspec, whose local files are neither
synced nor renamed in place.

Content that is put again gets a new file and so a new age. Prune looks at an object's age and
removes it under an exclusive lock, a put renames under a shared one: what was just put again is
never taken for old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.claim_check.failures import translated
from holdfast.claim_check.place import partial_name
from holdfast.claim_check.refs import Meter, Ref, is_ours
from holdfast.errors import InvalidArgument
from holdfast.folders import make_folder, sync_folder

_LOCK = ".holdfast.lock"
_MODE = 0o600  # as a store's own file


class Folder:
    """A place on the local disk, or on a network file system that has locks."""

    def __init__(self, path: str) -> None:
        self._what = f"claim check in {path!r}"
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{self._what}: the path is not UTF-8") from None
        if "\0" in path:
            raise InvalidArgument(f"{self._what}: the path holds a NUL")
        with translated(self._what):
            # Absolute: the process may change its folder.
            self._path = Path(path).absolute()
            if self._path.exists() and not self._path.is_dir():
                raise InvalidArgument(f"{self._what}: is not a folder")
            make_folder(self._path)

    def put(self, data: bytes) -> Ref:
        """As Place says."""
        return self.put_blocks([data])

    def put_blocks(self, blocks: Iterable[bytes]) -> Ref:
        """As Place says."""
        partial = self._path / partial_name()
        try:
            with translated(self._what):
                ref = _write(partial, blocks)
            with translated(self._what, unknown=True):
                with self._locked(fcntl.LOCK_SH):
                    partial.replace(self._path / ref.digest)
                sync_folder(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return ref

    def read(self, name: str) -> bytes:
        """As Place says."""
        with translated(f"{self._what}: object {name}"):
            return (self._path / name).read_bytes()

    def open(self, name: str) -> _File:
        """As Place says."""
        what = f"{self._what}: object {name}"
        with translated(what):
            return _File(os.open(self._path / name, os.O_RDONLY | os.O_CLOEXEC), what)

    def size(self, name: str) -> int | None:
        """As Place says."""
        with translated(self._what):
            try:
                return (self._path / name).stat().st_size
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> bool:
        """As Place says."""
        with translated(self._what):
            try:
                (self._path / name).unlink()
            except FileNotFoundError:
                return False
        with translated(self._what, unknown=True):
            sync_folder(self._path)
        return True

    def prune(self, before_us: int) -> int:
        """As Place says."""
        gone = 0
        with translated(self._what), os.scandir(self._path) as entries:
            for entry in entries:
                if is_ours(entry.name) and _is_older(Path(entry.path), before_us):
                    gone += self._remove_old(Path(entry.path), before_us)
        return gone

    def _remove_old(self, path: Path, before_us: int) -> bool:
        with self._locked(fcntl.LOCK_EX):
            if not _is_older(path, before_us):
                return False
            path.unlink(missing_ok=True)
            return True

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        # A file of its own: over NFS only a file that is open for writing can be locked.
        lock = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)


class _File:
    def __init__(self, descriptor: int, what: str) -> None:
        self._descriptor = descriptor
        self._what = what

    def fetch(self, start: int, size: int) -> bytes:
        with translated(self._what):
            return os.pread(self._descriptor, size, start)

    def close(self) -> None:
        with translated(self._what):
            os.close(self._descriptor)


def _write(path: Path, blocks: Iterable[bytes]) -> Ref:
    meter = Meter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        for block in blocks:
            rest = memoryview(meter.add(block))
            while rest:
                rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)
    return meter.ref()


def _is_older(path: Path, before_us: int) -> bool:
    try:
        return path.stat().st_mtime_ns < before_us * 1000
    except FileNotFoundError:  # somebody else was faster
        return False

"""The writer's side of an archive: files with one writer each, extended batch by batch."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable
from datetime import UTC
from itertools import count
from pathlib import Path

from holdfast.archive.failures import translated
from holdfast.archive.members import Members, pack
from holdfast.errors import InvalidArgument
from holdfast.facets.transport import Message
from holdfast.folders import make_folder, sync_folder

_log = logging.getLogger("holdfast.archive")
_MODE = 0o600

FILE_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.(\d+)\.jsonl\.gz")
"""A day, and which of its files it is."""


class ArchiveFolder:
    """Adds messages to a folder. Threads may share one; processes have their own."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            # Absolute: the process may change its folder.
            self.path = Path(os.fsdecode(folder)).absolute()
        except TypeError:
            raise InvalidArgument(
                f"folder: wanted text or a path, found {type(folder).__name__}"
            ) from None
        if "\0" in str(self.path):
            raise InvalidArgument(f"folder {str(self.path)!r}: the path holds a NUL")
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}

    def add(self, messages: Iterable[Message]) -> int:
        """Return when the messages are durable: how many bytes they took.

        After an error the files are as they were, but for days that were already written; to add
        the same messages again is safe, because each is read once.
        """
        days: dict[str, list[Message]] = {}
        for message in messages:
            days.setdefault(f"{message.timestamp.astimezone(UTC):%Y-%m-%d}", []).append(message)
        with self._lock:
            for day in self._files.keys() - days.keys():
                self._files.pop(day).close()
            return sum(self._append(day, days[day]) for day in sorted(days))

    def close(self) -> None:
        """Let go of the files; `add` opens them again."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()

    def _append(self, day: str, messages: list[Message]) -> int:
        data = pack(messages)
        with translated(f"archive {str(self.path)!r}"):
            file = self._files.pop(day, None)
            if file is not None and not file.is_in_place():
                _log.warning("%s: was moved or removed while in use", file.path)
                file.close()
                file = None
            if file is None:
                file = _open_file(self.path, day)
            file.append(data)
            self._files[day] = file
        return len(data)


class _File:
    """A file that this writer has locked, and how long it is up to its last whole member."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._length = 0

    def adopt(self) -> bool:
        """Make it end with a whole member; False if it is damaged, and not ours to cut."""
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            members = Members(file)
            for _ in members:
                pass
            size = file.seek(0, os.SEEK_END)
        if members.damaged:
            _log.warning("%s: damaged at byte %d, left as it is", self.path, members.length)
            return False
        if members.length < size:
            _log.warning("%s: cut off %d bytes of a torn end", self.path, size - members.length)
            os.ftruncate(self._descriptor, members.length)
        self._length = members.length
        return True

    def append(self, data: bytes) -> None:
        """Return when the data is durable; after an error the file is closed, and as before."""
        try:
            rest, at = memoryview(data), self._length
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                rest, at = rest[written:], at + written
            os.fsync(self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):  # then who opens it next does it
                os.ftruncate(self._descriptor, self._length)
            self.close()
            raise
        self._length += len(data)

    def is_in_place(self) -> bool:
        """True if the name still leads to this file: what nobody finds is not archived."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:  # it is not there, or not for us any more
            return False

    def close(self) -> None:
        """Let go of it, and of its lock."""
        os.close(self._descriptor)


def _open_file(folder: Path, day: str) -> _File:
    """The day's first file that has no other writer."""
    import fcntl  # here, because Windows has none and is to read archives

    make_folder(folder)
    for number in count():
        path = folder / f"{day}.{number}.jsonl.gz"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        file = _File(path, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.is_in_place() and file.adopt():
                sync_folder(folder)  # its maker may have died before that
                return file
        except BlockingIOError:
            file.close()
        except BaseException:
            file.close()
            raise
        else:
            file.close()
    raise AssertionError

"""Counts that several processes share: a file of unsigned 64-bit numbers, mapped into memory.

The preloaded shim (shim/fdatasync.c) writes the first two slots, the relay in front of
PostgreSQL the others; the process that measures reads them before and after its work.
"""

import mmap
import struct
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

_NUMBER: Final = struct.Struct("=Q")


class Slot(IntEnum):
    """Which number of the file holds what; the first two are also named in the shim."""

    SYNCS = 0
    SPUN_NS = 1
    STATEMENTS = 2
    TRANSACTIONS = 3


class Counters:
    """The numbers of one file, live. A new file must come from `create`."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        with path.open("r+b") as file:
            self._map: Final = mmap.mmap(file.fileno(), len(Slot) * _NUMBER.size)

    @classmethod
    def create(cls, path: Path) -> Self:
        """A file of zeros that also a server under another user may write."""
        path.write_bytes(bytes(len(Slot) * _NUMBER.size))
        path.chmod(0o666)
        return cls(path)

    def read(self, slot: Slot) -> int:
        """The number as it stands now."""
        value: int = _NUMBER.unpack_from(self._map, slot * _NUMBER.size)[0]
        return value

    def add(self, slot: Slot, amount: int) -> None:
        """Add to a number. Only for a slot with one writing thread: this is not atomic."""
        _NUMBER.pack_into(self._map, slot * _NUMBER.size, self.read(slot) + amount)

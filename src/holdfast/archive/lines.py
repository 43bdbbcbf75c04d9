"""Files of lines: written whole or not at all, gzipped or plain, read block by block.

    events.jsonl.gz                 the file
    .events.5b2c….partial           on its way; after a crash, waste

A path gets its file only when that is complete and durable: a partial one is written, synced and
renamed, then the folder is synced. What somebody else has opened is written to as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

from holdfast.archive.failures import translated
from holdfast.errors import Corrupt, InvalidArgument
from holdfast.folders import make_folder, sync_folder

_GZIP = 31  # zlib's word for: with a gzip header
_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 18
_LONGEST_LINE = 64 << 20
_MODE = 0o600

FileOrPath = str | os.PathLike[str] | BinaryIO


class LinesWriter:
    """Writes lines to a folder under a name that comes last, or to what is open already."""

    def __init__(
        self, target: Path | BinaryIO, *, packed: bool = False, make: bool = False
    ) -> None:
        """`make`: a folder that is missing is made; without that it is NotFound."""
        self._packer = zlib.compressobj(wbits=_GZIP) if packed else None
        self._partial: Path | None = None
        if isinstance(target, Path):
            self._what = f"folder {str(target)!r}"
            with translated(self._what):
                if make:
                    make_folder(target)
                self._partial = target / f".events.{uuid4().hex}.partial"
                # Not by `open`: nobody else is to read it, at no moment.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._file: BinaryIO = os.fdopen(os.open(self._partial, flags, _MODE), "wb")
        else:
            self._what = "file"
            self._file = target

    def write(self, data: bytes) -> None:
        """Add whole lines."""
        self._put(data if self._packer is None else self._packer.compress(data))

    def write_all(self, lines: Iterable[bytes]) -> None:
        """Add lines, of which one at a time is in memory."""
        for line in lines:
            self.write(line)

    def finish(self, name: str | None = None) -> None:
        """Return when it is complete, and durable under the name if it is in a folder."""
        if self._packer is not None:
            self._put(self._packer.flush())
        with translated(self._what):
            self._file.flush()
            if self._partial is not None:
                os.fsync(self._file.fileno())
                self._file.close()
                self._partial.replace(self._partial.with_name(name or ""))
                sync_folder(self._partial.parent)

    def discard(self) -> None:
        """Leave nothing behind, as far as it is ours."""
        if self._partial is not None:
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()

    def _put(self, data: bytes) -> None:
        with translated(self._what):
            rest = memoryview(data)
            while rest:  # a raw file may take less
                rest = rest[self._file.write(rest) or 0 :]


def writer_to(file: FileOrPath) -> tuple[LinesWriter, str | None]:
    """A writer, and the name to finish it under; a name that ends in .gz is gzipped."""
    path = path_of(file)
    if path is None:
        return LinesWriter(cast("BinaryIO", file)), None
    if path.is_dir():
        raise InvalidArgument(f"file {str(path)!r}: is a folder")
    return LinesWriter(path.parent, packed=path.suffix == ".gz"), path.name


def path_of(file: FileOrPath) -> Path | None:
    """The absolute path, None for a file that is open already."""
    if isinstance(file, str | bytes | os.PathLike):
        path = os.fsdecode(file)
        if not path or "\0" in path:
            raise InvalidArgument(f"file {path!r}: no path")
        # Absolute: the process may change its folder.
        return Path(path).absolute()
    if isinstance(file, io.TextIOBase) or not (hasattr(file, "read") or hasattr(file, "write")):
        raise InvalidArgument(f"file: wanted a path or a binary file, found {type(file).__name__}")
    return None


class LinesReader:
    """The lines of a file, some at a time; gzipped ones are known by their first bytes."""

    def __init__(self, file: FileOrPath) -> None:
        path = path_of(file)
        self._what = "file" if path is None else f"file {str(path)!r}"
        self._own = path is not None
        with translated(self._what):
            self._file = cast("BinaryIO", file) if path is None else path.open("rb")
        self._lines = self._split()
        self._told = 0  # lines

    def read(self) -> list[bytes] | None:
        """The next lines, None at the end."""
        with translated(self._what):
            return next(self._lines, None)

    def close(self) -> None:
        """Close the file, if it is ours."""
        if self._own:
            self._file.close()

    def _split(self) -> Iterator[list[bytes]]:
        pending = bytearray()
        for block in self._blocks():
            at = block.rfind(b"\n")
            if at >= 0:
                pending += block[:at]
                lines = bytes(pending).split(b"\n")
                self._told += len(lines)
                yield lines
                pending = bytearray(block[at + 1 :])
            else:
                pending += block
                if len(pending) > _LONGEST_LINE:
                    raise self._damage(f"longer than {_LONGEST_LINE} bytes")
        if pending:
            yield [bytes(pending)]

    def _blocks(self) -> Iterator[bytes]:
        block = self._file.read(_BLOCK)
        if not block.startswith(_MAGIC):
            while block:
                yield block
                block = self._file.read(_BLOCK)
            return
        unpacker = zlib.decompressobj(_GZIP)
        while block or (block := self._file.read(_BLOCK)):
            if unpacker.eof:
                unpacker = zlib.decompressobj(_GZIP)
            before = unpacker.copy()
            try:
                yield unpacker.decompress(block, _BLOCK)
            except zlib.error as exc:
                lines = _lines_before_damage(before, block)
                raise self._damage(f"gzipped data is damaged: {exc}", lines) from exc
            block = unpacker.unconsumed_tail or unpacker.unused_data
        if not unpacker.eof:
            raise self._damage("truncated in the middle of gzipped data")

    def _damage(self, why: str, untold: int = 0) -> Corrupt:
        line = self._told + untold + 1
        return Corrupt(f"line {line}: {why}", line=line)


def _lines_before_damage(unpacker: zlib._Decompress, block: bytes) -> int:
    """How many lines end before the damage, byte by byte because zlib says only that there is one.

    They are only counted: what a checksum has not confirmed need not be what was written.
    """
    lines = 0
    for at in range(len(block)):
        try:
            lines += unpacker.decompress(block[at : at + 1]).count(b"\n")
        except zlib.error:
            break
    return lines

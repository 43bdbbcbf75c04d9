"""Reading a large object piece by piece, checked on the way."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from holdfast.claim_check.place import BLOCK_BYTES, Content
from holdfast.claim_check.refs import Meter, Ref

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Reader(io.RawIOBase):
    """The content of one object.

    Its last piece is handed out only after the digest of everything was found right: who has
    read all of it has read what was put.
    """

    def __init__(self, ref: Ref, content: Content) -> None:
        super().__init__()
        self._ref = ref
        self._content = content
        self._meter = Meter()

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """How many bytes were put into the buffer; 0 at the end."""
        view = memoryview(buffer).cast("B")
        block = self._next(len(view)) if view else b""
        view[: len(block)] = block
        return len(block)

    def readall(self) -> bytes:
        """The rest of the content."""
        return b"".join(iter(lambda: self._next(BLOCK_BYTES), b""))

    def close(self) -> None:
        """Give back what reading holds; a second time does nothing."""
        if not self.closed:
            self._content.close()
        super().close()

    def _next(self, size: int) -> bytes:
        left = self._ref.length - self._meter.length
        block = self._content.fetch(self._meter.length, min(size, left)) if left else b""
        self._meter.add(block)
        if not block or len(block) == left:
            self._ref.check(self._meter.ref())
        return block


def buffered(ref: Ref, content: Content) -> io.BufferedReader:
    """The content as a binary file that cannot be sought in."""
    return io.BufferedReader(Reader(ref, content), BLOCK_BYTES)

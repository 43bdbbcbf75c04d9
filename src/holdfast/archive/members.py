"""Messages as lines of JSON, and the gzip members that hold them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import BinaryIO

import msgspec

from holdfast import codec
from holdfast.errors import Corrupt
from holdfast.facets.transport import Message

_GZIP = 31  # zlib's word for: with a gzip header
_BLOCK = 1 << 18


class _Line(msgspec.Struct):
    """A message as a line spells it; the payload as codec.py does."""

    message_id: str
    subject: str
    timestamp: datetime
    trace_id: str | None
    payload: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


def pack(messages: Iterable[Message]) -> bytes:
    """The messages as one gzip member."""
    packer = zlib.compressobj(wbits=_GZIP)
    parts = [
        packer.compress(
            _encode(
                _Line(
                    message.message_id,
                    message.subject,
                    message.timestamp,
                    message.trace_id,
                    msgspec.Raw(codec.encode(message.payload)),
                )
            )
            + b"\n"
        )
        for message in messages
    ]
    return b"".join([*parts, packer.flush()])


def unpack(member: bytes, what: str) -> Iterator[Message]:
    """The messages of a member; `what` is the file that an error names."""
    for line in member.splitlines():
        try:
            found = _decode(line)
        except msgspec.DecodeError as exc:
            raise Corrupt(f"{what}: a line is not a message: {exc}") from exc
        payload = codec.decode(bytes(found.payload))
        yield Message(found.message_id, found.subject, found.timestamp, found.trace_id, payload)


class Members:
    """Iterates over the whole members of a file, unpacked; then tells where and why it ended."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.length = 0
        """Of the members that were given."""
        self.damaged = False

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        rest = b""
        while True:
            unpacker = zlib.decompressobj(_GZIP)
            content: list[bytes] = []
            taken = 0
            while not unpacker.eof:
                block = rest or self._file.read(_BLOCK)
                if not block:
                    return
                try:
                    content.append(unpacker.decompress(block))
                except zlib.error:
                    self.damaged = not self._is_torn()
                    return
                rest = unpacker.unused_data
                taken += len(block) - len(rest)
            self.length += taken
            yield b"".join(content)

    def _is_torn(self) -> bool:
        """True if zeros follow on half a member, which power loss can leave."""
        self._file.seek(self.length)
        try:
            zlib.decompressobj(_GZIP).decompress(self._file.read().rstrip(b"\0"))
        except zlib.error:
            return False
        return True

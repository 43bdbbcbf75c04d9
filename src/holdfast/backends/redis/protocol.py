"""The protocol, RESP2, in bytes: what is sent, and what comes back.

redis-py's own reader in Python awaits every line: a record of 12 fields took it 115 µs.
This one takes what has arrived and goes through it in one loop: 23 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import Unavailable

Command = Sequence[bytes]
Reply = Any
"""An answer: bytes, a number, a list of answers, None; or a Refusal, not raised."""

_BULK, _NUMBER, _ARRAY, _TEXT, _ERROR = b"$:*+-"
_PLAIN = frozenset({_BULK, _NUMBER})


class Refusal(Exception):
    """What the server answers instead of doing it: a code such as NOSCRIPT, and words."""

    def __init__(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        super().__init__(text)
        self.code, _, self.words = text.partition(" ")


class _Heads(dict[int, bytes]):
    """What stands between a word of so many bytes and whatever is before it.

    To format a number takes longer than all else that is done for a word: a lone put's 10 words
    took 25,000 instructions with that, and take 16,000 without.
    """

    def __missing__(self, size: int) -> bytes:
        return b"\r\n$%d\r\n" % size


_heads = _Heads((size, b"\r\n$%d\r\n" % size) for size in range(1024))


def pack(commands: Sequence[Command]) -> bytes:
    """The commands as they are sent."""
    parts: list[bytes] = []
    add = parts.append
    for command in commands:
        add(b"*%d" % len(command))
        for word in command:
            add(_heads[len(word)])
            add(word)
        add(b"\r\n")
    return b"".join(parts)


class Reader:
    """Makes answers out of what arrives, in whatever pieces."""

    def __init__(self) -> None:
        self._buffer = b""
        self._pieces: list[bytes] = []  # of a long value, so that they are joined once
        self._missing = 0  # bytes of it that are still to come
        self._open: list[tuple[list[Reply], int]] = []  # lists that are not whole, outermost first
        self.refusals = 0
        """How many answers, and parts of answers, were a Refusal so far."""

    def feed(self, data: bytes, replies: list[Reply]) -> None:
        """Add the answers that are whole now to `replies`."""
        if self._missing > len(data):
            self._missing -= len(data)
            self._pieces.append(data)
            return
        if self._pieces:
            data = b"".join([*self._pieces, data])
            self._pieces.clear()
        self._missing = 0
        buffer = self._buffer + data
        self._buffer = buffer[self._read(buffer, replies) :]
        if self._missing:
            self._pieces, self._buffer = [self._buffer], b""

    def _read(self, buffer: bytes, replies: list[Reply]) -> int:
        """How much of the buffer is done with."""
        at, find = 0, buffer.find
        while (end := find(b"\r\n", at)) >= 0:
            kind = buffer[at]
            value: Reply = None
            if kind == _BULK:
                length = int(buffer[at + 1 : end])
                if length >= 0:
                    begin, end = end + 2, end + 2 + length
                    if len(buffer) < end + 2:
                        self._missing = end + 2 - len(buffer)
                        return at
                    value = buffer[begin:end]
            elif kind == _ARRAY:
                length = int(buffer[at + 1 : end])
                if length >= 0:
                    value, at = _bulks(buffer, end + 2, length)
                    if len(value) < length:
                        self._open.append((value, length))
                    else:
                        self._add(value, replies)
                    continue
            else:
                value = _line(kind, buffer[at + 1 : end])
                self.refusals += kind == _ERROR
            at = end + 2
            self._add(value, replies)
        return at

    def _add(self, value: Reply, replies: list[Reply]) -> None:
        while self._open:
            found, length = self._open[-1]
            found.append(value)
            if len(found) < length:
                return
            self._open.pop()
            value = found
        replies.append(value)


def _bulks(buffer: bytes, at: int, length: int) -> tuple[list[Reply], int]:
    """Up to `length` values or numbers that follow each other whole, and where they end.

    Nearly every list is one of these, and so is read without a call for each.
    """
    found: list[Reply] = []
    find, size = buffer.find, len(buffer)
    while len(found) < length and at < size:
        kind = buffer[at]
        if kind not in _PLAIN:
            break
        end = find(b"\r\n", at)
        if end < 0:
            break
        count = int(buffer[at + 1 : end])
        if kind == _NUMBER:
            found.append(count)
            at = end + 2
            continue
        if count < 0:
            found.append(None)
            at = end + 2
            continue
        stop = end + 2 + count
        if stop + 2 > size:
            break
        found.append(buffer[end + 2 : stop])
        at = stop + 2
    return found, at


def _line(kind: int, line: bytes) -> Reply:
    if kind == _NUMBER:
        return int(line)
    if kind == _TEXT:
        return line
    if kind == _ERROR:
        return Refusal(line)
    raise Unavailable(f"not an answer of Redis: {line[:40]!r}", outcome_unknown=True)

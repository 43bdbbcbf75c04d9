"""The protocol, RESP2, in bytes: what is sent, and what comes back.

hiredis packs and reads, in C. redis-py would use it too, but awaits every answer by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import hiredis

from holdfast.errors import Unavailable

Command = Sequence[bytes]
Reply = Any
"""An answer: bytes, a number, a list of answers, None; or a Refusal, not raised."""

_NOTHING: Final = object()
_pack = hiredis.pack_command


class Refusal(Exception):
    """What the server answers instead of doing it: a code such as NOSCRIPT, and words."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.code, _, self.words = line.partition(" ")


def pack(commands: Sequence[Command]) -> bytes:
    """The commands as they are sent."""
    return b"".join([_pack(tuple(command)) for command in commands])  # type: ignore[arg-type]


class _Refusals:
    """Makes a Refusal of each, and counts them. By itself, so that a reader is no ring."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, line: str) -> Refusal:
        self.count += 1
        return Refusal(line)


class Reader:
    """Makes answers out of what arrives, in whatever pieces."""

    def __init__(self) -> None:
        self._met = _Refusals()
        self._raw = hiredis.Reader(replyError=self._met, notEnoughData=_NOTHING)

    @property
    def refusals(self) -> int:
        """How many answers, and parts of answers, were a Refusal so far."""
        return self._met.count

    def feed(self, data: bytes | memoryview, replies: list[Reply]) -> None:
        """Add the answers that are whole now to `replies`."""
        raw = self._raw
        raw.feed(data)  # type: ignore[arg-type]  # any buffer
        try:
            while (reply := raw.gets()) is not _NOTHING:
                replies.append(reply)
        except (hiredis.HiredisError, TypeError) as exc:  # such as a map with a list for a key
            raise Unavailable(
                f"not an answer of Redis: {bytes(data[:40])!r}", outcome_unknown=True
            ) from exc

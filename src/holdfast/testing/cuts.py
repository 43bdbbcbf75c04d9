"""A proxied connection, and plans for cutting it: how much passes, and what happens then.

A plan sees every piece of data on its way. A *request* is what a client sends until the
server answers.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal, Protocol

Direction = Literal["to_server", "to_client"]

_READY_FOR_QUERY: Final = b"Z\x00\x00\x00\x05"
_AUTHENTICATION: Final = b"R"
_AUTHENTICATED: Final = b"\x00\x00\x00\x00"
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN


class Then(Enum):
    """What happens to a connection after the allowed bytes have passed."""

    GO_ON = auto()
    CUT = auto()
    CUT_AT_ANSWER = auto()
    BLACK_HOLE = auto()  # before the bytes pass


@dataclass(slots=True, eq=False)
class Link:
    """One proxied connection: its two sides and the request that is under way."""

    writers: dict[Direction, asyncio.StreamWriter]
    ended: set[Direction] = field(default_factory=set)
    request: bytearray = field(default_factory=bytearray)
    counted: bool = False  # a plan has counted this request
    answering: bool = False
    doomed: bool = False  # to be cut as soon as the answer is whole
    answer: bytearray = field(default_factory=bytearray)

    def follow(self, direction: Direction, chunk: bytes) -> None:
        """Keep the request and the answer that these bytes belong to."""
        if direction == "to_client":
            self.answering = True
            self.answer += chunk
            return
        if self.answering:
            self.answering = self.counted = False
            self.request.clear()
            self.answer.clear()
        self.request += chunk

    def end(self, direction: Direction) -> None:
        """Pass nothing more in this direction, and tell the receiver (FIN)."""
        if direction not in self.ended:
            self.ended.add(direction)
            self.writers[direction].write_eof()

    def reset(self) -> None:
        """End both sides at once (RST)."""
        self.ended.update(self.writers)
        for writer in self.writers.values():
            if not writer.is_closing():
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
                writer.transport.abort()


class Plan(Protocol):
    """When to cut; `times_left` falls to 0, then the plan is spent."""

    times_left: int

    def decide(self, link: Link, direction: Direction, chunk: bytes) -> tuple[int, Then]:
        """How many bytes of the chunk pass, and what happens then."""
        ...


class AfterBytes:
    """Cut a connection when it has passed so many bytes in one direction since the plan began."""

    def __init__(self, direction: Direction, limit: int, *, times: int) -> None:
        self.times_left = times
        self._direction: Final = direction
        self._limit: Final = limit
        self._passed: Final[dict[Link, int]] = {}

    def decide(self, link: Link, direction: Direction, chunk: bytes) -> tuple[int, Then]:
        """The rest up to the limit passes, then comes the cut."""
        if direction != self._direction:
            return len(chunk), Then.GO_ON
        allowed = self._limit - self._passed.get(link, 0)
        if len(chunk) < allowed:
            self._passed[link] = self._passed.get(link, 0) + len(chunk)
            return len(chunk), Then.GO_ON
        self.times_left -= 1
        return allowed, Then.CUT


class AtRequest:
    """Something happens at the nth request that contains `match`, and at the following ones."""

    def __init__(self, match: bytes, then: Then, *, nth: int, times: int) -> None:
        self.times_left = times
        self._match: Final = match
        self._then: Final = then
        self._to_skip = nth - 1

    def decide(self, link: Link, direction: Direction, chunk: bytes) -> tuple[int, Then]:
        """The request passes, unless the cut is to come before the server sees it."""
        if direction == "to_client" or link.counted or self._match not in link.request:
            return len(chunk), Then.GO_ON
        link.counted = True
        if self._to_skip > 0:
            self._to_skip -= 1
            return len(chunk), Then.GO_ON
        self.times_left -= 1
        return 0 if self._then is Then.CUT else len(chunk), self._then


def ready_for_query(answer: bytes) -> bool:
    """Whether PostgreSQL has finished its answer and waits for the client.

    A statement outside a transaction block is committed by then. The other two cases open
    a connection: one byte answers the wish for encryption, and an authentication
    request waits for the client's proof.
    """
    if len(answer) == 1:
        return True
    if answer.startswith(_AUTHENTICATION) and answer[5:9] != _AUTHENTICATED:
        return True
    return answer[-6:-1] == _READY_FOR_QUERY

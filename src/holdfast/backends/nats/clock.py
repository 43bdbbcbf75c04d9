"""The store's clock: the server's, as well as a client can know it.

NATS has no question for the time, but what it tells of a stream carries its leader's clock. It
is compared with this machine's steady clock when the store is opened and once a minute: so it
is right to half a round trip and what a steady clock drifts in a minute, a few milliseconds,
whatever this machine's wall clock shows. Tests move it by an offset kept in the stream; every
open store hears of that.
"""

from __future__ import annotations

import time

from nats.aio.msg import Msg

from holdfast.backends.nats.connection import Connection
from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.errors import NoAnswer, NotSent, WrongSequence, gave_up
from holdfast.backends.nats.stream import Stream

_REFRESH = 60.0
_JITTER_US = 5_000  # two looks differ by that much without any clock being moved


class NatsClock:
    """See above."""

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream
        self._base_us = 0  # the server's clock when the steady one was at zero
        self._looked = float("-inf")
        self._moved_us = 0
        self._stale = True

    async def start(self, deadline: float) -> None:
        """Compare the clocks, and hear of moves from now on."""
        await self._connection.hear(self._stream.clock, self._told)
        while self._stale:
            await self._read_offset(deadline)
        await self._look(deadline)

    @property
    def moved(self) -> bool:
        """True when a test has moved it."""
        return self._moved_us != 0

    def doubt(self) -> None:
        """After a lost connection: a move may have been missed."""
        self._stale = True

    async def now_us(self, deadline: float) -> int:
        """The store's clock in microseconds."""
        if self._stale:
            await self._read_offset(deadline)
        if time.monotonic() > self._looked + _REFRESH:
            await self._look(deadline)
        return self._base_us + _steady_us() + self._moved_us

    async def move(self, by_us: int, deadline: float) -> None:
        """Shift it for everyone."""
        last: Exception | None = None
        while (patience := self._stream.patience(deadline)) > 0:
            found = await self._stream.get(self._stream.clock, deadline)
            to_us = _offset(found) + by_us
            message = Message(self._stream.clock, b"%d" % to_us, found.seq if found else 0)
            try:
                await self._stream.publish(message, patience)
            except (WrongSequence, NotSent) as exc:
                last = exc
            except NoAnswer as exc:
                raise gave_up(exc, self._stream.where, write=True) from exc
            else:
                self._moved_us = to_us
                return
        raise gave_up(last, self._stream.where, write=True) from last

    async def _look(self, deadline: float) -> None:
        before = _steady_us()
        server_us = (await self._stream.info(deadline)).now_us
        base_us = server_us - (before + _steady_us()) // 2
        if abs(base_us - self._base_us) > _JITTER_US:
            self._base_us = base_us
        self._looked = time.monotonic()

    async def _read_offset(self, deadline: float) -> None:
        self._stale = False
        try:
            found = await self._stream.get(self._stream.clock, deadline)
            if found is None:
                await self._set_going(deadline)
        except BaseException:
            self._stale = True
            raise
        self._moved_us = _offset(found)

    async def _set_going(self, deadline: float) -> None:
        """The clock's message is there from the beginning: reads in batches count on it."""
        zero = Message(self._stream.clock, b"0", 0)
        try:
            await self._stream.publish(zero, max(0.0, self._stream.patience(deadline)))
        except (WrongSequence, NotSent, NoAnswer):
            self._stale = True  # somebody else did it, or will: look again

    async def _told(self, message: Msg) -> None:
        # It comes before it is stored, and also if it is refused: nobody but tests moves clocks.
        self._moved_us = int(message.data)


def _offset(found: Entry | None) -> int:
    return int(found.data) if found else 0


def _steady_us() -> int:
    return time.monotonic_ns() // 1000

"""Hints to those who watch in other processes: one at the end of each pipeline with changes.

The server says how many it reached. After one that reached nobody none is sent for a moment: to
tell nobody costs a lone put more than a hundredth of its time. Who begins to listen meanwhile
looks again a little later (see Subscriber), so nothing is told later than that.

    put, hint: nobody    put    put    somebody subscribes    put    looks again    put, hint: one
    |<---------------------- a moment ------------------------>|

In a cluster a server counts its own listeners only, so there every hint is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.backends.redis.protocol import Command, Reply
from holdfast.runtime import Topic

MOMENT: Final = 0.05
"""Seconds without hints after one that reached nobody."""


class Hints:
    """Those of one open store."""

    def __init__(self, command: Callable[[Topic], Command], *, counted: bool) -> None:
        self.command = command
        self._counted = counted  # the server's answer tells of everybody
        self._sent_at = 0.0
        self._quiet_until = 0.0

    def about(self, topics: Collection[Topic]) -> Sequence[Command]:
        """What is to be sent after changes about these."""
        now = time.monotonic()
        if now < self._quiet_until:
            return ()
        self._sent_at = now
        return [self.command(topic) for topic in topics]

    def reached(self, count: Reply) -> None:
        """The last one sent reached so many."""
        if count == 0 and self._counted:
            self._quiet_until = self._sent_at + MOMENT

"""Hints to those who watch in other processes: one at the end of each pipeline with changes.

The server says how many it reached. After one that reached nobody none is sent for a moment: to
tell nobody costs a lone put more than a hundredth of its time. Who begins to listen meanwhile
looks again a little later (see Subscriber), and so is told of all that was changed in it.

    put, hint: nobody    put    put    somebody subscribes    put    looks again    put, hint: one
    |<---------------------- a moment ------------------------>|

A server counts its own listeners only. So in a cluster, and where a server has replicas, every
hint is sent. That is looked at when the store is opened and once a minute while it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.backends.redis.protocol import Command, Reply
from holdfast.runtime import Topic

MOMENT: Final = 0.05
"""Seconds without hints after one that reached nobody."""


class Hints:
    """Those of one open store."""

    def __init__(self, command: Callable[[Topic], Command]) -> None:
        self.command = command
        self.counted = False  # the server's answer tells of everybody
        self._heard_at = 0.0  # when the last one was sent that reached somebody
        self._quiet_until = 0.0

    def about(self, topics: Collection[Topic], now: float) -> Sequence[Command]:
        """What is to be sent after changes about these; `now` by time.monotonic()."""
        if now < self._quiet_until:
            return ()
        return [self.command(topic) for topic in topics]

    def reached(self, count: Reply, sent_at: float) -> None:
        """One that was sent then reached so many."""
        if count:
            self._heard_at = max(self._heard_at, sent_at)
            self._quiet_until = 0.0
        elif self.counted and sent_at > self._heard_at:
            self._quiet_until = sent_at + MOMENT

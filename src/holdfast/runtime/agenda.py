"""What an event loop has to run besides a lone caller who keeps it busy.

asyncio does not say. To let it turn finds out, but costs a lone write on SQLite some 6 µs,
because all of that code has gone cold while the disk synced; a look at the loop's insides costs
half a microsecond. Where they are different ones (uvloop, Windows' own loop, a selector that is
not Python's) nothing is known, and the loop has to turn. It also has to now and then in any case:
a task that is to be cancelled by itself or by a signal, and timers that were called off, are
seen by nobody else.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence, Sized
from functools import partial


class Agenda:
    """Of one loop, looked at while it stands still."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready: Sized | None = getattr(loop, "_ready", None)
        """What is to be run at once; None if the loop keeps that to itself."""
        self._loop = loop
        self._poll = _poll(getattr(loop, "_selector", None))

    def has_news(self) -> bool:
        """Whether a socket or a timer has something to run, or nobody can tell."""
        # Not kept: a loop that has many timers called off makes a new list of the others.
        timers: Sequence[asyncio.TimerHandle] | None = getattr(self._loop, "_scheduled", None)
        if self._poll is None or timers is None or self._poll():
            return True
        return bool(timers) and timers[0].when() <= self._loop.time()


def _poll(selector: object) -> Callable[[], object] | None:
    """What tells of sockets that are ready, and leaves them ready; None if that is not sure."""
    if (
        not isinstance(selector, selectors.BaseSelector)
        or type(selector).__module__ != selectors.__name__  # one's own may do more than select
    ):
        return None
    inner = getattr(selector, "_selector", None)
    if type(selector).__name__ == "EpollSelector" and inner is not None:
        return partial(inner.poll, 0, 1)  # half of what `select` takes
    return partial(selector.select, 0)

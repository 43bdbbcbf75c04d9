"""What an event loop has to run besides a lone caller who keeps it busy.

asyncio does not say. To let it turn finds out, but costs a lone write on SQLite some 6 µs,
because all of that code has gone cold while the disk synced; a look at the loop's insides costs
half a microsecond. Where they are different ones (uvloop, Windows' own loop) nothing is known,
and the loop has to turn.
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
        self._time = loop.time
        self._timers: Sequence[asyncio.TimerHandle] | None = getattr(loop, "_scheduled", None)
        self._poll = _poll(getattr(loop, "_selector", None))

    def has_news(self) -> bool:
        """Whether a socket or a timer has something to run, or nobody can tell."""
        if self._poll is None or self._timers is None or self._poll():
            return True
        return bool(self._timers) and self._timers[0].when() <= self._time()


def _poll(selector: object) -> Callable[[], object] | None:
    """What tells of sockets that are ready, and leaves them ready."""
    if not isinstance(selector, selectors.BaseSelector):
        return None
    inner = getattr(selector, "_selector", None)
    if isinstance(selector, selectors.EpollSelector) and inner is not None:
        return partial(inner.poll, 0, 1)  # a fifth of what `select` takes
    return partial(selector.select, 0)

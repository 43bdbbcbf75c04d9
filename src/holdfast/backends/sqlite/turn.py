"""One thing at a time, also when an interrupt (Ctrl-C) hits who has just taken the turn.

A lock is taken by a call, and the interrupt can come right after it: then nobody gives it back, and
whoever wants to clean up waits for ever. Here it is known which thread holds it.
"""

from __future__ import annotations

import time
from threading import get_ident

_ONLY = "the turn"
_PAUSE = 0.001


class Turn:
    """Held by one at a time, for a short while."""

    def __init__(self) -> None:
        self._holders: dict[str, list[int | None]] = {}  # one at most: its thread

    def take(self) -> bool:
        """True if it was free. One step, so that it is never held by nobody knows whom."""
        mine: list[int | None] = [get_ident()]
        return self._holders.setdefault(_ONLY, mine) is mine

    def hand_over(self) -> None:
        """It is given back by another thread, which holds it from now on."""
        self._holders[_ONLY] = [None]

    def wait(self) -> None:
        """Take it, at the end of a call that may have been interrupted.

        What this thread holds already is left over from that: nothing of it runs any more.
        """
        while not self.take():
            held = self._holders.get(_ONLY)
            if held is not None and held[0] == get_ident():
                return
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Let the next one have it."""
        self._holders.pop(_ONLY, None)

"""Calls that are due later, for threads: one daemon thread, made when first needed."""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue

_log = logging.getLogger("holdfast")


class Watchdog:
    """Whoever adds a call pays for a queue's put, no more: nearly all are called off in time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0  # a forked child has no thread yet
        self._new: SimpleQueue[_Entry] = SimpleQueue()

    def add(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call that after so long; returns what calls it off."""
        if self._pid != os.getpid():
            self._start()
        entry = _Entry(time.monotonic() + seconds, call)
        self._new.put(entry)
        return entry.cancel

    def _start(self) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._new = SimpleQueue()
                run = threading.Thread(
                    target=_run, args=(self._new,), name="holdfast watchdog", daemon=True
                )
                run.start()
                self._pid = os.getpid()


class _Entry:
    _numbers = count()

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call
        self._number = next(self._numbers)

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: _Entry) -> bool:
        return (self.due, self._number) < (other.due, other._number)


def _run(new: SimpleQueue[_Entry]) -> None:
    entries: list[_Entry] = []
    while True:
        while entries and entries[0].call is None:
            heapq.heappop(entries)
        left = entries[0].due - time.monotonic() if entries else None
        if left is not None and left <= 0:
            call = heapq.heappop(entries).call
            if call is not None:
                _attempt(call)
            continue
        try:
            heapq.heappush(entries, new.get(timeout=left))
        except Empty:
            continue


def _attempt(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - the thread serves others too
        _log.exception("a call that was due failed")

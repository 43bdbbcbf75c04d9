"""A worker: a process of its own that takes orders until it is told to stop.

    python -m holdfast.demo.worker

Its parent tells it by standard input what to do: a Task as one line, later perhaps the
word "halt", and the end of input means: finish the open order and leave. That also happens
when the parent dies, so no worker is ever left behind. It answers with Reports, one per line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from enum import StrEnum

import msgspec

import holdfast
from holdfast.demo.orders import Journal, Order, Written, fill

HALT = b"halt\n"
_REPORT_SECS = 0.1


class State(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    SELLING = "selling"
    HALTED = "mid-order"
    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"  # only its parent can tell


class Task(msgspec.Struct, frozen=True):
    """What a worker is started with; a URL may hold a password, so not as arguments."""

    url: str
    namespace: str
    worker: int
    share: int


class Report(msgspec.Struct, frozen=True):
    """How far a worker is. `orders` is how many it has closed itself, in this process."""

    state: State
    orders: int = 0
    lost_races: int = 0
    order: Order | None = None  # HALTED: the open one; the first SELLING: the one begun with
    before: tuple[str, ...] = ()  # its cells that an earlier process had written already
    error: str = ""


class Line:
    """The pipes between a worker and its parent."""

    def __init__(self) -> None:
        self.halt = threading.Event()
        self.stop = threading.Event()
        self.task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, report: Report) -> None:
        """Tell the parent."""
        os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")

    def _listen(self) -> None:
        # Not by way of sys.stdin: a thread that waits in there upsets Python's exit.
        while heard := os.read(sys.stdin.fileno(), 64):
            if HALT.strip() in heard:
                self.halt.set()
        self.stop.set()


class Worker:
    """Takes one order after another."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._orders = 0
        self._lost_races = 0
        self._reported = 0.0

    def run(self) -> None:
        """Work until the share is sold, or until told to stop."""
        task = self._line.task
        with holdfast.open(task.url, task.namespace) as store:
            journal = Journal(store.cells, task.worker, share=task.share)
            while (order := journal.open) is not None:
                before: tuple[str, ...] = ()
                for written in fill(store.cells, order):
                    self._lost_races += written.lost_races
                    before += (written.cell,) if written.before else ()
                    self._halt_if_asked(order, written)
                journal.close(order, last=self._line.stop.is_set())
                self._orders += 1
                self._report_now_and_then(order, before)
        self._say(State.DONE)

    def _halt_if_asked(self, order: Order, written: Written) -> None:
        """Stand still where a crash is worst: the unit is sold, the order is not counted."""
        if self._line.halt.is_set() and written.cell.startswith("item/"):
            self._say(State.HALTED, order=order)
            self._line.stop.wait()  # the parent kills us here

    def _report_now_and_then(self, order: Order, before: tuple[str, ...]) -> None:
        if self._orders == 1:
            self._say(State.SELLING, order=order, before=before)
        elif time.monotonic() >= self._reported + _REPORT_SECS:
            self._say(State.SELLING)

    def _say(
        self, state: State, *, order: Order | None = None, before: tuple[str, ...] = ()
    ) -> None:
        self._reported = time.monotonic()
        self._line.say(Report(state, self._orders, self._lost_races, order=order, before=before))


def main() -> None:
    """Do the task that standard input gives."""
    line = Line()
    try:
        Worker(line).run()
    except holdfast.StoreError as exc:
        line.say(Report(State.FAILED, error=f"{exc.code}: {exc}"))
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)  # the parent is gone: there is nobody to tell


if __name__ == "__main__":
    main()

"""The run: workers sell, one is killed in the middle of an order, another takes its place.

Everything is bound by time as well as by work, so that a slow or busy machine shows less but
ends as soon: after `seconds` of selling the workers are asked to leave, and when they have
not left after a grace, they are ended.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass

from holdfast.demo.crew import Crew, Member
from holdfast.demo.orders import COUNTER, ITEMS, item_cell, open_shop
from holdfast.demo.screen import Screen, View
from holdfast.demo.worker import Report, State
from holdfast.sync.store import Store

FRAME_SECS = 0.2
START_SECS = 2.0  # for starting the interpreters; when it takes longer, there is less selling
GRACE_SECS = 9.0  # for the same, and for finishing open orders, before everything is ended
KILL_AFTER = 0.4  # of the time, or of all orders: whichever comes first
PAUSE = 0.15  # of the time: so that one can see the others go on while one is missing


class ShowFailed(Exception):
    """The run could not be played to its end; the message says why."""


@dataclass
class Show:
    """One run on an open store. After `play`, `crew` holds what the workers reported."""

    store: Store
    crew: Crew
    screen: Screen
    workers: int
    stock: int
    seconds: float
    began_at: float  # by time.monotonic(): when the demo was called
    victim: Member | None = None
    replacement: Member | None = None
    _killed_at: float = 0.0
    _selling_at: float = 0.0
    _ended_at: float = 0.0

    def play(self) -> None:
        """Run until all workers have left; ShowFailed when it did not come to that in time."""
        open_shop(self.store.cells, stock=self.stock)
        for number in range(1, self.workers + 1):
            self.crew.start(number)
        next_frame = 0.0
        while self._going_on:
            if time.monotonic() >= next_frame:
                self.screen.frame(self.view())
                next_frame = time.monotonic() + FRAME_SECS
            self._listen(until=next_frame)
            self._direct()
        self._ended_at = time.monotonic()
        if self.replacement is None:
            raise ShowFailed("all orders were done before a worker could be killed: try more stock")

    def view(self) -> View:
        """What the store and the workers say now."""
        # The counter first: an order is sold before it is counted, so sold is never less.
        counter = self.store.cells.get(COUNTER)
        items = {item: self.store.cells.get(item_cell(item)) for item in ITEMS}
        return View(
            members=self.crew.members,
            items=items,
            start=self.stock,
            counter=counter,
            elapsed=self._elapsed,
            selling=self.selling_secs,
        )

    @property
    def selling_secs(self) -> float:
        """How long there has been work: starting the interpreters does not count."""
        return self._now - self._selling_at if self._selling_at else 0.0

    @property
    def _part(self) -> float:
        """How much of the run is over: 1 when its time is up, or all is sold."""
        secs = max(self.selling_secs, self._elapsed - START_SECS)
        return max(secs / self.seconds, self.crew.orders / (self.stock * len(ITEMS)))

    @property
    def _elapsed(self) -> float:
        return self._now - self.began_at

    @property
    def _now(self) -> float:
        return self._ended_at or time.monotonic()

    @property
    def _going_on(self) -> bool:
        missing = self._killed_at and self.replacement is None
        return bool(missing) or any(member.running for member in self.crew.members)

    def _listen(self, *, until: float) -> None:
        """Take in the next thing a worker says, unless it is time for a frame before."""
        try:
            heard = self.crew.heard.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return
        self._selling_at = self._selling_at or time.monotonic()
        heard.member.note(heard.report)
        self._react(heard.member, heard.report)

    def _react(self, member: Member, report: Report) -> None:
        if member.report.state is State.FAILED:
            raise ShowFailed(f"worker {member.worker} (pid {member.pid}) failed:\n{report.error}")
        if report.state is State.HALTED and member is self.victim:
            member.kill()
            self._killed_at = time.monotonic()
            self.screen.killed(member)
        elif member is self.replacement and report.order is not None:
            self.screen.resumed(member, report)

    def _direct(self) -> None:
        """Do what the hour asks for: halt one, replace it, stop all."""
        if self._elapsed >= self.seconds + GRACE_SECS:
            raise ShowFailed(f"the workers did not end within {self._elapsed:.0f} s")
        if self.victim is None or self.victim.report.state is State.DONE:
            if self._part >= KILL_AFTER:
                self._choose_victim()
        elif self._killed_at and self.replacement is None:
            if time.monotonic() >= self._killed_at + PAUSE * self.seconds:
                self.replacement = self.crew.start(self.victim.worker)
        elif self.replacement and self._part >= 1:
            self.crew.stop()

    def _choose_victim(self) -> None:
        """Halt the busiest worker, but not one that may be through before it hears of it."""
        half = self.stock * len(ITEMS) // self.workers / 2
        halfway = [
            one for one in self.crew.members if one.running and 0 < one.report.orders <= half
        ]
        if halfway:
            self.victim = max(halfway, key=lambda one: one.report.orders)
            self.victim.halt()

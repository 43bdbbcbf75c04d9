"""A store that numbers with gaps, shows events late and tells of some twice; and may crash.

The contract of events allows it, the engines of this library do nothing of the kind. A driver
works on it as the projector does: fold a page of the feed, save, then write the position down.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from holdfast.events import RUN, Event, Projection
from holdfast.facets.daemons import Resync, RunMark
from holdfast.facets.following import Loaded
from holdfast.facets.projecting import Projecting
from holdfast.facets.views import Kept, from_stored, to_stored
from holdfast.runtime.blocking import run

S = TypeVar("S")
_TYPES = ("RunStarted", "StepStarted", "StepCompleted", "StepFailed", "Noted", "RunCompleted")
_STORED_AT = datetime(2026, 11, 16, tzinfo=UTC)


def _note(numbers: list[int], event: Event) -> list[int]:
    return [*numbers, event.run_seq]


ORDER: Projection[list[int]] = Projection("order", _note, initial=[])
"""Which events were folded, in which order."""


class Crash(Exception):
    """The projector's process is gone."""


def event(run_id: str, seq: int) -> Event:
    """An event whose type depends on its number alone."""
    kind = _TYPES[seq * 7 % len(_TYPES)]
    return Event(
        run_id, kind, f"{seq}", step_id=f"s{seq % 3}", run_seq=seq,
        emitted_at=_STORED_AT, persisted_at=_STORED_AT,
    )  # fmt: skip


class GappyStore:
    """See ViewStore. `calls` counts them, and after the one `crash_at` the process is gone."""

    def __init__(self) -> None:
        self.feed: list[Event] = []
        self.position = 0
        self.views: dict[tuple[str, str], Any] = {}
        self.marks: dict[tuple[str, str], RunMark] = {}
        self.marked: list[RunMark] = []
        self.calls = 0
        self.crash_at: int | None = None

    def show(self, told: Iterable[tuple[str, int]]) -> None:
        """These events can be read from now on, and the feed tells of them."""
        self.feed += [event(run_id, seq) for run_id, seq in told]

    def log(self, run_id: str) -> list[Event]:
        """The run's events as they can be read now, in order."""
        found = {one.run_seq: one for one in self.feed if one.run_id == run_id}
        return [found[seq] for seq in sorted(found)]

    def call(self) -> None:
        """Count a call; the process may end right after it."""
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crash

    async def load(self, run_id: str, projection: Projection[S]) -> Loaded[S] | None:
        self.call()
        stored = self.views.get((run_id, projection.view))
        if stored is None:
            return Loaded(1, Kept(projection.begin(run_id)))
        return Loaded(1, from_stored(projection, stored))

    async def fetch(self, run_id: str, generation: int, after: int, limit: int) -> list[Event]:
        self.call()
        assert generation == 1
        return [one for one in self.log(run_id) if one.run_seq > after][:limit]

    async def save(self, run_id: str, projection: Projection[S], view: Loaded[S]) -> bool:
        stored = to_stored(projection, run_id, view.kept)
        before = self.views.get((run_id, projection.view))
        if before is None or stored.last_seq >= before.last_seq:
            self.views[run_id, projection.view] = stored
        self.call()
        return True

    async def mark(self, mark: RunMark) -> None:
        self.marks[mark.run_id, mark.view] = mark
        self.marked.append(mark)
        self.call()

    async def unmark(self, run_id: str, view: str) -> None:
        self.marks.pop((run_id, view), None)
        self.call()

    def commit(self, position: int) -> None:
        """Write down how far into the feed everything is saved."""
        self.position = position
        self.call()


class Driver:
    """Projectors on such a store, one after the other: each crash ends one, the next goes on."""

    def __init__(self, store: GappyStore, *, page: int = 3, resync: Resync | None = None) -> None:
        self.store = store
        self.crashes = 0
        self._planned: list[int] = []
        self._page = page
        self._resync = resync or Resync.FROM_SNAPSHOT
        self._core = self._new_core()

    @property
    def core(self) -> Projecting:
        return self._core

    def plan(self, crashes: list[int]) -> None:
        """Crash after so many calls, then after so many more, and so on."""
        self._planned = list(crashes)
        self._plan_next()

    def drain(self) -> None:
        """Work until everything that was told is done with."""
        while self.store.position < len(self.store.feed):
            try:
                self.step()
            except Crash:
                self.crashes += 1
                self._plan_next()
                self._core = self._new_core()

    def step(self) -> None:
        """One page of the feed."""
        position = min(self.store.position + self._page, len(self.store.feed))
        self.fold(self.store.feed[self.store.position : position])
        run(self._core.flush())
        self.store.commit(position)

    def fold(self, told: list[Event]) -> None:
        runs: dict[str, list[Event]] = {}
        for one in told:
            runs.setdefault(one.run_id, []).append(one)
        for run_id, events in runs.items():
            for projection in (RUN, ORDER):
                run(self._core.take(projection, run_id, events, catch_up=False))

    def _plan_next(self) -> None:
        left = self._planned
        self.store.crash_at = self.store.calls + left.pop(0) if left else None

    def _new_core(self) -> Projecting:
        return Projecting(self.store, self._resync)

    def check(self) -> None:
        """What is kept is what a replay of all events gives, and the gaps are those of the log."""
        store = self.store
        for run_id in {one.run_id for one in store.feed}:
            log = store.log(run_id)
            seqs = [one.run_seq for one in log]
            snapshot = from_stored(RUN, store.views[run_id, RUN.view])
            order = from_stored(ORDER, store.views[run_id, ORDER.view])
            assert order.state == seqs, f"{run_id}: folded {order.state} of {seqs}"
            assert snapshot.state.hash == RUN.advance(RUN.begin(run_id), log).hash
            missing = [seq for seq in range(1, seqs[-1] + 1) if seq not in seqs]
            for kept in (snapshot, order):
                assert kept.last_seq == seqs[-1]
                gaps = [seq for first, last in kept.gaps for seq in range(first, last + 1)]
                assert gaps == missing, f"{run_id}: gaps {gaps}, missing {missing}"
        assert store.marks == {}

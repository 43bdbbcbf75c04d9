"""The projector's core converges: gaps, late events, doubles, and a crash after any call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.events import RUN, Event, Projection
from holdfast.facets.daemons import MarkKind, ProjectTotals, Resync, RunMark
from holdfast.facets.following import Loaded
from holdfast.runtime.blocking import run
from tests.projector.gappy import ORDER, Driver, GappyStore, event

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "200"))
S = TypeVar("S")
Told = tuple[str, int]
# Pages of the feed, each shown after the one before was worked on: 4 comes late, 9 never, 2 twice.
STORY: list[list[Told]] = [
    [("a", 1), ("a", 2), ("b", 1), ("a", 3)],
    [("a", 5), ("a", 6), ("a", 2), ("b", 2)],
    [("a", 4), ("a", 7), ("a", 8), ("b", 3)],
    [("a", 10), ("b", 5), ("a", 10), ("a", 11)],
    [("b", 4), ("a", 12)],
]


def tell(
    story: list[list[Told]],
    crashes: list[int],
    make: Callable[[GappyStore], Driver] = Driver,
) -> Driver:
    """Tell the story to projectors that crash after so many calls each, and check the end."""
    driver = make(GappyStore())
    driver.plan(crashes)
    for page in story:
        driver.store.show(page)
        driver.drain()
    driver.check()
    return driver


def test_the_story_of_the_seed() -> None:
    driver = Driver(GappyStore())
    store = driver.store
    store.show([("r", 1), ("r", 2), ("r", 3)])
    driver.drain()
    store.show([("r", 5), ("r", 6)])
    driver.drain()
    driver.check()
    assert [(mark.kind, mark.view) for mark in store.marked] == [
        (MarkKind.STALE, RUN.view),
        (MarkKind.STALE, ORDER.view),
    ]
    assert driver.core.totals.gaps == 2  # 4, in each view
    store.show([("r", 4), ("r", 7), ("r", 8)])
    driver.drain()
    driver.check()
    assert driver.core.totals.resyncs == 4
    assert len(store.marked) == 4


def test_a_gap_is_looked_into_once() -> None:
    driver = Driver(GappyStore(), page=1)
    driver.store.show([("r", 1), *(("r", seq) for seq in range(3, 50))])
    driver.drain()
    driver.check()
    assert driver.core.totals == ProjectTotals(events=96, kept=2 * 2, resyncs=2, gaps=2)
    driver.store.show([("r", 60), ("r", 61)])
    driver.drain()
    driver.check()
    assert driver.core.totals.resyncs == 4


def test_a_late_event_is_seen_beside_a_missing_one() -> None:
    driver = Driver(GappyStore(), page=2)
    driver.store.show([("r", 2), ("r", 3), ("r", 5), ("r", 1)])
    driver.drain()
    driver.check()


def test_an_event_that_is_told_before_it_can_be_read_is_not_lost() -> None:
    class Behind(GappyStore):
        async def fetch(self, run_id: str, generation: int, after: int, limit: int) -> list[Event]:
            found = await super().fetch(run_id, generation, after, limit)
            return [one for one in found if one.run_seq != 5]

    driver = Driver(Behind())
    driver.store.show([("r", 1), ("r", 5)])
    driver.drain()
    driver.check()


@pytest.mark.parametrize("resync", Resync)
def test_a_crash_after_any_call_changes_nothing(resync: Resync) -> None:
    def make(store: GappyStore) -> Driver:
        return Driver(store, resync=resync)

    calls = tell(STORY, [], make).store.calls
    assert calls > 40
    for at in range(1, calls):
        assert tell(STORY, [at], make).crashes == 1
        tell(STORY, [at, 1, 2, 3], make)


@st.composite
def stories(draw: st.DrawFn) -> list[list[Told]]:
    """Runs with gaps, in an order that is nearly the right one, with doubles."""
    told: list[Told] = []
    for run_id in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)):
        seqs = draw(st.lists(st.integers(1, 15), min_size=1, max_size=12, unique=True))
        told += [(run_id, seq) for seq in sorted(seqs)]
    places = draw(st.lists(st.integers(0, 12), min_size=len(told), max_size=len(told)))
    late = sorted(range(len(told)), key=lambda at: (told[at][1] + places[at], at))
    told = [told[at] for at in late]
    for _ in range(draw(st.integers(0, 4))):
        told.insert(draw(st.integers(0, len(told))), draw(st.sampled_from(told)))
    cuts = sorted(draw(st.sets(st.integers(0, len(told)), max_size=4)))
    return [told[first:last] for first, last in zip([0, *cuts], [*cuts, len(told)], strict=True)]


@settings(deadline=None, max_examples=EXAMPLES)
@given(stories(), st.lists(st.integers(1, 30), max_size=6), st.sampled_from(Resync))
def test_whatever_is_told_and_wherever_it_crashes_it_converges(
    story: list[list[Told]], crashes: list[int], resync: Resync
) -> None:
    tell(story, crashes, lambda store: Driver(store, page=4, resync=resync))


# The harness finds what is wrong


class _ForgetsGaps(GappyStore):
    async def save(self, run_id: str, projection: Projection[S], view: Loaded[S]) -> bool:
        return await super().save(
            run_id, projection, Loaded(view.generation, view.kept._replace(gaps=()))
        )


class _PositionFirst(Driver):
    def step(self) -> None:
        position = min(self.store.position + 3, len(self.store.feed))
        told = self.store.feed[self.store.position : position]
        self.store.commit(position)
        self.fold(told)
        run(self.core.flush())


class _WatermarkApart(GappyStore):
    """Saves the state, and only with the next call how far it is."""

    async def save(self, run_id: str, projection: Projection[S], view: Loaded[S]) -> bool:
        before = self.views.get((run_id, projection.view))
        last_seq = 0 if before is None else before.last_seq
        await super().save(
            run_id, projection, Loaded(view.generation, view.kept._replace(last_seq=last_seq))
        )
        return await super().save(run_id, projection, view)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Driver(_ForgetsGaps()),
        _PositionFirst,
        lambda _: Driver(_WatermarkApart()),
    ],
    ids=["forgets gaps", "position first", "watermark apart"],
)
def test_a_planted_fault_is_found(make: Callable[[GappyStore], Driver]) -> None:
    def sweep() -> None:
        for at in range(1, 200):
            tell(STORY, [at], make)

    with pytest.raises((AssertionError, KeyError)):
        sweep()


# A fold that raises


def test_a_view_that_failed_is_marked_and_tried_again_when_asked() -> None:
    broken = True

    def fold(count: int, one: Event) -> int:
        if broken and one.run_seq == 3:
            raise ZeroDivisionError
        return count + 1

    counting = Projection("count", fold, initial=0)
    store = GappyStore()
    core = Driver(store).core
    events = [event("r", seq) for seq in range(1, 6)]
    store.feed += events
    run(core.take(counting, "r", events, catch_up=False))
    run(core.take(counting, "r", events[4:], catch_up=False))
    run(core.flush())
    assert core.totals == ProjectTotals(failed=1)
    (mark,) = store.marks.values()
    assert isinstance(mark, RunMark)
    assert (mark.kind, mark.run_seq) == (MarkKind.FAILED, 3)
    broken = False
    run(core.retry(counting, "r"))
    assert store.marks == {}
    loaded = run(store.load("r", counting))
    assert loaded is not None
    assert (loaded.kept.state, loaded.kept.last_seq) == (5, 5)

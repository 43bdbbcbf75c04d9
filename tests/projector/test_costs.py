"""What reading a snapshot costs: the same, however many events were folded into what is kept."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast import Event, Projection
from tests.sqlite.spent import Spent, counted

COUNT = Projection("count", lambda count, _: count + 1, initial=0)


def _append(store: holdfast.Store, run_id: str, count: int) -> None:
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        store.events.append_events(
            Event(run_id, "StepStarted", f"{number}", step_id=f"step-{number % 3}")
            for number in numbers
        )


def _cost(spent: Spent, store: holdfast.Store, run_id: str) -> tuple[list[str], int]:
    """The statements of one read, and the steps that SQLite took for them."""
    assert store.events.get_snapshot(run_id) is not None  # statements are prepared once
    assert store.events.view(COUNT, run_id).last_seq > 0
    spent.take()
    store.events.get_snapshot(run_id)
    store.events.view(COUNT, run_id)
    return spent.take()


def test_a_kept_view_is_read_at_the_same_cost_whatever_is_behind_it(tmp_path: Path) -> None:
    with counted() as spent, holdfast.open(f"sqlite:///{tmp_path}/s.db") as store:
        _append(store, "long", 10_000)
        _append(store, "short", 10)
        _append(store, "the last one", 10)  # where an index ends it costs a step less
        unkept = _cost(spent, store, "long")
        for run_id in ("long", "short"):
            store.events.keep_snapshot(run_id)
            store.events.keep_view(COUNT, run_id)
        long, short = (_cost(spent, store, run_id) for run_id in ("long", "short"))
        assert long == short
        assert len(long[0]) == 4  # for each: what is kept, and what came since
        assert long[1] < 200
        assert unkept[1] > 100 * long[1]  # what is counted is what costs
        _append(store, "other", 5)
        assert _cost(spent, store, "long") == long


def test_the_projector_makes_reading_cheap(tmp_path: Path) -> None:
    with counted() as spent, holdfast.open(f"sqlite:///{tmp_path}/s.db") as store:
        _append(store, "long", 3000)
        _append(store, "short", 3)
        _append(store, "the last one", 3)
        holdfast.Projector(store, [COUNT]).drain()
        assert _cost(spent, store, "long") == _cost(spent, store, "short")


def test_a_snapshot_that_may_be_older_asks_the_engine_nothing(tmp_path: Path) -> None:
    with counted() as spent, holdfast.open(f"sqlite:///{tmp_path}/s.db") as store:
        _append(store, "r", 10)
        first = store.events.get_snapshot("r", max_age=3600)
        spent.take()
        assert store.events.get_snapshot("r", max_age=3600) is first
        assert spent.take() == ([], 0)
        store.events.append_event(Event("r", "Noted", "more"))
        spent.take()
        again = store.events.get_snapshot("r", max_age=3600)
        assert again is not None
        assert again.last_event_seq == 11
        assert len(spent.take()[0]) == 2

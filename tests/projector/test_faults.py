"""A projector goes on after errors of its store, at any call, and after a cursor of another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Unavailable
from holdfast.facets.projecting_store import EngineViews
from holdfast.sync.records import Records
from tests.projector.views import SEQS, check_kept, event

RUNS = ["a", "b", "c", "d"]
# What a projector asks of its store; the feed has its own patience.
CALLS: list[tuple[type, str]] = [
    (EngineViews, "load"),
    (EngineViews, "fetch"),
    (EngineViews, "save"),
]
BLOCKING_CALLS: list[tuple[type, str]] = [
    (Records, "put"),
    (Records, "compare_and_set"),
    (Records, "scan"),
]


class Faults:
    """Fails the call with that number, before it does anything or after."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls = 0
        self.failed = 0
        self._at = at
        self._after = after

    def __call__(self, *, after: bool) -> None:
        if after != self._after:
            return
        self.calls += 1
        if self.calls == self._at:
            self.failed += 1
            raise Unavailable("planted")

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for owner, name in CALLS:
            monkeypatch.setattr(owner, name, self._coroutine(getattr(owner, name)))
        for owner, name in BLOCKING_CALLS:
            monkeypatch.setattr(owner, name, self._blocking(getattr(owner, name)))

    def _coroutine(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def faulty(*args: object, **kwargs: object) -> object:
            self(after=False)
            answer = await call(*args, **kwargs)
            self(after=True)
            return answer

        return faulty

    def _blocking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: object, **kwargs: object) -> object:
            self(after=False)
            answer = call(*args, **kwargs)
            self(after=True)
            return answer

        return faulty


def _append(store: holdfast.Store, numbers: range) -> None:
    for number in numbers:
        for run_id in RUNS:
            store.events.append_event(event(run_id, number))


def _project(store: holdfast.Store) -> None:
    """Until everything is kept, through errors; with new events in between."""
    projector = holdfast.Projector(store, [SEQS], shards=2, every=0.000001, lease=600)
    for last in (3, 6):
        _append(store, range(last - 3, last))
        for _ in range(50):
            try:
                projector.project()
            except Unavailable:
                continue
    projector.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_error_at_any_call_is_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    at, failed = 0, 1
    while failed:
        at += 1
        url = f"sqlite:///{tmp_path}/{at}.db"
        with monkeypatch.context() as patch, holdfast.open(url) as store:
            faults = Faults(at, after=after)
            faults.plant(patch)
            _project(store)
            failed = faults.failed
        assert check_kept(url, RUNS) == 24
    assert at > 20


def test_a_cursor_of_another_store_is_begun_anew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with holdfast.open(url) as store:
        _append(store, range(3))
        holdfast.Projector(store, [SEQS]).drain()
        for key, record in list(store.records.scan("holdfast.projector.shard.")):
            places = [field for field in record.fields if field.startswith("at ")]
            assert len(places) == 2
            store.records.set_fields(key, dict.fromkeys(places, "events:9.0.7"))
        _append(store, range(3, 5))
        projector = holdfast.Projector(store, [SEQS])
        projector.drain()
        assert projector.totals == holdfast.ProjectTotals(events=16, kept=8)
    assert check_kept(url, RUNS) == 20

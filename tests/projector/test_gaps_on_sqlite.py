"""A gap in a real log, made by force: the run is stale, read anew once, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Event, MarkKind, Projection, ProjectTotals, View
from holdfast.facets.daemons import RunMark
from holdfast.facets.projecting_store import EngineViews

ORDER: Projection[list[int]] = Projection(
    "order", lambda seqs, event: [*seqs, event.run_seq], initial=[]
)


def test_a_gap_marks_the_run_stale_until_it_was_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[RunMark] = []
    mark = EngineViews.mark

    async def noted(self: EngineViews, one: RunMark) -> None:
        await mark(self, one)
        marked.append(one)

    monkeypatch.setattr(EngineViews, "mark", noted)
    with holdfast.open(f"sqlite:///{tmp_path}/s.db") as store:
        projector = holdfast.Projector(store, [ORDER])
        store.events.append_events(Event("r", "Noted", f"{number}") for number in range(3))
        projector.drain()
        with store.transaction() as tx:
            tx.execute("UPDATE holdfast_runs SET last_seq = 5 WHERE run_id = 'r'")
            assert tx.events.append_event(Event("r", "Noted", "after")).run_seq == 6
        projector.drain()
        assert [(one.kind, one.run_seq) for one in marked] == [(MarkKind.STALE, 6)] * 2
        assert projector.marks() == []
        assert projector.totals == ProjectTotals(events=8, kept=4, resyncs=2, gaps=2)
        store.events.append_event(Event("r", "Noted", "later"))
        projector.drain()
        assert projector.totals == ProjectTotals(events=10, kept=6, resyncs=2, gaps=2)
        assert store.events.view(ORDER, "r") == View([1, 2, 3, 6, 7], 7)
        snapshot = store.events.get_snapshot("r")
        assert snapshot is not None
        assert snapshot.hash == store.events.project_snapshot("r").hash

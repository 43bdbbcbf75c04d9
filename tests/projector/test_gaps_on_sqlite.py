"""A gap in a real log, made by force: the run is stale, read anew once, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Event, MarkKind, Projection, ProjectTotals, View
from holdfast.facets.daemons import RunMark
from holdfast.facets.projecting_store import EngineViews

# A copy of the third event: the engine refuses to change and to remove, not to add.
SIXTH = """
INSERT INTO holdfast_events
    (commit_id, run, run_seq, key, event_id, event_type, emitted_at, persisted_at, data, more)
SELECT
    (SELECT commit_id FROM holdfast_last_commit) + 1, run, 6, 'sixth', randomblob(16), event_type,
    emitted_at, persisted_at, data, more
FROM holdfast_events
WHERE run_seq = 3
"""
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
    url = f"sqlite:///{tmp_path}/s.db"
    with holdfast.open(url) as store:
        projector = holdfast.Projector(store, [ORDER])
        store.events.append_events(Event("r", "Noted", f"{number}") for number in range(3))
        projector.drain()
        with store.transaction() as tx:
            tx.execute(SIXTH)
        projector.drain()
        assert [(one.kind, one.run_seq) for one in marked] == [(MarkKind.STALE, 6)] * 2
        assert projector.marks() == []
        assert projector.totals == ProjectTotals(events=8, kept=4, resyncs=2, gaps=2)
    with holdfast.open(url) as store:  # which has not seen the end of the run before
        assert store.events.append_event(Event("r", "Noted", "later")).run_seq == 7
        projector = holdfast.Projector(store, [ORDER])
        projector.drain()
        assert projector.totals == ProjectTotals(events=2, kept=2)
        assert store.events.view(ORDER, "r") == View([1, 2, 3, 6, 7], 7)
        snapshot = store.events.get_snapshot("r")
        assert snapshot is not None
        assert snapshot.hash == store.events.project_snapshot("r").hash

"""A projection that processes import, runs to project, and what must be kept of them."""

from __future__ import annotations

import asyncio

import holdfast
from holdfast import Event, Projection, RunSnapshot
from holdfast.facets.events import RUN_VIEW, StoredSnapshot
from holdfast.facets.views import RUN, Kept, from_stored

SEQS: Projection[list[int]] = Projection(
    "seqs", lambda seqs, event: [*seqs, event.run_seq], initial=[]
)
"""Which events were folded: one twice, or one left out, shows."""

_VIEWS = (RUN_VIEW, SEQS.view)
PATH = "tests.projector.views:SEQS"
_TYPES = ("RunStarted", "StepStarted", "StepFailed", "StepStarted", "StepCompleted")


def event(run_id: str, number: int) -> Event:
    """The run's event with that number, from 0 on."""
    kind = _TYPES[number % len(_TYPES)]
    return Event(run_id, kind, f"{number}", {"n": number}, step_id=f"s{number // 5}")


def kept(url: str, run_id: str, namespace: str = "default") -> tuple[int, int]:
    """How far the two views of a run are kept."""
    ((first, second),) = asyncio.run(_stored(url, namespace, [run_id]))
    return _last_seq(first), _last_seq(second)


def check_kept(url: str, run_ids: list[str], namespace: str = "default") -> int:
    """How many events the runs have; what is kept of them is what a replay gives."""
    total = 0
    stored = asyncio.run(_stored(url, namespace, run_ids))
    with holdfast.open(url, namespace) as store:
        for run_id, (snapshot, seqs) in zip(run_ids, stored, strict=True):
            replayed = store.events.project_snapshot(run_id)
            assert snapshot is not None, f"no snapshot of {run_id} is kept"
            assert seqs is not None, f"no view of {run_id} is kept"
            found: Kept[RunSnapshot] = from_stored(RUN, snapshot)
            assert found.state.hash == replayed.hash
            assert found.last_seq == replayed.last_event_seq
            wanted = list(range(1, replayed.last_event_seq + 1))
            assert from_stored(SEQS, seqs).state == wanted
            total += len(wanted)
    return total


def _last_seq(stored: StoredSnapshot | None) -> int:
    return 0 if stored is None else stored.last_seq


async def _stored(
    url: str, namespace: str, run_ids: list[str]
) -> list[tuple[StoredSnapshot | None, StoredSnapshot | None]]:
    """Of each run what is kept of the two views, without what came since."""
    found = []
    async with holdfast.open_async(url, namespace) as store:
        events = store._backend.events  # noqa: SLF001 - the public API adds what came since
        for run_id in run_ids:
            states = [await events.state((namespace, run_id), view) for view in _VIEWS]
            first, second = (None if state is None else state.snapshot for state in states)
            found.append((first, second))
    return found

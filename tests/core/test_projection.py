"""The fold of a run's events into its snapshot."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.events import EVENT_TYPES, Event, RunSnapshot, RunStatus, StepStatus, fold

Given = tuple[str, dict[str, Any]] | str
START = datetime(2026, 1, 1, tzinfo=UTC)


def history(*events: Given) -> list[Event]:
    """Events of one run, a second apart."""
    made = []
    for number, given in enumerate(events, 1):
        kind, fields = (given, {}) if isinstance(given, str) else given
        at = START + timedelta(seconds=number)
        made.append(
            Event("r", kind, str(number), run_seq=number, emitted_at=at, persisted_at=at, **fields)
        )
    return made


def snapshot(*events: Given) -> RunSnapshot:
    return fold(RunSnapshot("r"), history(*events))


def step(kind: str, step_id: str = "s", **data: object) -> tuple[str, dict[str, Any]]:
    return kind, {"step_id": step_id, "event_data": data or None}


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], RunStatus.PENDING),
        (["RunQueued"], RunStatus.PENDING),
        (["RunQueued", "RunApproved"], RunStatus.APPROVED),
        (["RunApproved", "RunStarted"], RunStatus.RUNNING),
        (["RunStarted", "RunPaused"], RunStatus.PAUSED),
        (["RunStarted", "RunPaused", "RunResumed"], RunStatus.RUNNING),
        (["RunStarted", "RunCompleted"], RunStatus.COMPLETED),
        (["RunStarted", "RunFailed"], RunStatus.FAILED),
        (["RunCancelled"], RunStatus.CANCELLED),
        (["RunStarted", "RunClaimed", "RunSleeping", "RunWoken"], RunStatus.RUNNING),
        (["RunStarted", "SignalAccepted", "Whatever"], RunStatus.RUNNING),
    ],
)
def test_status_of_a_run(events: list[str], status: RunStatus) -> None:
    found = snapshot(*events)
    assert (found.status, found.last_event_seq, found.anomalies) == (status, len(events), 0)


def test_times_of_a_run() -> None:
    found = snapshot("RunQueued", "RunStarted", "RunPaused", "RunResumed", "RunCompleted")
    assert found.created_at == START + timedelta(seconds=1)
    assert found.started_at == START + timedelta(seconds=2)
    assert found.ended_at == START + timedelta(seconds=5)
    assert found.duration == 3.0
    assert snapshot("RunStarted").duration is None


def test_a_step_from_start_to_end() -> None:
    events = [
        step("StepStarted"),
        step("StepFailed", error="first"),
        step("StepRetryScheduled"),
        step("StepStarted"),
        step("StepCompleted", artifacts=["a"]),
    ]
    stages = [snapshot(*events[: at + 1]).steps["s"] for at in range(len(events))]
    assert [stage.status for stage in stages] == [
        StepStatus.RUNNING,
        StepStatus.FAILED,
        StepStatus.PENDING,
        StepStatus.RUNNING,
        StepStatus.SUCCESS,
    ]
    assert [stage.attempts for stage in stages] == [1, 1, 1, 2, 2]
    assert [stage.error for stage in stages] == [None, "first", None, None, None]
    assert stages[-1].artifacts == ["a"]
    assert stages[-1].started_at == START + timedelta(seconds=1)
    assert [stage.ended_at is not None for stage in stages] == [False, True, False, False, True]


def test_a_skipped_step() -> None:
    assert snapshot(step("StepSkipped")).steps["s"].status is StepStatus.SKIPPED


def test_after_the_end_nothing_changes_and_is_counted() -> None:
    ended = snapshot("RunStarted", "RunFailed")
    later = snapshot("RunStarted", "RunFailed", "RunStarted", step("StepStarted"), "RunCompleted")
    assert later.status is RunStatus.FAILED
    assert later.steps == {}
    assert later.ended_at == ended.ended_at
    assert (later.anomalies, later.last_event_seq) == (3, 5)


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES - {"StepCorrected"}))
def test_any_known_type_after_the_end_is_an_anomaly(kind: str) -> None:
    for end in ("RunCompleted", "RunFailed", "RunCancelled"):
        ended = snapshot("RunStarted", end)
        later = snapshot("RunStarted", end, kind, "Unheard", kind)
        assert later == msgspec.structs.replace(ended, anomalies=2, last_event_seq=5)


def test_a_correction_is_for_after_the_end_too() -> None:
    started: list[Given] = [step("StepStarted"), step("StepFailed", error="x"), "RunCompleted"]
    corrected = snapshot(*started, step("StepCorrected", status="SUCCESS", error=None))
    assert corrected.steps["s"].status is StepStatus.SUCCESS
    assert corrected.steps["s"].error is None
    assert corrected.anomalies == 0
    for nonsense in ("DONE", 7, ["SUCCESS"], None):
        found = snapshot(*started, step("StepCorrected", status=nonsense))
        assert found.steps["s"].status is StepStatus.FAILED


def test_an_event_of_a_step_without_its_name_is_an_anomaly() -> None:
    found = snapshot("StepStarted", "StepCorrected")
    assert (found.steps, found.anomalies) == ({}, 2)


@pytest.mark.parametrize("data", [None, 7, "text", ["error"], {"other": 1}])
def test_data_of_any_shape_is_taken(data: object) -> None:
    found = snapshot(("StepFailed", {"step_id": "s", "event_data": data}), ("RunFailed", {}))
    assert found.steps["s"].error is None
    assert found.error is None


def test_the_fold_goes_on_from_anywhere() -> None:
    chosen = random.Random(7)
    kinds = [*sorted(EVENT_TYPES - {"RunCompleted", "RunFailed", "RunCancelled"}), "Unheard"]
    events = history(
        *(step(chosen.choice(kinds), chosen.choice("abc"), error=n) for n in range(60)),
        "RunFailed",
        step("StepStarted"),
    )
    whole = fold(RunSnapshot("r"), events)
    for cut in range(len(events) + 1):
        first = fold(RunSnapshot("r"), events[:cut])
        before = first.hash
        assert fold(first, events[cut:]) == whole
        assert first.hash == before  # a fold leaves what it began with alone
    assert fold(RunSnapshot("r"), events).hash == whole.hash != fold(whole, history("X")).hash

"""Specs for events: append, keys, numbers, fetch, snapshots, whole runs that go."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import (
    AppendResult,
    Capability,
    Conflict,
    Event,
    InvalidArgument,
    InvalidState,
    NotFound,
    RunStatus,
    StepStatus,
    StoreConfig,
    idempotency_key,
)
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

EVENTS = needs(Capability.EVENTS)


def event(key: str, run_id: str = "r", event_type: str = "Noted", **fields: object) -> Event:
    """An event that does not matter, unless the test says so."""
    return Event(run_id, event_type, key, **fields)  # type: ignore[arg-type]


def new(run_seq: int) -> AppendResult:
    """The result of an append that was new."""
    return AppendResult(run_seq, idempotent=False, persisted=True)


def known(run_seq: int, *, mismatch: bool = False) -> AppendResult:
    """The result of an append whose key was known."""
    return AppendResult(run_seq, idempotent=True, persisted=False, payload_mismatch=mismatch)


# Append


@EVENTS
async def test_events_of_a_run_are_numbered_from_1_without_gaps(world: World) -> None:
    events = world.store.events
    for number in range(1, 6):
        assert await events.append_event(event(f"k{number}")) == new(number)
    assert await events.append_event(event("k1", "other")) == new(1)
    assert [one.run_seq for one in await events.fetch_events("r")] == [1, 2, 3, 4, 5]


@EVENTS
async def test_no_number_is_too_large_to_be_expected(world: World) -> None:
    events = world.store.events
    with pytest.raises(Conflict, match="is at 0"):
        await events.append_events([event("k1"), event("k2")], expected_seq=2**63 - 1)
    assert await events.last_seq("r") == 0


@EVENTS
async def test_calls_at_once_are_new_known_and_refused_each_for_itself(world: World) -> None:
    events = world.store.events
    await events.append_events([event("k1"), event("k2")])
    calls = [
        events.append_event(event("k3")),
        events.append_event(event("k1")),
        events.append_event(event("k1", "other")),
        events.append_event(event("k4"), expected_seq=1),
    ]
    *done, refused = await world.colour.together(calls)
    assert done == [new(3), known(1), new(1)]
    assert isinstance(refused, Conflict)
    assert refused.expected_seq == 1
    assert [one.idempotency_key for one in await events.fetch_events("r")] == ["k1", "k2", "k3"]


@EVENTS
async def test_the_last_number_of_a_run_is_told(world: World) -> None:
    events = world.store.events
    assert await events.last_seq("r") == 0
    await events.append_events([event("k1"), event("k2")])
    assert await events.last_seq("r") == 2
    await events.delete_run("r", force=True)
    assert await events.last_seq("r") == 0


@EVENTS
async def test_every_field_comes_back(world: World) -> None:
    events = world.store.events
    event_id = str(uuid4())
    before = await world.store.now()
    given = Event(
        "r",
        "StepCompleted",
        "k",
        {"raw": b"\xff", "text": "gr\u00fcn \x00", "n": [1, 2.5, None, True]},
        step_id="load",
        logical_attempt_id=2,
        engine_attempt_id="e-3",
        event_id=event_id,
        emitted_at=datetime(2026, 2, 3, 4, 5, 6, 789012, UTC),
        adapter_version="1.2",
        engine_run_ref={"workflow": "w", "run": 7},
        caused_by_signal_id="s-1",
        parent_event_id="p-1",
        run_seq=99,
        persisted_at=datetime(1999, 1, 1, tzinfo=UTC),
    )
    assert await events.append_event(given) == new(1)
    (found,) = await events.fetch_events("r")
    assert found.persisted_at is not None
    assert before.timestamp() - 0.01 <= found.persisted_at.timestamp()
    assert found == Event(
        "r",
        "StepCompleted",
        "k",
        given.event_data,
        "load",
        "2",
        "e-3",
        event_id,
        given.emitted_at,
        "1.2",
        given.engine_run_ref,
        "s-1",
        "p-1",
        1,
        found.persisted_at,
    )


@EVENTS
async def test_what_is_left_out_the_store_fills_in(world: World) -> None:
    events = world.store.events
    await events.append_event(event("k"))
    (found,) = await events.fetch_events("r")
    assert found.event_id is not None
    assert UUID(found.event_id).version == 7
    assert found.emitted_at == found.persisted_at
    assert found.event_data is None


@EVENTS
async def test_a_known_key_gives_the_first_number_and_changes_nothing(world: World) -> None:
    events = world.store.events
    await events.append_event(event("k", event_data={"a": 1, "b": 2}))
    await events.append_event(event("k2"))
    before = await events.fetch_events("r")
    assert await events.append_event(event("k", event_data={"b": 2, "a": 1})) == known(1)
    assert await events.append_event(event("k", event_data=3)) == known(1, mismatch=True)
    other = event("k", event_type="Other", event_data={"a": 1, "b": 2})
    assert await events.append_event(other) == known(1, mismatch=True)
    assert await events.fetch_events("r") == before
    assert await events.append_event(event("k", "other")) == new(1)  # keys are the run's own


@EVENTS
@pytest.mark.parametrize("in_one_call", [False, True], ids=["later", "at once"])
async def test_a_known_key_with_other_fields_is_told(world: World, in_one_call: bool) -> None:  # noqa: FBT001 - a parameter
    first: dict[str, Any] = {
        "event_data": {"a": [1, {"b": 0.5}]},
        "step_id": "s",
        "logical_attempt_id": 1,
        "engine_run_ref": {"job": 7, "on": True},
        "parent_event_id": "p",
    }
    same: list[dict[str, Any]] = [
        {"event_id": str(uuid4()), "emitted_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"logical_attempt_id": "1", "run_seq": 9},
        {"engine_run_ref": {"on": True, "job": 7}},
    ]
    other: list[dict[str, Any]] = [
        {"event_data": {"a": [True, {"b": 0.5}]}},
        {"event_data": {"a": [1.0, {"b": 0.5}]}},
        {"step_id": "t"},
        {"step_id": None},
        {"logical_attempt_id": 2},
        {"engine_attempt_id": 1},
        {"adapter_version": "1"},
        {"engine_run_ref": {"job": 7, "on": 1}},
        {"engine_run_ref": None},
        {"caused_by_signal_id": "c"},
        {"parent_event_id": None},
        dict.fromkeys(first),
    ]
    again = [event("k", **{**first, **fields}) for fields in (*same, *other)]
    results = [known(1)] * len(same) + [known(1, mismatch=True)] * len(other)
    events = world.store.events
    if in_one_call:
        told = await events.append_events([event("k", **first), *again])
        assert told == [new(1), *results]
    else:
        await events.append_event(event("k", **first))
        assert [await events.append_event(one) for one in again] == results
    (stored,) = await events.fetch_events("r")
    assert (stored.event_data, stored.step_id) == (first["event_data"], "s")


@EVENTS
async def test_a_known_key_without_more_fields_is_compared_too(world: World) -> None:
    events = world.store.events
    await events.append_event(event("k", event_data=1))
    assert await events.append_event(event("k", event_data=1)) == known(1)
    assert await events.append_event(event("k", event_data=True)) == known(1, mismatch=True)
    other = event("k", event_data=1, step_id="s")
    assert await events.append_event(other) == known(1, mismatch=True)


@EVENTS
async def test_a_known_key_comes_before_what_is_expected(world: World) -> None:
    events = world.store.events
    assert await events.append_event(event("k1"), expected_seq=0) == new(1)
    assert await events.append_event(event("k2"), expected_seq=1) == new(2)
    assert await events.append_event(event("k1"), expected_seq=0) == known(1)
    assert await events.append_event(event("k1"), expected_seq=77) == known(1)


@EVENTS
@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_a_run_that_is_elsewhere_is_a_conflict(world: World, expected: int) -> None:
    events = world.store.events
    await events.append_events([event("k1"), event("k2")])
    with pytest.raises(Conflict) as caught:
        await events.append_event(event("k3"), expected_seq=expected)
    assert (caught.value.run_id, caught.value.last_seq) == ("r", 2)
    assert caught.value.expected_seq == expected
    assert len(await events.fetch_events("r")) == 2
    with pytest.raises(Conflict):
        await events.append_event(event("k1", "never"), expected_seq=1)
    assert await events.list_runs() == ["r"]


@EVENTS
async def test_a_key_said_twice_in_a_call_is_one_event_whatever_the_second_ones_id(
    world: World,
) -> None:
    events = world.store.events
    event_id = str(uuid4())
    await events.append_event(event("k1", event_id=event_id))
    with pytest.raises(Conflict) as caught:
        await events.append_events([event("k2"), event("k2", event_id=event_id)], expected_seq=9)
    assert caught.value.facts["expected_seq"] == 9
    assert "event_id" not in caught.value.facts


@EVENTS
async def test_a_known_event_id_under_a_new_key_is_a_conflict(world: World) -> None:
    events = world.store.events
    event_id = str(uuid4())
    await events.append_event(event("k1", event_id=event_id))
    with pytest.raises(Conflict, match=event_id) as caught:
        await events.append_event(event("k2", event_id=event_id))
    assert caught.value.event_id == event_id
    assert await events.append_event(event("k1", event_id=event_id)) == known(1)
    assert await events.append_event(event("k2", "other", event_id=event_id)) == new(1)


@EVENTS
async def test_several_events_go_in_as_a_whole_or_not_at_all(world: World) -> None:
    events = world.store.events
    assert await events.append_events([]) == []
    first = [event("k1"), event("k2"), event("k1")]
    assert await events.append_events(first) == [new(1), new(2), known(1)]
    assert await events.append_events([event("k2"), event("k3")]) == [known(2), new(3)]
    event_id = str(uuid4())
    twice = [event("k4", event_id=event_id), event("k5", event_id=event_id)]
    with pytest.raises(Conflict, match=event_id):
        await events.append_events(twice)
    with pytest.raises(Conflict):
        await events.append_events([event("k6"), event("k7")], expected_seq=2)
    assert [one.idempotency_key for one in await events.fetch_events("r")] == ["k1", "k2", "k3"]
    assert await events.append_event(event("k8")) == new(4)


@EVENTS
async def test_appends_at_the_same_time_lose_nothing(world: World) -> None:
    events = world.store.events
    results = await world.together(
        events.append_event(event(f"k{number % 30}", f"r{number % 3}")) for number in range(60)
    )
    numbers: dict[str, list[int]] = {}
    for number, result in enumerate(results):
        assert isinstance(result, AppendResult), result
        if result.persisted:
            numbers.setdefault(f"r{number % 3}", []).append(result.run_seq)
    assert {run: sorted(found) for run, found in numbers.items()} == {
        f"r{run}": list(range(1, 11)) for run in range(3)
    }
    assert sum(result.idempotent for result in results) == 30
    for run in range(3):
        found = await events.fetch_events(f"r{run}")
        assert [one.run_seq for one in found] == list(range(1, 11))


@EVENTS
@pytest.mark.parametrize(
    "fields",
    [
        {"run_id": ""},
        {"event_type": ""},
        {"idempotency_key": ""},
        {"run_id": "r\0"},
        {"run_id": 7},
        {"event_data": float("nan")},
        {"event_data": 1j},
        {"event_id": "7"},
        {"emitted_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - what it is about
        {"logical_attempt_id": True},
        {"step_id": ""},
    ],
    ids="-".join,
)
async def test_what_is_no_event_is_refused(world: World, fields: dict[str, Any]) -> None:
    wrong = Event(**{"run_id": "r", "event_type": "T", "idempotency_key": "k", **fields})
    with pytest.raises(InvalidArgument):
        await world.store.events.append_event(wrong)
    assert await world.store.events.list_runs() == []


@EVENTS
async def test_wrong_calls_are_refused(world: World) -> None:
    events = world.store.events
    for thing in ({"run_id": "r"}, None):
        with pytest.raises(InvalidArgument, match="wanted an Event"):
            await events.append_event(thing)  # type: ignore[arg-type]
    for seq in (-1, 1.5, True, "1"):
        with pytest.raises(InvalidArgument, match="expected_seq"):
            await events.append_event(event("k"), expected_seq=seq)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="after_seq"):
            await events.fetch_events("r", after_seq=seq)  # type: ignore[arg-type]
    for limit in (0, -1, 10_001, None):
        with pytest.raises(InvalidArgument, match="limit"):
            await events.fetch_events("r", limit=limit)  # type: ignore[arg-type]
    for things in (None, 7, event("k"), [event("k"), None]):
        with pytest.raises(InvalidArgument, match="wanted"):
            await events.append_events(things)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="one run"):
        await events.append_events([event("k"), event("k", "other")])
    with pytest.raises(InvalidArgument, match="at most 1000"):
        await events.append_events([event(f"k{number}") for number in range(1001)])


@EVENTS
async def test_an_event_that_is_too_large_is_refused_with_a_hint(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=1000))
    with pytest.raises(InvalidArgument, match="claim check") as caught:
        await store.events.append_event(event("k", event_data="x" * 1001))
    assert caught.value.limit == 1000
    await store.events.append_event(event("k", event_data="x" * 900))


@EVENTS
async def test_the_size_of_an_event_is_in_bytes(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=1000))
    await store.events.append_event(event("k", event_data="é" * 499))  # and two quotes
    for fields in ({"event_data": "é" * 500}, {"engine_run_ref": "é" * 500}):
        with pytest.raises(InvalidArgument, match="at most 1000"):
            await store.events.append_event(event("k2", **fields))
    assert len(await store.events.fetch_events("r")) == 1


# Fetch


@EVENTS
async def test_fetch_goes_on_above_a_number(world: World) -> None:
    events = world.store.events
    assert await events.fetch_events("never") == []
    await events.append_events([event(f"k{number}") for number in range(1, 8)])
    found: list[int] = []
    while page := await events.fetch_events("r", after_seq=found[-1] if found else 0, limit=3):
        assert len(page) <= 3
        found += [one.run_seq for one in page]
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert await events.fetch_events("r", after_seq=7) == []
    assert await events.fetch_events("r", after_seq=2**62) == []


@EVENTS
async def test_runs_are_listed_in_byte_order(world: World) -> None:
    events = world.store.events
    names = ["a", "a%", "ab", "b", "\u00e4", "\uffff", "\U0001f600"]
    for name in reversed(names):
        await events.append_event(event("k", name))
    assert await events.list_runs() == names
    assert await events.list_runs(limit=2) == names[:2]
    assert await events.list_runs(after="ab", limit=2) == names[3:5]


@EVENTS
async def test_namespaces_are_apart(world: World) -> None:
    here, there = world.store.events, world.store.namespace("there").events
    await here.append_event(event("k"))
    assert await there.fetch_events("r") == []
    assert await there.get_snapshot("r") is None
    assert await there.append_event(event("k")) == new(1)
    await here.delete_run("r", force=True)
    assert len(await there.fetch_events("r")) == 1


# Snapshots


@EVENTS
async def test_a_snapshot_is_what_the_events_make_of_a_run(world: World) -> None:
    events = world.store.events
    assert await events.get_snapshot("r") is None
    empty = await events.project_snapshot("r")
    assert (empty.status, empty.last_event_seq, empty.steps) == (RunStatus.PENDING, 0, {})
    history = [
        event("1", event_type="RunStarted"),
        event("2", event_type="StepStarted", step_id="load"),
        event("3", event_type="StepFailed", step_id="load", event_data={"error": "no"}),
        event("4", event_type="StepStarted", step_id="load"),
        event("5", event_type="StepCompleted", step_id="load", event_data={"artifacts": [b"a"]}),
        event("6", event_type="Unheard"),
        event("7", event_type="RunCompleted"),
        event("8", event_type="StepStarted", step_id="late"),
    ]
    await events.append_events(history)
    snapshot = await events.get_snapshot("r")
    assert snapshot is not None
    assert (snapshot.status, snapshot.last_event_seq) == (RunStatus.COMPLETED, 8)
    assert snapshot.anomalies == 1
    assert list(snapshot.steps) == ["load"]
    load = snapshot.steps["load"]
    assert (load.status, load.attempts, load.error) == (StepStatus.SUCCESS, 2, None)
    assert load.artifacts == [b"a"]
    assert snapshot.duration is not None
    assert await events.project_snapshot("r") == snapshot


@EVENTS
async def test_a_kept_snapshot_changes_nothing_but_the_cost(world: World) -> None:
    events = world.store.events
    assert await events.keep_snapshot("r") is None
    await events.append_event(event("1", event_type="RunStarted"))
    kept = await events.keep_snapshot("r")
    assert kept is not None
    assert kept.status is RunStatus.RUNNING
    step = event("2", event_type="StepCompleted", step_id="s", event_data={"artifacts": {"b": b""}})
    await events.append_event(step)
    for _ in range(2):
        found = await events.get_snapshot("r")
        assert found == await events.project_snapshot("r")
        assert found is not None
        assert found.hash == (await events.project_snapshot("r")).hash != kept.hash
        await events.keep_snapshot("r")


# Whole runs


@EVENTS
async def test_a_run_is_deleted_as_a_whole_when_it_has_ended(world: World) -> None:
    events = world.store.events
    with pytest.raises(NotFound, match="'r'"):
        await events.delete_run("r")
    await events.append_events([event(f"k{number}") for number in range(700)])
    await events.keep_snapshot("r")
    with pytest.raises(InvalidState, match="force"):
        await events.delete_run("r")
    await events.append_event(event("end", event_type="RunCancelled"))
    await events.append_event(event("k", "kept"))
    await events.delete_run("r")
    assert await events.fetch_events("r") == []
    assert await events.get_snapshot("r") is None
    assert await events.list_runs() == ["kept"]
    assert await events.append_event(event("k1")) == new(1)  # another run of the same name
    await events.delete_run("r", force=True)
    assert await events.list_runs() == ["kept"]


# Keys


def test_the_published_keys() -> None:
    step = idempotency_key("run-001", "model.orders", "1", "StepStarted", "1.2.0")
    assert step == "6c99484df8a52a1dc3f2533b796f7257c11f57149d3fe3277d4c7ab98433d033"
    assert idempotency_key("run-001", "model.orders", 1, "StepStarted", "1.2.0") == step
    run = idempotency_key("run-001", None, None, "RunStarted", "1.2.0")
    assert run == "d219f09c191299aed8f136206aac54aba08233611a71d86470eb60174fb086b4"
    assert idempotency_key("run-001", "RUN", "1", "RunStarted", "1.2.0") == run
    paused = [
        idempotency_key("r", None, None, "RunPaused", "1", discriminator=signal)
        for signal in (None, "s1", "s2")
    ]
    assert len(set(paused)) == 3


# Transactions


@needs(Capability.EVENTS, Capability.TRANSACTIONS)
async def test_an_event_commits_with_the_rest_or_not_at_all(world: World) -> None:
    store = world.store
    with contextlib.suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.events.append_event(event("k1"))
            await tx.cells.set("a", 1)
            raise ZeroDivisionError
    assert await store.events.list_runs() == []
    async with store.transaction() as tx:
        assert await tx.events.append_event(event("k1")) == new(1)
        await tx.cells.set("a", 1)
        assert await tx.events.append_event(event("k1")) == known(1)
        assert await tx.events.append_event(event("k2", "other")) == new(1)
        with pytest.raises(Conflict):
            await tx.events.append_event(event("k3"), expected_seq=0)
        assert len(await tx.events.fetch_events("r")) == 1
    assert await store.events.list_runs() == ["other", "r"]
    assert await store.cells.get("a") == 1


@needs(Capability.EVENTS)
async def test_a_known_event_is_told_before_an_unmet_expectation(world: World) -> None:
    events = world.store.events
    known = str(uuid4())
    await events.append_event(Event("r", "Noted", "k1", event_id=known))
    for call in (
        [Event("r", "Noted", "k2"), Event("r", "Noted", "k3", event_id=known)],
        [Event("r", "Noted", "k1"), Event("r", "Noted", "k3", event_id=known)],
    ):
        with pytest.raises(Conflict) as caught:
            await events.append_events(call, expected_seq=7)
        assert caught.value.facts["event_id"] == known
    twice = str(uuid4())
    with pytest.raises(Conflict) as caught:
        await events.append_events(
            [Event("r", "Noted", key, event_id=twice) for key in ("k4", "k5")], expected_seq=7
        )
    assert caught.value.facts["event_id"] == twice
    assert await events.last_seq("r") == 1

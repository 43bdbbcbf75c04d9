"""Specs for tasks and the sweeper: who holds a task, and what becomes of a forgotten one."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Capability, InvalidArgument, StoreError, TaskState, TaskStatus
from holdfast.aio.transport import AsyncConsumer
from holdfast.facets.tasks import MOVES, TERMINAL, may_move
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

TASKS = needs(Capability.RECORDS, Capability.TRANSPORT)
CLOCK = needs(Capability.RECORDS, Capability.TRANSPORT, Capability.MOVABLE_CLOCK)
QUEUE = "gbe.tasks.mail.queue"


async def _told(consumer: AsyncConsumer) -> list[tuple[str, str, int]]:
    """What has been published: the last word of the subject, the state, and the retries."""
    found = []
    while (delivery := await consumer.next(0)) is not None:
        event = delivery.message.payload
        word = delivery.message.subject.rpartition(".")[2]
        found.append((word, event["state"], event.get("retry_count", 0)))
        assert await delivery.ack()
    return found


async def _state(world: World, task_id: str = "1") -> str:
    task = await world.store.tasks.get("mail", task_id)
    assert task is not None
    return task.state


async def _claimed(world: World, worker: str = "w") -> TaskState:
    task = await world.store.tasks.claim("mail", "1", worker, timeout=30)
    assert task is not None
    return task


@TASKS
async def test_a_task_goes_from_pending_to_completed(world: World) -> None:
    tasks = world.store.tasks
    async with world.store.transport.consumer("all", "gbe.>") as consumer:
        assert await tasks.create("mail", "1", params_ref="ref", step_count=2) is True
        assert await tasks.create("mail", "1") is False
        task = await _claimed(world)
        assert (task.state, task.worker, task.params_ref) == ("claimed", "w", "ref")
        assert task.timeout_at is not None
        assert task.timeout_at - task.updated_at == 30_000
        running = await tasks.step(task, timeout=60)
        assert running is not None
        assert (running.state, running.current_step) == ("running", 1)
        assert running.timeout_at is not None
        assert running.timeout_at - running.updated_at == 60_000
        assert await tasks.complete(running, result_ref="result") is True
        done = await tasks.get("mail", "1")
        assert done is not None
        assert (done.state, done.result_ref, done.timeout_at) == ("completed", "result", None)
        assert await _told(consumer) == [
            ("queue", "pending", 0),
            ("progress", "running", 0),
            ("terminal", "completed", 0),
        ]


@TASKS
async def test_tasks_wait_for_their_first_worker(world: World) -> None:
    tasks = world.store.tasks
    for task_id in ("1", "2"):
        await tasks.create("mail", task_id)
    await tasks.create("print", "1")
    await tasks.cancel("mail", "1")
    async with tasks.consumer("mail") as queue:
        claimed = []
        while (delivery := await queue.next(0)) is not None:
            event = delivery.message.payload
            assert event["task_type"] == "mail"
            task = await tasks.claim("mail", event["task_id"], "w", timeout=30)
            claimed.append((event["task_id"], task is not None))
            assert await delivery.ack()
        assert claimed == [("1", False), ("2", True)]
    # The group keeps its place: nothing is delivered twice to a worker that comes later.
    await tasks.create("mail", "3")
    async with tasks.consumer("mail") as queue:
        assert await _told(queue) == [("queue", "pending", 0)]
    async with tasks.consumer("mail", group="other") as queue:
        assert len(await _told(queue)) == 3
    assert await world.store.transport.list_groups() == ["gbe.tasks.mail", "other"]
    async with tasks.below("acme").consumer("mail") as queue:
        assert await _told(queue) == []


@TASKS
async def test_the_record_has_the_seeds_fields(world: World) -> None:
    await world.store.tasks.create("email-send", "job_abc123")
    record = await world.store.records.get("gbe.state.tasks.email-send.job_abc123")
    assert record is not None
    assert record.fields["state"] == b"pending"
    assert record.fields["task_type"] == b"email-send"
    assert record.fields["task_id"] == b"job_abc123"
    assert int(record.fields["created_at"]) == int(record.fields["updated_at"])


@TASKS
async def test_of_many_workers_one_claims_a_task(world: World) -> None:
    tasks = world.store.tasks
    await tasks.create("mail", "1")
    claims = await world.together(
        tasks.claim("mail", "1", f"w{number}", timeout=30) for number in range(10)
    )
    assert sum(claim is not None for claim in claims) == 1


@TASKS
async def test_who_no_longer_holds_a_task_cannot_change_it(world: World) -> None:
    tasks = world.store.tasks
    await tasks.create("mail", "1")
    stale = await _claimed(world)
    assert await tasks.retry(stale) is True
    fresh = await _claimed(world)
    assert fresh.retry_count == 1
    for call in (tasks.complete(stale), tasks.fail(stale, "late"), tasks.retry(stale)):
        assert await call is False
    assert await tasks.step(stale, timeout=1) is None
    assert await tasks.complete(fresh) is True


@TASKS
async def test_a_task_that_moved_on_within_a_millisecond_is_told_apart(world: World) -> None:
    tasks, records = world.store.tasks, world.store.records
    await tasks.create("mail", "1")
    first = await _claimed(world)
    assert await tasks.retry(first) is True
    second = await _claimed(world)
    times = {"updated_at": first.updated_at, "timeout_at": first.timeout_at}
    await records.set_fields("gbe.state.tasks.mail.1", times)
    assert await tasks.complete(first) is False
    assert await tasks.give_up(first) is False
    seen = await tasks.get("mail", "1")
    assert seen is not None
    step = await tasks.step(seen, timeout=30)
    assert step is not None
    assert await tasks.step(step, timeout=30) is not None
    times = {"updated_at": step.updated_at, "timeout_at": step.timeout_at}
    await records.set_fields("gbe.state.tasks.mail.1", times)
    assert await tasks.step(step, timeout=30) is None
    assert await tasks.complete(second) is False


@TASKS
async def test_a_task_that_another_program_made_can_be_worked_on(world: World) -> None:
    tasks, records = world.store.tasks, world.store.records
    fields = {"state": "pending", "task_type": "mail", "task_id": "1"}
    await records.put("gbe.state.tasks.mail.1", fields)
    assert await tasks.retry(await _claimed(world)) is True
    task = await _claimed(world)
    assert task.retry_count == 1
    assert await tasks.complete(task) is True
    await records.put("gbe.state.tasks.mail.2", {**fields, "state": "running", "task_id": "2"})
    bare = await tasks.get("mail", "2")
    assert bare is not None
    assert await tasks.fail(bare, "nobody is there") is True


@TASKS
async def test_fail_and_cancel_end_a_task(world: World) -> None:
    tasks = world.store.tasks
    await tasks.create("mail", "1")
    assert await tasks.fail(await _claimed(world), "no paper", retry=False) is True
    failed = await tasks.get("mail", "1")
    assert failed is not None
    assert (failed.state, failed.error) == ("failed", "no paper")
    assert await tasks.cancel("mail", "1") is False
    await tasks.create("mail", "2")
    assert await tasks.cancel("mail", "2") is True
    assert await tasks.claim("mail", "2", "w", timeout=1) is None
    assert await tasks.cancel("mail", "nothing") is False


@TASKS
async def test_a_task_that_fails_is_retried_until_its_retries_are_used_up(world: World) -> None:
    tasks = world.store.tasks
    async with world.store.transport.consumer("all", "gbe.>") as consumer:
        await tasks.create("mail", "1", max_retries=2)
        for attempt in range(3):
            task = await _claimed(world)
            assert task.retry_count == attempt
            assert await tasks.fail(task, f"no paper {attempt}") is True
            assert await tasks.fail(task, "twice") is False
            now = await tasks.get("mail", "1")
            assert now is not None
            assert now.error == f"no paper {attempt}"
            assert now.state == ("pending" if attempt < 2 else "failed")
        assert await _told(consumer) == [
            ("queue", "pending", 0),
            ("queue", "pending", 1),
            ("queue", "pending", 2),
            ("terminal", "failed", 2),
        ]
        await tasks.create("mail", "2", max_retries=1)
        first = await tasks.claim("mail", "2", "w", timeout=30)
        assert first is not None
        assert await tasks.fail(first, "again") is True
        second = await tasks.claim("mail", "2", "w", timeout=30)
        assert second is not None
        assert second.error == "again"
        assert await tasks.complete(second) is True
        done = await tasks.get("mail", "2")
        assert done is not None
        assert (done.state, done.error) == ("completed", None)


@TASKS
async def test_params_are_kept_with_the_task(world: World) -> None:
    tasks = world.store.tasks
    values = {"a": {"to": "me", "n": [1, 2.5, None], "raw": b"\xff"}, "b": 0, "c": "x", "d": []}
    for task_id, params in values.items():
        await tasks.create("mail", task_id, params=params, params_ref="ref")
        task = await tasks.claim("mail", task_id, "w", timeout=30)
        assert task is not None
        assert (task.params, task.params_ref) == (params, "ref")
        task = await tasks.step(task, timeout=30)
        assert task is not None
        assert task.params == params
    await tasks.create("mail", "none")
    none = await tasks.get("mail", "none")
    assert none is not None
    assert none.params is None
    with pytest.raises(InvalidArgument, match="claim check"):
        await tasks.create("mail", "large", params="x" * 3_000_000)
    with pytest.raises(StoreError):
        await tasks.create("mail", "odd", params={1, 2})
    assert await tasks.get("mail", "large") is None
    assert await tasks.get("mail", "odd") is None


@TASKS
async def test_tasks_are_listed_by_type_and_state(world: World) -> None:
    tasks = world.store.tasks
    for task_type, task_id in (("mail", "1"), ("mail", "2"), ("mail", "3"), ("mailing", "1")):
        await tasks.create(task_type, task_id)
    await _claimed(world)
    await tasks.create("mail", "4", blocked=True)
    await world.store.records.put("gbe.state.tasks.mail.0", {"state": "no task's"})

    async def listed(task_type: Any = None, state: Any = None) -> list[tuple[str, str]]:  # noqa: ANN401 - wrong ones too
        found = tasks.list(task_type, state=state)
        return [(task.task_type, task.task_id) async for task in found]

    mails = [("mail", number) for number in "1234"]
    assert await listed() == [*mails, ("mailing", "1")]
    assert await listed("mail") == mails
    assert await listed("mail", state="pending") == [("mail", "2"), ("mail", "3")]
    assert await listed(state=TaskStatus.PENDING) == [*mails[1:3], ("mailing", "1")]
    assert await listed("mail", state="claimed") == [("mail", "1")]
    assert await listed("mail", state="blocked") == [("mail", "4")]
    assert await listed("mail", state="completed") == []
    for refused in ({"state": "lost"}, {"state": 7}, {"task_type": "a.b"}):
        with pytest.raises(InvalidArgument):
            await listed(**refused)


@TASKS
async def test_a_blocked_task_waits_to_be_unblocked(world: World) -> None:
    tasks = world.store.tasks
    async with world.store.transport.consumer("q", QUEUE) as consumer:
        await tasks.create("mail", "1", blocked=True)
        assert await tasks.claim("mail", "1", "w", timeout=1) is None
        assert await _told(consumer) == []
        assert await tasks.unblock("mail", "1") is True
        assert await tasks.unblock("mail", "1") is False
        assert await _told(consumer) == [("queue", "pending", 0)]
    await _claimed(world)


@TASKS
async def test_a_task_that_was_deleted_and_made_again_is_queued_again(world: World) -> None:
    tasks = world.store.tasks
    async with world.store.transport.consumer("all", QUEUE) as consumer:
        for _ in range(2):
            assert await tasks.create("mail", "1")
            task = await _claimed(world)
            assert await tasks.retry(task)
            assert await tasks.cancel("mail", "1")
            assert await world.store.records.delete("gbe.state.tasks.mail.1")
            assert await _told(consumer) == [("queue", "pending", 0), ("queue", "pending", 1)]


@TASKS
async def test_the_longest_names_of_tasks_are_queued_and_retried(world: World) -> None:
    tasks = world.store.tasks
    name = "x" * (1024 - len("gbe.state.tasks.mail."))
    async with world.store.transport.consumer("all", QUEUE) as consumer:
        assert await tasks.create("mail", name)
        task = await tasks.claim("mail", name, "w", timeout=30)
        assert task is not None
        assert await tasks.retry(task)
        assert await _told(consumer) == [("queue", "pending", 0), ("queue", "pending", 1)]


@TASKS
async def test_a_message_that_cannot_be_sent_refuses_the_change(world: World) -> None:
    tasks = world.store.tasks
    await tasks.create("mail", "1")
    task = await _claimed(world)
    # It fits into the record, but as JSON it is twice as long.
    with pytest.raises(InvalidArgument, match="claim check"):
        await tasks.fail(task, "\n" * 1_100_000)
    assert await _state(world) == "claimed"
    assert await tasks.fail(task, "short")


@TASKS
async def test_bad_arguments_about_tasks_are_refused(world: World) -> None:
    tasks = world.store.tasks
    nobodys: Any = None
    number: Any = 7
    for refused in (
        lambda: tasks.complete(nobodys),
        lambda: tasks.step(nobodys, timeout=1),
        lambda: tasks.fail(nobodys, "why"),
    ):
        with pytest.raises(InvalidArgument, match="wanted the TaskState that `claim` or `step`"):
            await refused()
    with pytest.raises(InvalidArgument, match="step_count: wanted 0 or more, found 'x'"):
        await tasks.create("mail", "2", step_count="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="params_ref: wanted text, found int"):
        await tasks.create("mail", "2", params_ref=number)
    assert await tasks.get("mail", "2") is None
    await tasks.create("mail", "1")
    with pytest.raises(InvalidArgument, match="worker"):
        await tasks.claim("mail", "1", number, timeout=30)
    task = await _claimed(world)
    with pytest.raises(InvalidArgument, match="result_ref: wanted text, found int"):
        await tasks.complete(task, result_ref=number)
    with pytest.raises(InvalidArgument, match="error: wanted text, found int"):
        await tasks.fail(task, number)
    assert await _state(world) == "claimed"


@needs(Capability.TRANSACTIONS)
async def test_what_becomes_of_a_task_commits_with_the_rest(world: World) -> None:
    tasks = world.store.tasks
    async with world.store.transport.consumer("all", "gbe.>") as consumer:
        await tasks.create("mail", "1")
        task = await _claimed(world)
        await _told(consumer)

        async def change_of_mind() -> None:
            async with world.store.transaction() as tx:
                assert await tx.tasks.complete(task)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await change_of_mind()
        assert await _state(world) == "claimed"
        assert await _told(consumer) == []
        async with world.store.transaction() as tx:
            assert await tx.tasks.complete(task, result_ref="r")
            assert await tx.tasks.create("mail", "next")
            await tx.cells.set("sent", 1)
            assert await world.store.tasks.get("mail", "next") is None
        assert await _state(world) == "completed"
        told = await _told(consumer)
        assert told == [("terminal", "completed", 0), ("queue", "pending", 0)]
        assert await world.store.cells.get("sent") == 1


@TASKS
async def test_moves_that_the_table_forbids_are_refused(world: World) -> None:
    tasks = world.store.tasks
    await tasks.create("mail", "1")
    pending = await tasks.get("mail", "1")
    assert pending is not None
    with pytest.raises(InvalidArgument, match="from pending"):
        await tasks.complete(pending)
    assert await _state(world) == "pending"
    assert all(may_move(before, after) for before, moves in MOVES.items() for after in moves)
    assert {state for state in TaskStatus if not MOVES[state]} == TERMINAL


@TASKS
@pytest.mark.parametrize("name", ["", "a.b", "a b", "a:b", "*"])
async def test_bad_names_of_tasks_are_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await world.store.tasks.create(name, "1")
    with pytest.raises(InvalidArgument):
        await world.store.tasks.create("mail", name)


# The sweeper


@CLOCK
async def test_a_dead_workers_task_is_retried_three_times_then_failed(world: World) -> None:
    tasks, sweeper = world.store.tasks, world.sweeper()
    async with (
        world.store.transport.consumer("q", QUEUE) as queue,
        world.store.transport.consumer("errors", "gbe.events.system.error") as errors,
    ):
        await tasks.create("mail", "1")
        for attempt in range(4):
            assert await _told(queue) == [("queue", "pending", attempt)]
            await _claimed(world, f"w{attempt}")
            await sweeper.sweep()
            assert await _state(world) == "claimed"
            await world.move_clock(31)
            done = await sweeper.sweep()
            assert (done.retried, done.failed) == ((1, 0) if attempt < 3 else (0, 1))
        assert await _state(world) == "failed"
        assert await _told(queue) == []
        assert await _told(errors) == [("error", "failed", 3)]
        task = await tasks.get("mail", "1")
        assert task is not None
        assert (task.retry_count, task.timeout_at) == (3, None)
        assert task.error is not None
        assert "w3" in task.error


@CLOCK
async def test_metrics_of_the_sweeper_are_its_totals(world: World) -> None:
    sweeper = world.sweeper()
    names = ("retried", "failed", "queued", "purged", "sweeps")
    nothing = dict.fromkeys((f"holdfast_sweeper_{name}_total" for name in names), 0.0)
    assert await sweeper.metrics() == nothing
    await world.store.tasks.create("mail", "1")
    await _claimed(world)
    await sweeper.sweep()
    await world.move_clock(600)
    await sweeper.sweep()
    done = {"holdfast_sweeper_retried_total": 1.0, "holdfast_sweeper_sweeps_total": 2.0}
    assert await sweeper.metrics() == nothing | done


@CLOCK
async def test_a_running_task_is_swept_after_its_own_timeout(world: World) -> None:
    tasks, sweeper = world.store.tasks, world.sweeper()
    await tasks.create("mail", "1")
    task = await tasks.step(await _claimed(world), timeout=1000)
    assert task is not None
    await world.move_clock(900)
    await sweeper.sweep()
    assert await _state(world) == "running"
    await world.move_clock(101)
    assert (await sweeper.sweep()).retried == 1
    assert await _state(world) == "pending"


@CLOCK
async def test_a_task_without_timeout_is_swept_by_its_age(world: World) -> None:
    records, sweeper = world.store.records, world.sweeper(threshold=300)
    task: dict[str, str | int] = {"state": "pending", "task_type": "mail", "task_id": "1"}
    await records.put("gbe.state.tasks.mail.1", {**task})
    # The seed's two calls, with a crash between them and no timeout.
    await records.set_field("gbe.state.tasks.mail.1", "state", "claimed")
    now = int((await world.store.now()).timestamp() * 1000)
    await records.set_field("gbe.state.tasks.mail.1", "updated_at", now)
    await world.move_clock(299)
    assert (await sweeper.sweep()).retried == 0
    await world.move_clock(2)
    assert (await sweeper.sweep()).retried == 1
    assert await _state(world) == "pending"


@CLOCK
async def test_tasks_with_time_left_do_not_starve_one_without_a_timeout(world: World) -> None:
    records = world.store.records
    long_ago: dict[str, str | int | None] = {
        "state": "running",
        "task_type": "mail",
        "updated_at": 1,
    }
    far = int((await world.store.now()).timestamp() * 1000) + 10**9

    async def put(first: int) -> None:
        for n in range(first, 1100, 20):
            task = {**long_ago, "task_id": f"{n:04}", "timeout_at": far}
            await records.put(f"gbe.state.tasks.mail.{n:04}", task)

    await world.together(put(first) for first in range(20))
    await records.put("gbe.state.tasks.mail.9999", {**long_ago, "task_id": "9999"})
    assert (await world.sweeper().sweep()).retried == 1
    assert await _state(world, "9999") == "pending"


@CLOCK
async def test_a_pending_backlog_never_fails_by_age(world: World) -> None:
    tasks, sweeper = world.store.tasks, world.sweeper()
    async with world.store.transport.consumer("q", QUEUE) as queue:
        for number in range(5):
            await tasks.create("mail", str(number))
        assert len(await _told(queue)) == 5
        for _ in range(6):
            await world.move_clock(301)
            done = await sweeper.sweep()
            assert (done.queued, done.failed, done.retried) == (5, 0, 0)
            assert await _told(queue) == [("queue", "pending", 0)] * 5
            assert (await sweeper.sweep()).queued == 0
        assert {await _state(world, str(number)) for number in range(5)} == {"pending"}


@CLOCK
async def test_blocked_and_ended_tasks_are_left_alone(world: World) -> None:
    tasks, sweeper = world.store.tasks, world.sweeper()
    await tasks.create("mail", "blocked", blocked=True)
    await tasks.create("mail", "1")
    await tasks.complete(await _claimed(world))
    await world.move_clock(100_000)
    done = await sweeper.sweep()
    assert (done.retried, done.failed, done.queued) == (0, 0, 0)
    assert await _state(world, "blocked") == "blocked"
    assert await _state(world) == "completed"


@CLOCK
async def test_a_completion_that_races_the_sweeper_is_never_overwritten(world: World) -> None:
    tasks, sweeper = world.store.tasks, world.sweeper()
    await tasks.create("mail", "1")
    task = await _claimed(world)
    await world.move_clock(31)
    seen = await tasks.get("mail", "1")
    assert seen is not None
    # The sweeper has seen it and is late: the worker completes first.
    assert await tasks.complete(task) is True
    assert await tasks.retry(seen) is False
    assert await tasks.give_up(seen) is False
    assert (await sweeper.sweep()).retried == 0
    assert await _state(world) == "completed"


@CLOCK
async def test_several_sweepers_handle_each_task_once(world: World) -> None:
    tasks = world.store.tasks
    for number in range(20):
        await tasks.create("mail", str(number))
        assert await tasks.claim("mail", str(number), "w", timeout=30) is not None
    await world.move_clock(31)
    results = await world.together(world.sweeper().sweep() for _ in range(4))
    assert sum(result.retried for result in results) == 20
    for number in range(20):
        task = await tasks.get("mail", str(number))
        assert task is not None
        assert (task.state, task.retry_count) == ("pending", 1)


@CLOCK
async def test_a_record_that_is_no_task_does_not_stop_the_sweeper(world: World) -> None:
    records, tasks = world.store.records, world.store.tasks
    await records.put("gbe.state.tasks.mail.0", {"state": "claimed", "timeout_at": 1})
    await tasks.create("mail", "1")
    await _claimed(world)
    await world.move_clock(31)
    assert (await world.sweeper().sweep()).retried == 1


@CLOCK
@pytest.mark.parametrize(
    "odd",
    [
        {"task_type": "my mail", "task_id": "odd"},
        {"task_type": "my.mail", "task_id": "odd"},
        {"task_type": "", "task_id": "odd"},
        {"task_type": "mail", "task_id": "x" * 1100},
        {"task_type": "mail", "task_id": "another"},
        {"task_type": "mail", "task_id": "0", "retry_count": 2**64 - 1},
        {"task_type": "mail", "task_id": "0", "retry_count": 1, "max_retries": 2**64 - 1},
    ],
)
async def test_a_task_that_is_odd_does_not_stop_the_sweeper(
    world: World, odd: dict[str, str | int]
) -> None:
    records, tasks = world.store.records, world.store.tasks
    await records.put("gbe.state.tasks.mail.0", {**odd, "state": "claimed", "timeout_at": 1})
    await tasks.create("mail", "1")
    await _claimed(world)
    await world.move_clock(31)
    await world.sweeper().sweep()
    assert await _state(world) == "pending"


@CLOCK
async def test_records_that_are_no_tasks_do_not_starve_one(world: World) -> None:
    odd: dict[str, str | int] = {"state": "claimed", "timeout_at": 1}
    for page in range(0, 1100, 100):
        names = [f"gbe.state.tasks.mail.{number:04}" for number in range(page, page + 100)]
        await world.colour.together(world.store.records.put(name, odd) for name in names)
    await world.store.tasks.create("mail", "1")
    await _claimed(world)
    await world.move_clock(31)
    assert (await world.sweeper().sweep()).retried == 1


@CLOCK
async def test_the_sweeper_removes_messages_that_are_done_and_old(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("behind", QUEUE)
    for namespace in ("default", "other"):
        await world.store.namespace(namespace).tasks.create("mail", "1")
    await world.store.tasks.cancel("mail", "1")
    week = 7 * 24 * 3600
    await world.move_clock(week - 1)
    assert (await world.sweeper().sweep()).purged == 0
    await world.move_clock(2)
    await transport.publish("a", "young")
    assert (await world.sweeper(keep=None).sweep()).purged == 0
    assert (await world.sweeper(keep=week + 60).sweep()).purged == 0
    assert (await world.sweeper().sweep()).purged == 1  # in the other namespace
    await transport.delete_group("behind")
    assert (await world.sweeper().sweep()).purged == 2  # that it was queued, and cancelled
    assert (await world.sweeper().sweep()).purged == 0


@CLOCK
async def test_a_stopped_sweeper_returns(world: World) -> None:
    sweeper = world.sweeper(interval=0.01)
    await world.store.tasks.create("mail", "1")
    await _claimed(world)
    await world.move_clock(31)

    async def stop() -> None:
        while await _state(world) != "pending":
            await world.store.pause(0.01)
        sweeper.stop()

    await world.together([sweeper.run(), stop()])
    assert sweeper.totals.retried == 1


@TASKS
async def test_a_sweepers_settings_are_checked(world: World) -> None:
    for settings in ({"interval": 0}, {"threshold": -1}, {"keep": -1}):
        with pytest.raises(InvalidArgument):
            world.sweeper(**settings)

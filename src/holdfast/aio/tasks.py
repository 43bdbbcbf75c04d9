"""Tasks: records that workers take, one at a time, and that end in one of three ways.

    await store.tasks.create("mail", "job-7", params_ref=ref)

    async with store.tasks.consumer("mail") as queue:    # what waits, from the oldest on
        ...

    task = await store.tasks.claim("mail", "job-7", "worker-1", timeout=30)
    if task is not None:                      # one of many workers gets it
        task = await store.tasks.step(task, timeout=30)
        await store.tasks.complete(task, result_ref=ref)

Each call changes the record in one atomic step, if the task is still as the caller knows it, and
tells about it by a message (see facets/tasks.py for the names). Where the engine has transactions
both commit together, and with `tx.tasks` together with whatever else the transaction does;
elsewhere the message follows, and what a crash leaves out the sweeper sends.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import NAMESPACE_OID, uuid5

from holdfast import codec
from holdfast.clock import Duration
from holdfast.codec import byte_size
from holdfast.errors import Corrupt, InvalidArgument
from holdfast.facets.backend import Able, Capability, require
from holdfast.facets.names import MAX_NAME_BYTES, check_name
from holdfast.facets.records import FieldValue, Stamp
from holdfast.facets.records_scan import ScanFilter
from holdfast.facets.tasks import (
    MAX_RETRIES,
    MOVES,
    TERMINAL,
    TaskNames,
    TaskState,
    TaskStatus,
    check_count,
    check_status,
    check_task,
    check_text,
    may_move,
)
from holdfast.facets.transport import check_span

if TYPE_CHECKING:
    from holdfast.aio.records import AsyncRecords
    from holdfast.aio.transaction import AsyncTransactionScope
    from holdfast.aio.transport import AsyncConsumer, AsyncTransport

_log = logging.getLogger("holdfast.tasks")
_WAIT = 300  # seconds that a pending task waits before the sweeper queues it again

Changes = Mapping[str, FieldValue | Stamp | None]


class _Home(Able, Protocol):
    """A store, or a transaction of one."""

    @property
    def records(self) -> AsyncRecords: ...

    @property
    def transport(self) -> AsyncTransport: ...


class AsyncTasks:
    """The tasks of one namespace, below one root."""

    def __init__(
        self,
        home: _Home,
        begin: Callable[[], AsyncTransactionScope] | None,
        root: str = "gbe",
    ) -> None:
        self._home = home
        # None where a change has no transaction of its own: the engine has none, or this is one.
        self._begin = begin
        self.names = TaskNames(root)

    def below(self, root: str) -> AsyncTasks:
        """The tasks whose keys and subjects begin with another word than `gbe`."""
        return AsyncTasks(self._home, self._begin, root)

    async def create(
        self,
        task_type: str,
        task_id: str,
        *,
        blocked: bool = False,
        params: object = None,
        params_ref: str | None = None,
        step_count: int | None = None,
        max_retries: int = MAX_RETRIES,
    ) -> bool:
        """True if the task is new: it is pending now, and queued. False: there is one already.

        A `blocked` one waits for `unblock`. `params` is any JSON value (and bytes), kept in the
        task's record, which holds at most `payload_max_bytes`; `params_ref` says where larger
        ones are. Workers find both in the TaskState.
        """
        check_count(max_retries, "max_retries")
        if step_count is not None:
            check_count(step_count, "step_count")
        check_text(params_ref, "params_ref")
        state = TaskStatus.BLOCKED if blocked else TaskStatus.PENDING
        new: Changes = {
            "state": state,
            "task_type": task_type,
            "task_id": task_id,
            "created_at": Stamp(),
            "updated_at": Stamp(),
            "timeout_at": None if blocked else Stamp(_WAIT),
            "params": None if params is None else codec.encode(params),
            "params_ref": params_ref,
            "step_count": step_count,
            "retry_count": 0,
            "max_retries": max_retries,
        }
        key = self.names.key(task_type, task_id)
        queued = None if blocked else self.names.subject(task_type, "queue")
        event = {"task_type": task_type, "task_id": task_id, "state": state, "retry_count": 0}
        return await self._change(_Change(key, {"state": None}, new, queued, event))

    async def get(self, task_type: str, task_id: str) -> TaskState | None:
        """The task, or None when there is none."""
        record = await self._home.records.get(self.names.key(task_type, task_id))
        return None if record is None else TaskState.of(record.fields)

    def list(
        self, task_type: str | None = None, *, state: TaskStatus | str | None = None
    ) -> AsyncIterator[TaskState]:
        """Return the tasks of that type, or of all types, that are in that state, or in any.

        In byte order of type and id, read page by page: what changes meanwhile may or may not be
        seen. Records that are no tasks are left out, and told in the log.
        """
        prefix = self.names.prefix if task_type is None else self.names.type_prefix(task_type)
        filters = () if state is None else (ScanFilter("state", "eq", check_status(state)),)
        return self._list(prefix, filters)

    async def _list(self, prefix: str, filters: tuple[ScanFilter, ...]) -> AsyncIterator[TaskState]:
        async for key, record in self._home.records.scan(prefix, filters=filters):
            try:
                task = TaskState.of(record.fields)
            except Corrupt as exc:
                _log.warning("record %r: %s", key, exc)
            else:
                yield task

    def consumer(
        self,
        task_type: str,
        *,
        group: str | None = None,
        name: str | None = None,
        prefetch: int = 1,
        ack_timeout: Duration = 30,
        max_deliveries: int = 5,
    ) -> AsyncConsumer:
        """Return a consumer of the messages about tasks of that type that wait for a worker.

        Its group is made on entry, if it is missing, and starts with the oldest message that is
        kept: a task that was created before its first worker came is delivered too. Messages about
        tasks that somebody has claimed since are delivered as well: `claim` then returns None.
        Acknowledge them like the others.
        """
        return self._home.transport.consumer(
            self.names.group(task_type) if group is None else group,
            self.names.subject(task_type, "queue"),
            name=name,
            prefetch=prefetch,
            from_start=True,
            ack_timeout=ack_timeout,
            max_deliveries=max_deliveries,
        )

    async def claim(
        self,
        task_type: str,
        task_id: str,
        worker: str,
        *,
        timeout: Duration,  # noqa: ASYNC109 - of the claim, in the store
    ) -> TaskState | None:
        """The task, if it was pending and is this worker's now; None for everybody else."""
        check_name(worker, what="worker")
        key = self.names.key(task_type, task_id)
        if not await self._home.records.claim(key, worker, timeout=timeout):
            return None
        task = await self.get(task_type, task_id)
        mine = task is not None and task.worker == worker and task.state is TaskStatus.CLAIMED
        return task if mine else None

    async def step(
        self,
        task: TaskState,
        *,
        timeout: Duration,  # noqa: ASYNC109 - of the next step, in the store
    ) -> TaskState | None:
        """The task with one more step done, and so long for the next; None: it is not ours now."""
        check_span(timeout, "timeout")
        check_task(task)
        done = (task.current_step or 0) + 1
        changes: Changes = {"current_step": done, "timeout_at": Stamp(timeout)}
        if not await self._move(task, TaskStatus.RUNNING, changes, "progress"):
            return None
        now = await self.get(task.task_type, task.task_id)
        # Whoever stood still for too long since may find that it is somebody else's.
        mine = now is not None and (now.state, now.worker, now.retry_count, now.current_step) == (
            TaskStatus.RUNNING,
            task.worker,
            task.retry_count,
            done,
        )
        return now if mine else None

    async def complete(self, task: TaskState, *, result_ref: str | None = None) -> bool:
        """True if the task was still ours, and is completed now."""
        check_text(result_ref, "result_ref")
        changes: Changes = {"result_ref": result_ref, "error": None}
        return await self._end(task, TaskStatus.COMPLETED, changes)

    async def fail(self, task: TaskState, error: str, *, retry: bool = True) -> bool:
        """True if the task was still ours: this attempt has failed, and the error is kept.

        The task is pending again, with one retry more, and queued; or it has failed for good, once
        `max_retries` are used up or without `retry`.
        """
        check_text(error, "error")
        check_task(task)
        if retry and task.retry_count < task.max_retries:
            return await self._retry(task, {"error": error})
        return await self._end(task, TaskStatus.FAILED, {"error": error})

    async def cancel(self, task_type: str, task_id: str) -> bool:
        """True if the task had not ended, and is cancelled now, whoever held it."""
        while True:
            task = await self.get(task_type, task_id)
            if task is None or task.state in TERMINAL:
                return False
            if await self._end(task, TaskStatus.CANCELLED, {}):
                return True

    async def unblock(self, task_type: str, task_id: str) -> bool:
        """True if the task was blocked: it is pending now, and queued."""
        task = await self.get(task_type, task_id)
        if task is None or task.state is not TaskStatus.BLOCKED:
            return False
        return await self._move(task, TaskStatus.PENDING, {"timeout_at": Stamp(_WAIT)}, "queue")

    async def retry(self, task: TaskState) -> bool:
        """True if the task was as given: it is pending again, one retry more, and queued.

        Whatever `max_retries` says: for the sweeper, when a worker has not been heard of in time,
        and for a worker that gives a task back. `fail` counts.
        """
        check_task(task)
        return await self._retry(task, {})

    async def _retry(self, task: TaskState, more: Changes) -> bool:
        changes: Changes = {
            **more,
            "retry_count": task.retry_count + 1,
            "worker": None,
            "timeout_at": Stamp(_WAIT),
        }
        return await self._move(task, TaskStatus.PENDING, changes, "queue")

    async def give_up(self, task: TaskState) -> bool:
        """True if the task was as given: it has failed, and an error was published about it."""
        error = f"no sign of life from {task.worker!r} in time, after {task.retry_count} retries"
        changes: Changes = {"error": error, "timeout_at": None}
        return await self._move(task, TaskStatus.FAILED, changes, "terminal", alarm=error)

    async def queue_again(self, task: TaskState) -> bool:
        """True if the task was as given: pending, and queued once more under the same id."""
        key = self.names.key(task.task_type, task.task_id)
        subject = self.names.subject(task.task_type, "queue")
        event = _event(task, task.state, {})
        message_id = _attempt(key, task, task.retry_count)
        new: Changes = {"updated_at": Stamp(), "timeout_at": Stamp(_WAIT)}
        return await self._change(_Change(key, _as_seen(task), new, subject, event, message_id))

    async def _end(self, task: TaskState, state: TaskStatus, changes: Changes) -> bool:
        return await self._move(task, state, {**changes, "timeout_at": None}, "terminal")

    async def _move(
        self,
        task: TaskState,
        state: TaskStatus,
        changes: Changes,
        what: str,
        *,
        alarm: str | None = None,
    ) -> bool:
        check_task(task)
        if not may_move(task.state, state):
            allowed = ", ".join(sorted(MOVES[task.state])) or "nothing"
            raise InvalidArgument(
                f"task {task.task_id!r}: from {task.state} one goes to {allowed}, not to {state}"
            )
        key = self.names.key(task.task_type, task.task_id)
        new = {**changes, "state": state, "updated_at": Stamp()}
        event = _event(task, state, changes)
        retries = changes.get("retry_count", task.retry_count)
        attempt = _attempt(key, task, retries) if what == "queue" else None
        subject = self.names.subject(task.task_type, what)
        return await self._change(_Change(key, _as_seen(task), new, subject, event, attempt, alarm))

    async def _change(self, change: _Change) -> bool:
        require(self._home, Capability.TRANSPORT)
        if self._begin is None:
            return await self._apply(change, self._home.records, self._home.transport)
        async with self._begin() as tx:
            return await self._apply(change, tx.records, tx.transport)

    async def _apply(
        self, change: _Change, records: AsyncRecords, transport: AsyncTransport
    ) -> bool:
        # Before anything is changed: a message that cannot be sent refuses the change.
        messages = []
        if change.subject is not None:
            event, message_id = change.event, change.message_id
            messages.append(transport.prepare(change.subject, event, message_id=message_id))
        if change.alarm is not None:
            alarm = {**change.event, "error": change.alarm}
            messages.append(transport.prepare(self.names.error, alarm))
        if not await records.compare_and_set(change.key, expect=change.expect, set=change.new):
            return False
        for message in messages:
            await transport.send(message)
        return True


class _Change(NamedTuple):
    """What becomes of a record, if it is as expected, and what is told about it."""

    key: str
    expect: Mapping[str, FieldValue | None]
    new: Changes
    subject: str | None
    event: Mapping[str, object]
    message_id: str | None = None
    alarm: str | None = None


def _attempt(key: str, task: TaskState, retries: object) -> str:
    """The id of the queue's message for one attempt: a repeat is told apart.

    A task that was deleted and made again is another one.
    """
    attempt = f"{key}#{task.created_at}#{retries}"
    fits = byte_size(attempt) <= MAX_NAME_BYTES
    return attempt if fits else str(uuid5(NAMESPACE_OID, attempt))


def _as_seen(task: TaskState) -> Mapping[str, FieldValue | None]:
    """What must still be so for the caller to be right about the task."""
    if task.state is TaskStatus.BLOCKED:  # nobody holds it, whatever else was changed about it
        return {name: task.seen[name] for name in ("state", "worker")}
    return task.seen


def _event(task: TaskState, state: TaskStatus, changes: Changes) -> dict[str, object]:
    """What a message tells about a task."""
    told = {
        "task_type": task.task_type,
        "task_id": task.task_id,
        "state": state,
        "worker": task.worker,
        "current_step": task.current_step,
        "retry_count": task.retry_count,
        **{name: value for name, value in changes.items() if not isinstance(value, Stamp)},
    }
    return {name: value for name, value in told.items() if value is not None}

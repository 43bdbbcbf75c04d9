"""Tasks: records that workers take, one at a time, and that end in one of three ways.

    blocked ──> pending ──claim──> claimed ──step──> running ──> completed | failed | cancelled
                   ^                  │                 │
                   └── it failed, or the sweeper: no sign of life in time; `retry_count` rises

MOVES is the whole table. The names of keys and subjects are the seed's, below a root:

    gbe.state.tasks.{task_type}.{task_id}    the record
    gbe.tasks.{task_type}.queue              a task waits to be claimed
    gbe.tasks.{task_type}.progress           a step is done
    gbe.tasks.{task_type}.terminal           a task has ended
    gbe.events.system.error                  the sweeper gave a task up
    gbe.tasks.{task_type}                    the group of consumers that `tasks.consumer` makes
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import INT64_MAX, decode
from holdfast.errors import Corrupt, InvalidArgument, Serialization
from holdfast.facets.records import Fields
from holdfast.facets.transport import check_subject

MAX_RETRIES = 3


class TaskStatus(StrEnum):
    """The states of a task."""

    BLOCKED = "blocked"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDS = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})

MOVES: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.BLOCKED: frozenset({TaskStatus.PENDING, TaskStatus.CANCELLED}),
    TaskStatus.PENDING: frozenset({TaskStatus.CLAIMED, TaskStatus.CANCELLED}),
    TaskStatus.CLAIMED: frozenset({TaskStatus.RUNNING, TaskStatus.PENDING}) | _ENDS,
    TaskStatus.RUNNING: frozenset({TaskStatus.RUNNING, TaskStatus.PENDING}) | _ENDS,
    TaskStatus.COMPLETED: frozenset(),
    TaskStatus.FAILED: frozenset(),
    TaskStatus.CANCELLED: frozenset(),
}
"""From each state, where a task may go."""

TERMINAL = frozenset(state for state, moves in MOVES.items() if not moves)
HELD = frozenset({TaskStatus.CLAIMED, TaskStatus.RUNNING})
"""Somebody works on it, or did."""


_TELLING = ("state", "worker", "current_step", "retry_count", "timeout_at", "updated_at")


class TaskState(msgspec.Struct, frozen=True):
    """A task as it was read. Times are Unix milliseconds, by the store's clock."""

    state: TaskStatus
    task_type: str
    task_id: str
    seen: dict[str, bytes | None]
    """What a later change of the task does not leave as it was, byte for byte; None: absent.

    Times alone do not tell: two workers can have had the task within a millisecond.
    """
    worker: str | None = None
    current_step: int | None = None
    step_count: int | None = None
    created_at: int = 0
    updated_at: int = 0
    timeout_at: int | None = None
    error: str | None = None
    params: Any = None
    """Given by the caller of `create`: a JSON value, bytes too."""
    params_ref: str | None = None
    result_ref: str | None = None
    retry_count: int = 0
    max_retries: int = MAX_RETRIES

    @classmethod
    def of(cls, fields: Fields) -> TaskState:
        """The task that a record's fields tell of; Corrupt if they do not."""
        texts = {
            name: value.decode(errors="replace")
            for name, value in fields.items()
            if name in cls.__struct_fields__ and name != "params"
        }
        seen = {name: fields.get(name) for name in _TELLING}
        try:
            params = decode(fields["params"]) if "params" in fields else None
            return msgspec.convert({**texts, "params": params, "seen": seen}, cls, strict=False)
        except (msgspec.ValidationError, Serialization) as exc:
            raise Corrupt(f"a record that should be a task is none: {exc}") from exc


class TaskNames(NamedTuple):
    """What the keys and subjects of tasks are called."""

    root: str = "gbe"

    @property
    def prefix(self) -> str:
        """With which every task's key begins."""
        return f"{self.root}.state.tasks."

    def type_prefix(self, task_type: str) -> str:
        """Return the text with which the keys of all tasks of that type begin."""
        return f"{self.prefix}{_word(task_type, 'task_type')}."

    def key(self, task_type: str, task_id: str) -> str:
        """Where the task's record is."""
        return f"{self.prefix}{_word(task_type, 'task_type')}.{_word(task_id, 'task_id')}"

    def subject(self, task_type: str, what: str) -> str:
        """The subject for messages about such tasks: queue, progress or terminal."""
        return f"{self.root}.tasks.{task_type}.{what}"

    def group(self, task_type: str) -> str:
        """Return the name of the group whose consumers work on such tasks."""
        return f"{self.root}.tasks.{_word(task_type, 'task_type')}"

    @property
    def error(self) -> str:
        """The subject for what went wrong."""
        return f"{self.root}.events.system.error"


def _word(text: str, what: str) -> str:
    if not isinstance(text, str) or "." in text:
        raise InvalidArgument(f"{what}: wanted one word without dots, found {text!r}")
    check_subject(text)
    return text


def check_task(task: TaskState) -> None:
    """Raise InvalidArgument for what is no task, such as the None of a claim that was lost."""
    if not isinstance(task, TaskState):
        raise InvalidArgument(
            f"task: wanted the TaskState that `claim` or `step` gave, found {type(task).__name__}"
        )


def check_status(state: TaskStatus | str) -> TaskStatus:
    """Return the state that is named so; raise InvalidArgument when there is none."""
    try:
        return TaskStatus(state)
    except ValueError:
        names = ", ".join(TaskStatus)
        raise InvalidArgument(f"state: wanted one of {names}, found {state!r:.100}") from None


def check_count(number: int, what: str) -> None:
    """Raise InvalidArgument for what is no number of steps or retries."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= INT64_MAX:
        raise InvalidArgument(f"{what}: wanted 0 or more, found {number!r}")


def check_text(text: str | None, what: str) -> None:
    """Raise InvalidArgument for what is neither text nor None."""
    if text is not None and not isinstance(text, str):
        raise InvalidArgument(f"{what}: wanted text, found {type(text).__name__}")


def may_move(before: TaskStatus, after: TaskStatus) -> bool:
    """True if the table allows it."""
    return after in MOVES[before]

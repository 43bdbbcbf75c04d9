"""Every error that Holdfast raises, in one tree.

A caller catches `StoreError`, or the class that says what happened. Each class
has a stable `code` for logs and wire formats and says whether trying the same
call again can help (`retryable`). Facts come as attributes: a `Conflict` about
an existing run carries `exc.existing_id`. Driver errors never leak: each
backend translates them in one place, with the driver's error as the cause.
"""

from __future__ import annotations

from typing import Any, ClassVar


class StoreError(Exception):
    """The base of all errors; raised itself only when nothing closer fits.

    `outcome_unknown` is True when a write may or may not have happened and the
    store could not find out. Repeating it under the same `op_id` is safe.
    """

    code: ClassVar[str] = "store_error"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        outcome_unknown: bool = False,
        **facts: object,
    ) -> None:
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable
        self.outcome_unknown = outcome_unknown
        self.facts = facts

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a fact may be of any type
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no fact {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword arguments do not survive pickling by themselves,
        # and errors do travel between processes.
        state = {
            "retryable": self.retryable,
            "outcome_unknown": self.outcome_unknown,
            "facts": self.facts,
        }
        return (type(self), self.args, state)


class Database(StoreError):
    """The database failed in a way that is not the caller's doing, such as a full disk."""

    code = "database"


class Conflict(StoreError):
    """Somebody else got there first."""

    code = "conflict"


class InvalidArgument(StoreError):
    """The call can never work as it is written."""

    code = "invalid_argument"


class NotFound(StoreError):
    """The thing that was named does not exist."""

    code = "not_found"


class InvalidState(StoreError):
    """The thing exists, but this operation is not for the state it is in."""

    code = "invalid_state"


class AlreadyCompleted(StoreError):
    """The run or step has ended and takes no further change."""

    code = "already_completed"


class Serialization(StoreError):
    """A stored value cannot be decoded, or a value's own conversion to JSON failed."""

    code = "serialization"


class LockConflict(StoreError):
    """The lease is held by someone else, or the token is stale."""

    code = "lock_conflict"


class PreconditionFailed(StoreError):
    """A condition that the call depends on is not met yet."""

    code = "precondition_failed"


class Unauthorized(StoreError):
    """The server or the file system refused the credentials."""

    code = "unauthorized"


class Unavailable(StoreError):
    """The store cannot be reached now."""

    code = "unavailable"
    retryable = True


class Timeout(StoreError):
    """The store did not answer, or a lock was not free, within the time allowed."""

    code = "timeout"
    retryable = True


class Unsupported(StoreError):
    """This engine does not have the ability; the capability table tells which do."""

    code = "unsupported"


class StoreClosed(StoreError):
    """The store was closed before the call."""

    code = "store_closed"


class ProjectionFailed(StoreError):
    """A projection's fold raised, or gave what cannot be kept; what it raised is the cause."""

    code = "projection_failed"


class Corrupt(StoreError):
    """The stored data is damaged, or is not a Holdfast database."""

    code = "corrupt"

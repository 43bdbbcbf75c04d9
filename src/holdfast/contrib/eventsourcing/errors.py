"""Holdfast's errors as those that users of the library know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)

from holdfast import (
    Conflict,
    Corrupt,
    Database,
    InvalidArgument,
    InvalidState,
    Serialization,
    StoreClosed,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)

_THEIRS: Final[dict[type[StoreError], type[PersistenceError]]] = {
    Conflict: IntegrityError,
    Corrupt: InternalError,
    Database: OperationalError,
    InvalidArgument: DataError,
    InvalidState: ProgrammingError,
    Serialization: DataError,
    StoreClosed: InterfaceError,
    Timeout: OperationalError,
    Unauthorized: OperationalError,
    Unavailable: OperationalError,
    Unsupported: NotSupportedError,
}


@contextmanager
def translated() -> Iterator[None]:
    """Raises the library's error in place of Holdfast's, which becomes its cause."""
    try:
        yield
    except StoreError as exc:
        raise _THEIRS.get(type(exc), DatabaseError)(str(exc)) from exc

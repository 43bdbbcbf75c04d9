"""Who is inside a transaction: a write past it would wait for itself, so it is refused at once.

The mark is a context variable. A task started inside inherits it, rightly: whoever
waits for that task inside the transaction would wait for ever. A thread does not.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol
from weakref import ref

from holdfast.errors import InvalidState


class Mark(Protocol):
    """A transaction as its surroundings see it."""

    @property
    def of(self) -> object:
        """The store's connections that it belongs to."""

    @property
    def over(self) -> bool:
        """True when nothing more can come of it."""


# Weak: a forgotten transaction must not live as long as the context that it was begun in.
_marks: ContextVar[tuple[ref[Mark], ...]] = ContextVar("holdfast_inside", default=())


def enter(mark: Mark) -> None:
    """Mark what runs from here on as inside."""
    # Without those that are over: their end may have come in another context.
    _marks.set((*map(ref, _open()), ref(mark)))


def refuse_inside(of: object) -> None:
    """Raise InvalidState inside a transaction on these connections."""
    if any(mark.of is of for mark in _open()):
        raise InvalidState(
            "this goes to the store, inside a transaction of it: it would wait for itself; "
            "use what `store.transaction()` gave you"
        )


def _open() -> list[Mark]:
    marks = [found() for found in _marks.get()]
    return [mark for mark in marks if mark is not None and not mark.over]

"""The feed: the changes of a log in one order, the same for every reader.

A reader keeps a **position**, the last change that it has seen, and asks for
what lies above. For that to miss nothing, no change may ever appear below a
position that somebody could have. So each change has a key that rises with the
commits, and readers stop short of the first transaction that is still open:

    epoch   rises when the store was restored from a copy: what follows there was
            never in the original, whatever its other numbers are
    xid     on PostgreSQL the transaction, or a later one that the same cell was
            changed by before; on SQLite, with its one writer, always 0
    seq     the commit id

A position is handed to callers as a cursor, which is text and theirs to keep. Where a log has
several parts, as cells have branches, the cursor also knows which part it is of.
"""

from __future__ import annotations

import re
from typing import Generic, NamedTuple, TypeVar

from holdfast.errors import InvalidArgument

T = TypeVar("T")
U = TypeVar("U")
_CURSOR = re.compile(r"(\w+)(?:@(?P<part>{0}))?:({0})\.({0})\.({0})".format("[0-9a-f]{1,16}"))
_MOST = 2**63 - 1


class Position(NamedTuple):
    """A place in a log: see above."""

    epoch: int
    xid: int
    seq: int


BEGINNING = Position(0, 0, 0)


class Page(NamedTuple, Generic[T]):
    """Some changes, and how far that went."""

    changes: list[T]
    position: Position  # everything up to here has been looked at
    more: bool  # there may be more already
    held_back: bool  # there is more, but an older transaction is still open

    def of(self, changes: list[U]) -> Page[U]:
        """The same page with its changes in another form."""
        return Page(changes, self.position, more=self.more, held_back=self.held_back)


def to_cursor(log: str, position: Position, part: int = 0) -> str:
    """The position in that part of the log, as text."""
    epoch, xid, seq = position
    name = f"{log}@{part:x}" if part else log
    return f"{name}:{epoch:x}.{xid:x}.{seq:x}"


def from_cursor(log: str, cursor: str) -> tuple[Position, int]:
    """The position that the text stands for, and the part of the log that it is in."""
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None or match[1] != log:
        raise InvalidArgument(f"cursor: wanted one that {log} gave out, found {cursor!r:.60}")
    part = int(match["part"] or "0", 16)
    position = Position(*(int(number, 16) for number in match.groups()[2:]))
    if max(*position, part) > _MOST:
        raise InvalidArgument(f"cursor: no such place in {log}: {cursor!r}")
    return position, part


def unknown_epoch(position: Position) -> InvalidArgument:
    """The error for a cursor of a store that this one is not a copy of."""
    return InvalidArgument(
        f"cursor: it is of epoch {position.epoch}, which this store never had; it comes from "
        "another store, or this one was restored from an older copy: start without a cursor",
        epoch=position.epoch,
    )

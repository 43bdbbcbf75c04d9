"""Sessions of cells: several reads of one moment, and writes that hold only if nothing changed.

A session reads from a snapshot and gathers its writes. Of every cell that it
touches it remembers what it saw: the branch's OWN newest commit of that cell, 0
if the branch itself has none (its parents' past never changes). A list remembers
its range and the names found. The commit compares all of it with what is there
by then, and writes, or is a Conflict and writes nothing.

    s.get("a")          checks  a: commit 12
    s.set("b", 1)       checks  b: commit 0     writes  b: version 1
    s.set("b", 2)                               writes  b: version 2, one history entry
    s.list("c/")        checks  ["c/", "c0"): c/x, c/y

These are the rules; nothing here reads or writes a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.clock import MICROSECONDS, Duration, duration_us
from holdfast.errors import Conflict, InvalidArgument, InvalidState
from holdfast.facets.branches import Operation
from holdfast.facets.cells import (
    ANY,
    MAX_COMMIT_BYTES,
    CellOutcome,
    CellWrite,
    StoredCell,
)

MAX_AGE = 30
"""Of a snapshot, in seconds: what it sees must be kept for it."""

NOT_YET = 0
"""The time and the commit id of a session's own writes, before its commit."""

_SHOWN = 5


class Seen(NamedTuple):
    """A cell as the snapshot shows it: `payload` is None when it is absent."""

    payload: str | None
    version: int  # the counter, also of a deleted cell; 0 if it never was
    own_commit: int  # of the newest version that the branch wrote itself, else 0
    updated_at: int
    commit_id: int


NEVER_SEEN = Seen(None, 0, 0, 0, 0)


class Order(NamedTuple):
    """What a session is opened for."""

    namespace: str
    branch: str
    max_age: float
    operation: Operation


class Listed(NamedTuple):
    """The names that a list found from `first` on, below `end`."""

    first: str
    end: str
    names: Sequence[str]


class Checked(NamedTuple):
    """A cell that the session touched; `write` is False where it was only read."""

    name: str
    seen: int  # the branch's own commit, which must still be its newest
    write: bool
    payload: str | None
    version: int


class SessionCommit(NamedTuple):
    """What a session asks for at its end."""

    namespace: str
    branch: str
    branch_id: int  # as it was read: the name may mean another one by now
    cells: Sequence[Checked]
    lists: Sequence[Listed]
    operation: Operation

    @property
    def exclusive(self) -> bool:
        """True if it rests on absence: there is no row to lock for a cell that is not there."""
        return bool(self.lists) or any(not cell.seen for cell in self.cells)

    @property
    def versions(self) -> dict[str, int]:
        """The new version of each cell that gets a value."""
        return {
            cell.name: cell.version
            for cell in self.cells
            if cell.write and cell.payload is not None
        }


class Overlay:
    """What a session has seen, with its own writes on top."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._written: dict[str, tuple[str | None, int]] = {}
        self._lists: dict[tuple[str, str], Sequence[str]] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """What the payloads to be written add up to."""
        return self._size

    def unseen(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are to be looked up."""
        return [name for name in dict.fromkeys(names) if name not in self._seen]

    def see(self, found: Mapping[str, Seen]) -> None:
        """Remember what a first look found."""
        for name, seen in found.items():
            self._seen.setdefault(name, seen)

    def get(self, name: str) -> StoredCell | None:
        """The cell with what the session wrote; it has been seen."""
        if name in self._written:
            return self.own(name)
        payload, version, _, updated_at, commit_id = self._seen[name]
        return None if payload is None else (payload, version, updated_at, commit_id)

    def own(self, name: str) -> StoredCell | None:
        """What the session wrote, None if nothing or a delete."""
        payload, version = self._written.get(name, (None, 0))
        return None if payload is None else (payload, version, NOT_YET, NOT_YET)

    def write(self, writes: Sequence[CellWrite]) -> list[CellOutcome]:
        """Do the writes by the rule of facets/cells.py, to cells that have been seen."""
        size = self._size + sum(
            len(write.payload or "") - len(self._written.get(write.key[-1], ("",))[0] or "")
            for write in writes
        )
        if size > MAX_COMMIT_BYTES:
            raise InvalidArgument(
                f"session: values of {size} bytes, at most {MAX_COMMIT_BYTES} fit into one commit"
            )
        return [self._write(write) for write in writes]

    def names(self, first: str, end: str, found: Sequence[str]) -> list[str]:
        """The names from `first` on, below `end`, where the snapshot has those found."""
        self._lists[first, end] = found
        own = {
            name: payload is not None
            for name, (payload, _) in self._written.items()
            if first <= name < end
        }
        kept = [name for name in found if own.get(name, True)]
        return sorted({*kept, *(name for name, there in own.items() if there)})

    def commit(self, order: Order, branch_id: int) -> SessionCommit | None:
        """What is to be checked and written; None if there is nothing to write."""
        if not self._written:
            return None
        cells = [
            Checked(
                name, seen.own_commit, name in self._written, *self._written.get(name, (None, 0))
            )
            for name, seen in sorted(self._seen.items())
        ]
        lists = [Listed(first, end, names) for (first, end), names in self._lists.items()]
        return SessionCommit(
            order.namespace, order.branch, branch_id, cells, lists, order.operation
        )

    def _write(self, write: CellWrite) -> CellOutcome:
        name = write.key[-1]
        seen = self._seen[name]
        old, counter = self._written.get(name, (seen.payload, seen.version))
        live = 0 if old is None else counter
        if write.expected not in (ANY, live) or (write.payload is None and not live):
            return CellOutcome(applied=False, version=live)
        version = counter if write.payload is None else counter + 1
        before = self._written.get(name, (None, 0))[0]
        self._size += len(write.payload or "") - len(before or "")
        self._written[name] = (write.payload, version)
        return CellOutcome(applied=True, version=version)


def check_max_age(max_age: Duration) -> float:
    """The age in seconds, when a snapshot may become that old."""
    found = duration_us(max_age, name="max_age") / MICROSECONDS
    if not 0 < found <= MAX_AGE:
        raise InvalidArgument(
            f"max_age: must be above 0 and at most {MAX_AGE} s, found {max_age!r}"
        )
    return found


def changed(cells: Sequence[str]) -> Conflict:
    """The error for a commit that met other people's changes."""
    names = ", ".join(map(repr, cells[:_SHOWN])) + (", …" if len(cells) > _SHOWN else "")
    return Conflict(
        f"session: others changed what it had read: {names}", retryable=True, cells=list(cells)
    )


def refuse_op_id() -> InvalidArgument:
    """The error for an operation id of a single write inside."""
    return InvalidArgument(
        "op_id: a session's writes are one commit, under one id: give it to `session()`"
    )


def no_session_here(order: Order, inside: str) -> InvalidState:
    """The error for a session inside something that is one commit already."""
    return InvalidState(
        f"a session on branch {order.branch!r} inside a {inside}: open it on the store's own cells"
    )

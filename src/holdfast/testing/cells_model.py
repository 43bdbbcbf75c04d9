"""A model of cells in plain Python, which every engine is compared with.

Written from the specification; it shares no line with the engines. A cell is the
list of everything written to it, oldest first, deletes among it:

    set("a", "x") -> 1    [("x", 1)]
    set("a", "y") -> 2    [("x", 1), ("y", 2)]
    delete("a")   -> True [("x", 1), ("y", 2), (GONE, 2)]
    init("a", 0)  -> 3    [("x", 1), ("y", 2), (GONE, 2), (0, 3)]

The methods are those of `store.cells`. Time is a plain number that stands still
until a test moves it, and a commit's number counts the calls that wrote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

_SURROGATES = re.compile("[\ud800-\udfff]")

GONE = object()
"""Stands in a cell's list where it was deleted."""


class Refused(Exception):
    """The call can never work as it is written: the engine's InvalidArgument."""


class Written(NamedTuple):
    """One entry of a cell's list; as an answer it is a version, like holdfast.Cell."""

    value: object
    version: int
    updated_at: int
    commit: int
    op_id: UUID | None


Versions = list[Written]
Names = list[str]
Condition = Callable[[int], bool]
"""Whether a write is done, given the version that the cell has, 0 when it is absent."""


class ModelStore:
    """All cells of one store. `keep` is how many versions of a cell stay, None for all."""

    def __init__(self, keep: int | None = None) -> None:
        self.keep = keep
        self.now = 0
        self.commits = 0
        self._namespaces: dict[str, dict[str, Versions]] = {}

    def namespace(self, name: str) -> ModelCells:
        """The cells of one namespace."""
        return ModelCells(self, self._namespaces.setdefault(name, {}))


class ModelCells:
    """The cells of one namespace, with the methods of `store.cells`."""

    def __init__(self, store: ModelStore, cells: dict[str, Versions]) -> None:
        self._store = store
        self._cells = cells

    def init(self, name: str, value: object, *, op_id: UUID | None = None) -> int:
        """Keeps what exists; the version it has or gets."""
        _check(name, value)
        return self._write(name, value, op_id, when=lambda live: live == 0)[1]

    def set(self, name: str, value: object, *, op_id: UUID | None = None) -> int:
        """The new version."""
        _check(name, value)
        return self._write(name, value, op_id, when=lambda _: True)[1]

    def set_many(
        self, values: Mapping[str, object], *, op_id: UUID | None = None
    ) -> dict[str, int]:
        """The new versions, all of one commit."""
        for name, value in values.items():
            _check(name, value)
        self._store.commits += 1
        return {name: self._apply(name, value, op_id)[1] for name, value in values.items()}

    def cas(
        self, name: str, expected: int | None, value: object, *, op_id: UUID | None = None
    ) -> int | None:
        """The new version if the cell was at the expected one; None means absent."""
        _check(name, value)
        if expected is not None and expected < 1:
            raise Refused(expected)
        wanted = 0 if expected is None else expected
        done, version = self._write(name, value, op_id, when=lambda live: live == wanted)
        return version if done else None

    def delete(self, name: str, *, op_id: UUID | None = None) -> bool:
        """True if there was something to delete."""
        _check(name)
        return self._write(name, GONE, op_id, when=lambda live: live > 0)[0]

    def get(self, name: str, default: object = None) -> object:
        """The value."""
        cell = self.get_versioned(name)
        return default if cell is None else cell.value

    def get_versioned(self, name: str) -> Written | None:
        """The newest version."""
        _check(name)
        return _current(self._cells.get(name, []))

    def get_at(self, name: str, when: int) -> Written | None:
        """The version that was current then, if it is still kept."""
        _check(name)
        return _current([entry for entry in self._cells.get(name, []) if entry.updated_at <= when])

    def getv(self, name: str, limit: int | None = None) -> Versions:
        """The versions that are kept, newest first."""
        _check(name)
        _check_limit(limit)
        newest_first = reversed(self._cells.get(name, []))
        return [entry for entry in newest_first if entry.value is not GONE][:limit]

    def list(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Names:
        """The names of what exists, in the order of their bytes."""
        _check_text(prefix or "prefix")
        _check_limit(limit)
        if after is not None:
            _check_text(after)
        names = sorted(
            (name for name, entries in self._cells.items() if _current(entries)), key=str.encode
        )
        above = [name for name in names if after is None or name.encode() > after.encode()]
        return [name for name in above if name.startswith(prefix)][:limit]

    def prune(self, keep: int) -> int:
        """How many entries went because only the newest versions are to stay."""
        return sum(_trim(entries, keep) for entries in self._cells.values())

    def every_name(self) -> Names:
        """All names ever used, deleted ones too."""
        return sorted(self._cells)

    def deleted_after(self, name: str, version: int) -> bool:
        """True if this version of the cell was deleted, and the model still knows it."""
        return any(entry.value is GONE and entry.version == version for entry in self._cells[name])

    def _write(
        self, name: str, value: object, op_id: UUID | None, *, when: Condition
    ) -> tuple[bool, int]:
        self._store.commits += 1
        return self._apply(name, value, op_id, when=when)

    def _apply(
        self, name: str, value: object, op_id: UUID | None, *, when: Condition = lambda _: True
    ) -> tuple[bool, int]:
        """Whether it was done, by this call or the first one of its op_id, and the version."""
        entries = self._cells.get(name, [])
        for entry in entries:
            if op_id is not None and entry.op_id == op_id:
                return True, entry.version
        current = _current(entries)
        live = 0 if current is None else current.version
        if not when(live):
            return False, live
        counter = entries[-1].version if entries else 0
        version = counter if value is GONE else counter + 1
        # A cell's time never goes back, also when the clock does.
        at = max(self._store.now, entries[-1].updated_at if entries else self._store.now)
        entries.append(Written(value, version, at, self._store.commits, op_id))
        if self._store.keep is not None:
            _trim(entries, self._store.keep)
        self._cells[name] = entries
        return True, version


def _current(entries: Versions) -> Written | None:
    return entries[-1] if entries and entries[-1].value is not GONE else None


def _trim(entries: Versions, keep: int) -> int:
    oldest = entries[-1].version - keep
    kept = [entry for entry in entries if entry.version > oldest]
    gone = len(entries) - len(kept)
    entries[:] = kept
    return gone


def _check(name: str, value: object = None) -> None:
    _check_text(name)
    if name.startswith(("_strata/", "_holdfast/")) or not _is_legal(value):
        raise Refused(name, value)


def _check_text(text: str) -> None:
    size = len(text.encode(errors="surrogatepass"))
    if not 1 <= size <= 1024 or "\0" in text or _SURROGATES.search(text):
        raise Refused(text)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise Refused(limit)


def _is_legal(value: object) -> bool:
    """True for what comes back the same: any JSON value, and bytes."""
    if isinstance(value, list):
        return all(map(_is_legal, value))
    if isinstance(value, dict):
        keys_are_legal = all(isinstance(key, str) and _is_legal(key) for key in value)
        return keys_are_legal and all(map(_is_legal, value.values()))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return not _SURROGATES.search(value)
    return value is None or isinstance(value, bytes)

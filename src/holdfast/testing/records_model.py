"""A model of records: what a store must answer, in a few lines of plain Python.

Time is counted in half hours. A time to live ends between two of the clock's steps, so that the
model and a store, whose clocks differ by moments, agree on what is expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import eq, gt, lt, ne
from typing import Any, NamedTuple

Fields = dict[str, bytes]
Condition = tuple[str, str, bytes]
"""Field, operator, value."""

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"eq": eq, "ne": ne, "lt": lt, "gt": gt}


class Kept(NamedTuple):
    """A record, and when it ends, None for never."""

    fields: Fields
    ends: float | None


class ModelRecords:
    """The records of one namespace."""

    def __init__(self) -> None:
        self.now = 0.0
        self._kept: dict[str, Kept] = {}

    def get(self, key: str) -> Fields | None:
        """The record's fields."""
        kept = self._kept.get(key)
        if kept is None or (kept.ends is not None and kept.ends <= self.now):
            return None
        return dict(kept.fields)

    def expires(self, key: str) -> bool:
        """True if the record that is there has a time to live."""
        return self._kept[key].ends is not None

    def put(self, key: str, fields: Mapping[str, bytes | None], hours: int | None) -> None:
        """Replace the record."""
        self._keep(key, {}, fields, self._ends(hours))

    def set_fields(self, key: str, fields: Mapping[str, bytes | None]) -> None:
        """Change some fields."""
        before = self.get(key)
        self._keep(key, before or {}, fields, self._kept[key].ends if before else None)

    def compare_and_set(
        self,
        key: str,
        expect: Mapping[str, bytes | None],
        fields: Mapping[str, bytes | None],
    ) -> bool:
        """Change some fields, if others are as expected."""
        before = self.get(key) or {}
        if any(before.get(name) != value for name, value in expect.items()):
            return False
        self.set_fields(key, fields)
        return True

    def delete(self, key: str) -> bool:
        """True if there was a record."""
        there = self.get(key) is not None
        self._kept.pop(key, None)
        return there

    def expire(self, key: str, hours: int | None) -> bool:
        """True if there is a record, which has that time to live now."""
        fields = self.get(key)
        if fields is not None:
            self._kept[key] = Kept(fields, self._ends(hours))
        return fields is not None

    def scan(
        self, prefix: str, conditions: Sequence[Condition], most: int | None
    ) -> list[tuple[str, Fields]]:
        """What matches, in byte order of the keys."""
        found = [
            (key, fields)
            for key in sorted(self._kept, key=str.encode)
            if key.startswith(prefix)
            and (fields := self.get(key)) is not None
            and all(_matches(fields, condition) for condition in conditions)
        ]
        return found[:most]

    def _ends(self, hours: int | None) -> float | None:
        return None if hours is None else self.now + hours + 0.5

    def _keep(
        self, key: str, before: Fields, fields: Mapping[str, bytes | None], ends: float | None
    ) -> None:
        after = {name: value for name, value in {**before, **fields}.items() if value is not None}
        if after:
            self._kept[key] = Kept(after, ends)
        else:
            self._kept.pop(key, None)


def _matches(fields: Fields, condition: Condition) -> bool:
    field, operator, wanted = condition
    found = fields.get(field)
    if found is None:
        return False
    left: Any = found
    right: Any = wanted
    if _number(wanted) is not None:
        left, right = _number(found), _number(wanted)
        if left is None:
            return False
    return _OPERATORS[operator](left, right)


def _number(value: bytes) -> int | None:
    try:
        number = int(value)
    except ValueError:
        return None
    return number if b"%d" % number == value and -(2**63) <= number < 2**63 else None

"""Filters over records: which fields match, and which part of an index can hold them.

The filter's value decides the comparison. An int64 in decimal digits, as `str` writes it,
matches only fields that are one too, by number; anything else compares bytes. A missing field
matches nothing, not even `ne`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import eq, gt, lt, ne
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import INT64_MAX, INT64_MIN
from holdfast.errors import InvalidArgument
from holdfast.facets.records import (
    Fields,
    FieldValue,
    RecordIndex,
    Span,
    check_field,
    to_bytes,
)

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"eq": eq, "ne": ne, "lt": lt, "gt": gt}
_LISTS = {"in": "eq", "not_in": "ne"}
_MOST_DIGITS = 19
_CUT = 32  # bytes of a value that an index keeps
_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_NUMBERS = ("n", "n~")
"""Bounds of all numbers in an index."""


class ScanFilter(msgspec.Struct, frozen=True):
    """A condition on one field; `op` is eq, ne, lt, gt, or with several values in, not_in.

    `max_results`, if any filter has one, is the most that a scan gives.
    """

    field: str
    op: str
    value: FieldValue | Sequence[FieldValue]
    max_results: int | None = None


class Condition(NamedTuple):
    """A filter, checked. Several values: any of them for eq, all of them for ne."""

    field: str
    op: str
    values: tuple[bytes, ...]

    def matches(self, fields: Fields) -> bool:
        """True if the record's field is so."""
        found = fields.get(self.field)
        if found is None:
            return False
        compare = _COMPARE[self.op]
        each = (_compared(compare, found, value) for value in self.values)
        return all(each) if self.op == "ne" else any(each)


def several(filters: ScanFilter | Iterable[ScanFilter]) -> tuple[ScanFilter, ...]:
    """The filters, also when it is just one."""
    if isinstance(filters, ScanFilter):
        return (filters,)
    if not isinstance(filters, Iterable):
        raise InvalidArgument(f"filters: wanted ScanFilter, found {type(filters).__name__}")
    return tuple(filters)


def check_shown(fields: Iterable[str] | None) -> tuple[str, ...] | None:
    """The fields that a scan shows, None for all."""
    if fields is None:
        return None
    if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
        raise InvalidArgument(f"fields: wanted names of fields, found {fields!r}")
    return tuple(check_field(field) for field in fields)


def check_filters(filters: Sequence[ScanFilter]) -> tuple[Condition, ...]:
    """The filters, when they make sense."""
    return tuple(_condition(one) for one in filters)


def check_limit(max_results: int | None, filters: Sequence[ScanFilter]) -> int | None:
    """How much a scan gives at most: the smallest of all that was asked for."""
    asked = (max_results, *(one.max_results for one in filters))
    limits = [limit for limit in asked if limit is not None]
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument(
                f"max_results: wanted a whole number from 0 up, or None; found {limit!r}"
            )
    return min(limits, default=None)


def number(value: bytes) -> int | None:
    """The int64 whose decimal digits, as `str` writes them, the value is; None for others."""
    digits = value[1:] if value[:1] == b"-" else value
    if not 0 < len(digits) <= _MOST_DIGITS or not digits.isdigit():
        return None
    if digits[:1] == b"0" and value != b"0":
        return None
    found = int(value)
    return found if INT64_MIN <= found <= INT64_MAX else None


def lead(values: Iterable[bytes]) -> str:
    """How an index keeps the values of all fields but the last: equal if they are."""
    return ".".join(value[:_CUT].hex() for value in values)


def sort_key(value: bytes) -> str:
    """How an index keeps the last field's value: numbers by size, then the rest by bytes.

    7    n10000000000000000007
    -7   n09999999999999999992
    ab   t6162
    """
    found = number(value)
    if found is None:
        return f"t{value[:_CUT].hex()}"
    digits = f"{abs(found):019}"
    return f"n1{digits}" if found >= 0 else f"n0{digits.translate(_COMPLEMENT)}"


def entry(index: RecordIndex, fields: Fields) -> tuple[str, str] | None:
    """The record's place in the index, lead and sort key; None if it lacks one of the fields."""
    values = [fields.get(field) for field in index.fields]
    if None in values:
        return None
    return lead(values[:-1]), sort_key(values[-1])  # type: ignore[arg-type]


def spans(index: RecordIndex, prefix: str, conditions: Sequence[Condition]) -> list[Span] | None:
    """The parts of the index that hold every record which matches; None if it does not help.

    It does if the first fields are each asked to be equal to one value, and the last one is
    asked to be eq, lt or gt. Several values at a time are several spans.
    """
    if not prefix.startswith(index.prefix):
        return None
    asked = {c.field: c for c in reversed(conditions) if c.op in {"eq", "lt", "gt"}}
    *firsts, last = (asked.get(field) for field in index.fields)
    if last is None or any(c is None or c.op != "eq" or len(c.values) != 1 for c in firsts):
        return None
    head = lead(c.values[0] for c in firsts if c is not None)
    return [
        Span(prefix, head, low, high)
        for value in sorted(last.values, key=sort_key)
        for low, high in _ranges(last.op, value)
    ]


def _ranges(op: str, value: bytes) -> list[tuple[str, str]]:
    place = sort_key(value)
    if op == "eq":
        return [(place, place)]
    if place.startswith("n"):
        return [(_NUMBERS[0], place) if op == "lt" else (place, _NUMBERS[1])]
    # Bytes compare with what happens to be a number too.
    return [_NUMBERS, ("t", place) if op == "lt" else (place, "t~")]


def _compared(compare: Callable[[Any, Any], bool], found: bytes, value: bytes) -> bool:
    wanted = number(value)
    if wanted is None:
        return compare(found, value)
    there = number(found)
    return there is not None and compare(there, wanted)


def _condition(one: ScanFilter) -> Condition:
    if not isinstance(one, ScanFilter):
        raise InvalidArgument(f"filters: wanted ScanFilter, found {type(one).__name__}")
    check_field(one.field)
    if not isinstance(one.op, str) or one.op not in {*_COMPARE, *_LISTS}:
        known = ", ".join((*_COMPARE, *_LISTS))
        raise InvalidArgument(f"filter on {one.field!r}: wanted one of {known}, found {one.op!r}")
    if one.op in _LISTS:
        if isinstance(one.value, str | bytes | int) or not isinstance(one.value, Iterable):
            raise InvalidArgument(f"filter {one.op!r} on {one.field!r}: wanted several values")
        values = tuple(to_bytes(value, one.field) for value in one.value)
        return Condition(one.field, _LISTS[one.op], values)
    return Condition(one.field, one.op, (to_bytes(one.value, one.field),))

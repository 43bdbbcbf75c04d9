"""Time in the units the store keeps: microseconds since the Unix epoch, UTC.

Time belongs to the store, not to the process that asks: a backend reads its
server's clock (SQLite: this machine's) and adds an offset kept in the store,
which is zero unless a test moved it. This module only converts.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from holdfast.errors import InvalidArgument

MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FAR = 2**63 - 1  # what every engine's integers reach
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

Duration = int | float | timedelta
"""Seconds, or a timedelta."""


def machine_us() -> int:
    """This machine's clock, in microseconds."""
    return time.time_ns() // 1000


def to_datetime(us: int) -> datetime:
    """The instant as an aware UTC datetime."""
    return _EPOCH + timedelta(0, 0, us)  # a third faster than by name


def to_us(when: datetime | int) -> int:
    """The instant in microseconds; a naive datetime is refused."""
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise InvalidArgument(f"instant {when.isoformat()}: needs a time zone, such as UTC")
        # Integer division, not timestamp(): a float would lose the last microseconds.
        return (when - _EPOCH) // _MICROSECOND
    if isinstance(when, bool) or not isinstance(when, int):
        raise InvalidArgument(
            f"instant: wanted an aware datetime or microseconds as int, found {type(when).__name__}"
        )
    return max(-_FAR, min(when, _FAR))


def instant_us(when: datetime, *, name: str) -> int:
    """The instant in microseconds, when `to_datetime` gives it back.

    Next to the years 1 and 9999 a datetime of another time zone has no value in UTC.
    """
    if not isinstance(when, datetime):
        raise InvalidArgument(f"{name}: wanted an aware datetime, found {type(when).__name__}")
    us = to_us(when)
    if not _FIRST_US <= us <= _LAST_US:
        raise InvalidArgument(
            f"{name}: {when.isoformat()} lies outside the years 1 to 9999 in UTC, so that it could "
            "not be read back"
        )
    return us


def duration_us(duration: Duration, *, name: str) -> int:
    """The duration in microseconds; `name` is the parameter that an error mentions."""
    if isinstance(duration, timedelta):
        return _fitting(duration // _MICROSECOND, name)
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise InvalidArgument(
            f"{name}: wanted seconds or a timedelta, found {type(duration).__name__}"
        )
    try:
        us = round(duration * MICROSECONDS)
    except (OverflowError, ValueError):
        raise InvalidArgument(
            f"{name}: wanted a finite number of seconds, found {duration}"
        ) from None
    return _fitting(us, name)


def _fitting(us: int, name: str) -> int:
    if abs(us) >= 2**63:
        raise InvalidArgument(f"{name}: longer than the 292,000 years that 64 bits can tell")
    return us

"""Instants keep their microseconds; what is no instant or duration is refused."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidArgument
from holdfast.clock import duration_us, machine_us, to_datetime, to_us

quick = settings(deadline=None, database=None, print_blob=True)
MANY_DAYS = timedelta(days=100_000_000)  # the largest power of ten that fits 64 bits
zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@quick
@given(st.datetimes(timezones=st.just(UTC)))
def test_every_instant_survives_the_round_trip(when: datetime) -> None:
    assert to_datetime(to_us(when)) == when
    assert to_datetime(to_us(when)).tzinfo is UTC


@quick
@given(st.datetimes(timezones=st.just(UTC)), st.integers(-3, 3))
def test_neighbouring_microseconds_stay_apart(when: datetime, by: int) -> None:
    assert to_us(to_datetime(to_us(when))) + by == to_us(when) + by
    near = to_us(when) + by
    if to_us(datetime.min.replace(tzinfo=UTC)) <= near <= to_us(datetime.max.replace(tzinfo=UTC)):
        assert to_us(to_datetime(near)) == near


@quick
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones))  # noqa: DTZ001
def test_time_zone_does_not_change_the_instant(when: datetime) -> None:
    assert to_us(when) == to_us(when.astimezone(UTC))


@pytest.mark.parametrize(
    ("when", "us"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(2000, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 946_684_800_000_000),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000_000),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 253_402_300_799_999_999),
        (-5, -5),
    ],
    ids=str,
)
def test_instant_in_microseconds(when: datetime | int, us: int) -> None:
    assert to_us(when) == us


class Nowhere(tzinfo):
    """A time zone that knows no offset makes a datetime naive, says Python."""

    def utcoffset(self, when: datetime | None) -> None:
        del when

    dst = utcoffset

    def tzname(self, when: datetime | None) -> str:
        return f"nowhere {when}"


@pytest.mark.parametrize(
    "when",
    [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Nowhere())],  # noqa: DTZ001
    ids=["naive", "without an offset"],
)
def test_naive_datetime_is_refused(when: datetime) -> None:
    with pytest.raises(InvalidArgument, match="2026-01-01T00:00:00: needs a time zone"):
        to_us(when)


@pytest.mark.parametrize("when", [True, 1.5, "2026-01-01", None, timedelta(1), b"1"], ids=repr)
def test_what_is_no_instant_is_refused(when: datetime) -> None:
    with pytest.raises(InvalidArgument, match=f"found {type(when).__name__}"):
        to_us(when)


@pytest.mark.parametrize("far", [2**63, 2**64, 10**30])
def test_instant_beyond_64_bits_is_as_far_as_the_engines_count(far: int) -> None:
    assert to_us(datetime.max.replace(tzinfo=UTC)) < to_us(far) < 2**63
    assert to_us(datetime.min.replace(tzinfo=UTC)) > to_us(-far) >= -(2**63)


@pytest.mark.parametrize(
    ("duration", "us"),
    [
        (0, 0),
        (30, 30_000_000),
        (0.05, 50_000),
        (1e-6, 1),
        (2.5, 2_500_000),
        (-1, -1_000_000),
        (timedelta(milliseconds=1), 1000),
        (timedelta(days=365_000), 365_000 * 86_400_000_000),
        (timedelta(microseconds=-1), -1),
    ],
    ids=repr,
)
def test_duration_is_seconds_or_a_timedelta(duration: float | timedelta, us: int) -> None:
    assert duration_us(duration, name="ttl") == us


@quick
@given(st.timedeltas(-MANY_DAYS, MANY_DAYS))
def test_timedelta_keeps_its_microseconds(duration: timedelta) -> None:
    assert timedelta(microseconds=duration_us(duration, name="ttl")) == duration


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (math.nan, "ttl: wanted a finite number of seconds, found nan"),
        (math.inf, "ttl: wanted a finite number of seconds, found inf"),
        (True, "ttl: wanted seconds or a timedelta, found bool"),
        ("5", "ttl: wanted seconds or a timedelta, found str"),
        (None, "ttl: wanted seconds or a timedelta, found NoneType"),
        (1e308, "ttl: "),
        (10**400, "ttl: "),
        (10**13, "ttl: "),
        (timedelta.max, "ttl: "),
        (timedelta.min, "ttl: "),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_duration_is_refused_by_its_name(duration: float, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        duration_us(duration, name="ttl")


def test_machine_clock_counts_microseconds() -> None:
    before = time.time_ns() // 1000
    assert before <= machine_us() <= time.time_ns() // 1000

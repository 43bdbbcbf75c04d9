"""What a cas may expect, and what a store's `history` keeps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import InvalidArgument
from holdfast.config import History
from holdfast.facets.cells import ABSENT, ANY, Retention, check_expected


def test_expected_version_is_carried_as_it_is() -> None:
    assert [check_expected(version, "x") for version in (1, 7, 2**63 - 1)] == [1, 7, 2**63 - 1]


def test_expecting_none_is_expecting_absence() -> None:
    assert check_expected(None, "x") == ABSENT
    assert ABSENT != ANY


def test_version_beyond_all_versions_still_fits_the_engines() -> None:
    assert 1 < check_expected(2**70, "x") < 2**63


@pytest.mark.parametrize("expected", [0, -1, True, False, 1.0, "1", b"1"], ids=repr)
def test_impossible_expectation_is_refused_with_the_cells_name(expected: int) -> None:
    with pytest.raises(InvalidArgument, match="cell 'cfg': expected version must be 1 or more"):
        check_expected(expected, "cfg")


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ("all", Retention()),
        (1, Retention(versions=1)),
        (500, Retention(versions=500)),
        (timedelta(minutes=1), Retention(age_us=60_000_000)),
    ],
    ids=repr,
)
def test_history_says_what_is_kept(history: History, kept: Retention) -> None:
    assert Retention.of(history) == kept

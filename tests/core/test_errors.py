"""One tree of errors with stable codes, which carry facts and survive a trip to another process."""

from __future__ import annotations

import copy
import pickle

import pytest

import holdfast
from holdfast import errors
from holdfast.runtime.contract import error_for

# Stable: logs and wire formats hold these. A new error is a new line, an old line stays.
CODES = {
    "AlreadyCompleted": "already_completed",
    "Conflict": "conflict",
    "Corrupt": "corrupt",
    "Database": "database",
    "InvalidArgument": "invalid_argument",
    "InvalidState": "invalid_state",
    "LockConflict": "lock_conflict",
    "NotFound": "not_found",
    "PreconditionFailed": "precondition_failed",
    "ProjectionFailed": "projection_failed",
    "Serialization": "serialization",
    "StoreClosed": "store_closed",
    "StoreError": "store_error",
    "Timeout": "timeout",
    "Unauthorized": "unauthorized",
    "Unavailable": "unavailable",
    "Unsupported": "unsupported",
}
CLASSES: dict[str, type[errors.StoreError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.StoreError)
}
each = pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)


def test_codes_are_stable_and_unique() -> None:
    assert {name: kind.code for name, kind in CLASSES.items()} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_retryable_is_what_may_work_later() -> None:
    retryable = {name for name, kind in CLASSES.items() if kind("x").retryable}
    assert retryable == {"Timeout", "Unavailable"}


@each
def test_error_is_exported(kind: type[errors.StoreError]) -> None:
    assert getattr(holdfast, kind.__name__) is kind
    assert kind.__name__ in holdfast.__all__


@each
def test_error_is_documented_and_one_step_below_the_base(kind: type[errors.StoreError]) -> None:
    assert kind.__doc__
    assert kind is errors.StoreError or kind.__bases__ == (errors.StoreError,)


def test_all_is_sorted_and_exists() -> None:
    # Constants first, as the linter has it too.
    assert sorted(holdfast.__all__, key=lambda name: (not name.isupper(), name)) == holdfast.__all__
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)


def test_facts_are_attributes() -> None:
    error = errors.Conflict("taken", existing_id=7, name="x")
    assert (error.existing_id, error.name) == (7, "x")
    assert error.facts == {"existing_id": 7, "name": "x"}
    assert (error.retryable, error.outcome_unknown) == (False, False)
    assert str(error) == "taken"


def test_unknown_fact_is_an_attribute_error() -> None:
    error = errors.Conflict("taken")
    with pytest.raises(AttributeError, match="Conflict has no fact 'existing_id'"):
        _ = error.existing_id
    assert not hasattr(error, "existing_id")


def test_one_error_may_differ_from_its_class() -> None:
    assert errors.Conflict("deadlock", retryable=True).retryable is True
    assert errors.Timeout("hopeless", retryable=False).retryable is False
    assert errors.Conflict.retryable is False


@each
@pytest.mark.parametrize("trip", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])  # noqa: S301
def test_error_survives_the_trip(kind: type[errors.StoreError], trip: type) -> None:
    error = kind("what happened", retryable=True, outcome_unknown=True, name="x", found=5)
    back = trip(error)
    assert type(back) is kind
    assert str(back) == "what happened"
    assert (back.code, back.retryable, back.outcome_unknown) == (kind.code, True, True)
    assert back.facts == {"name": "x", "found": 5}
    assert back.found == 5


def test_half_made_error_does_not_recurse() -> None:
    bare = errors.StoreError.__new__(errors.StoreError)
    assert not hasattr(bare, "anything")


def test_callers_of_a_failed_batch_get_errors_of_their_own() -> None:
    first = errors.Unavailable("gone", outcome_unknown=True, sqlstate="08006")
    first.__cause__ = OSError("cut")
    copies = error_for(first, 3)
    assert len({id(error) for error in copies}) == 3
    for error in copies:
        assert type(error) is errors.Unavailable
        assert str(error) == "gone"
        assert (error.retryable, error.outcome_unknown, error.sqlstate) == (True, True, "08006")
        assert error.__cause__ is first.__cause__

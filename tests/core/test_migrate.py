"""The pure part of migrations: which there are, which are still to do, what is refused."""

from __future__ import annotations

import pytest

from holdfast import InvalidState
from holdfast.backends.sql.migrate import Migration, load_migrations, pending, refuse_pending

ENGINES = ["holdfast.backends.sqlite", "holdfast.backends.postgres"]
KNOWN = [Migration(number, f"step{number}", "SELECT 1") for number in (1, 2, 3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_migrations_are_numbered_from_one_without_a_gap(engine: str) -> None:
    found = load_migrations(engine)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    assert all(migration.sql.strip() for migration in found)
    assert found[0].name == "cells"


def test_engines_have_the_same_migrations() -> None:
    sqlite, postgres = (
        [(migration.number, migration.name) for migration in load_migrations(engine)]
        for engine in ENGINES
    )
    assert sqlite == postgres


@pytest.mark.parametrize(
    ("applied", "todo"),
    [
        (set(), [1, 2, 3]),
        ({1}, [2, 3]),
        ({1, 2, 3}, []),
        ({1, 3}, [2]),
    ],
)
def test_what_the_database_lacks_is_pending_in_order(applied: set[int], todo: list[int]) -> None:
    assert [step.number for step in pending(KNOWN, applied, where="here")] == todo


def test_newer_database_is_refused_with_both_versions() -> None:
    with pytest.raises(InvalidState, match=r"schema is at version 4, this .* 3") as caught:
        pending(KNOWN, {1, 2, 3, 4}, where="here")
    assert (caught.value.found, caught.value.known) == (4, 3)
    assert "upgrade Holdfast" in str(caught.value)


def test_pending_migrations_are_refused_by_name() -> None:
    with pytest.raises(InvalidState, match="here: needs the migrations 0002_step2, 0003") as caught:
        refuse_pending(KNOWN[1:], where="here")
    assert caught.value.pending == [2, 3]
    assert "holdfast.migrate(url)" in str(caught.value)


def test_nothing_pending_is_nothing_to_refuse() -> None:
    refuse_pending([], where="here")

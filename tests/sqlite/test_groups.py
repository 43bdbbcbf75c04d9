"""Groups on SQLite: what is known of operations, and what is left behind."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import uuid4

import apsw
import pytest

import holdfast
from holdfast.facets.transport import Group, operation
from tests.faults.kept_operations import DAY, move_clock, operations_are_known_for_a_day


def test_what_became_of_operations_is_kept_for_their_time(tmp_path: Path) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path}/x.db") as store,
        closing(apsw.Connection(str(tmp_path / "x.db"))) as raw,
    ):
        operations_are_known_for_a_day(store)
        move_clock(store, DAY + 1)
        for _ in range(5):
            assert store.transport.delete_group("missing") is False
        count = "SELECT count(*) FROM holdfast_group_operations"
        assert raw.execute(count).get == 5
        move_clock(store, 601)
        assert store.transport.delete_group("missing") is False
        assert raw.execute(count).get == 1


def test_consumers_that_begin_again_write_nothing(tmp_path: Path) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path}/x.db") as store,
        closing(apsw.Connection(str(tmp_path / "x.db"))) as raw,
    ):
        store.transport.create_group("g", "a")
        before = raw.execute("PRAGMA data_version").get
        for _ in range(3):
            with store.transport.consumer("g", "a") as consumer:
                assert consumer.next(0) is None
        assert raw.execute("PRAGMA data_version").get == before
        store.transport.create_group("g", "b")
        assert raw.execute("PRAGMA data_version").get != before


@pytest.mark.parametrize(("named", "secs"), [(True, DAY), (False, 600)])
def test_an_operation_is_known_for_longer_if_the_caller_named_it(*, named: bool, secs: int) -> None:
    group = Group("default", "g")
    found = operation(uuid4() if named else None, "delete", group)
    assert (found.named, found.kept_secs, found.kept_us) == (named, secs, secs * 1_000_000)


def test_an_operation_is_one_call_on_one_thing() -> None:
    op = uuid4()
    group, other = Group("default", "g"), Group("default", "h")
    ids = {
        operation(op, "revive", group, "1").id,
        operation(op, "revive", group, "2").id,
        operation(op, "drop", group, "1").id,
        operation(op, "revive", other, "1").id,
        operation(uuid4(), "revive", group, "1").id,
        operation(None, "revive", group, "1").id,
        operation(None, "revive", group, "1").id,
    }
    assert len(ids) == 7
    assert operation(str(op), "revive", group, "1").id in ids

"""What a writer remembers of the store is forgotten as soon as anybody else has written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.runtime.blocking import run

_HOUR_US = 3_600_000_000
Write = Callable[[holdfast.Store], object]


def _undone(store: holdfast.Store) -> None:
    with contextlib.suppress(ZeroDivisionError), store.transaction() as tx:
        tx.cells.set("c", 5)
        raise ZeroDivisionError


WRITES: dict[str, Write] = {
    "a cell": lambda store: store.cells.set("c", 1),
    "a record": lambda store: store.records.put("r", {"a": 1}),
    "an indexed field": lambda store: store.records.set_field("r", "a", 2),
    "a message": lambda store: store.transport.publish("s", b"m"),
    "a branch": lambda store: store.branches.fork("other"),
}
NOTHING: dict[str, Write] = {
    "a group that is not there": lambda store: store.transport.delete_group("none"),
    "a refused swap": lambda store: store.cells.cas("c", 99, 1),
    "an undone transaction": _undone,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("between", NOTHING.values(), ids=NOTHING)
def test_two_stores_give_out_each_commit_id_once(
    tmp_path: Path, write: Write, between: Write
) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.cells.set("c", 0)
        write(theirs)
        between(ours)
        ours.cells.set("c", 7)
        assert ours.cells.get("c") == 7
        assert theirs.cells.get("c") == 7


def test_an_index_made_by_another_process_is_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.records.put("task.1", {"state": "new"})
        theirs.records.create_index("task.", "state")
        ours.records.put("task.2", {"state": "new"})
        ours.records.put("task.1", {"state": "old"})
        for store in (ours, theirs):
            found = store.records.scan("task.", filters=holdfast.ScanFilter("state", "eq", "new"))
            assert [key for key, _ in found] == ["task.2"]


def test_a_clock_moved_by_another_process_is_seen(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.cells.set("c", 0)
        before = ours.cells.get_versioned("c")
        run(theirs._backend.move_clock(_HOUR_US))  # noqa: SLF001 - for tests only
        ours.cells.set("c", 1)
        after = ours.cells.get_versioned("c")
        assert before is not None
        assert after is not None
        assert after.updated_at - before.updated_at >= _HOUR_US

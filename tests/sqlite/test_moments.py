"""What a writer remembers of the store is forgotten as soon as anybody else has written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

import holdfast
from holdfast import Event
from holdfast.backends.sqlite.moment import Moments
from holdfast.facets.transport import ACK, Answer, Group
from holdfast.runtime.blocking import run
from holdfast.sync.events import Events

_HOUR_US = 3_600_000_000
Write = Callable[[holdfast.Store], object]


def _undone(store: holdfast.Store) -> None:
    with contextlib.suppress(ZeroDivisionError), store.transaction() as tx:
        tx.cells.set("c", 5)
        raise ZeroDivisionError


def _late(store: holdfast.Store) -> None:
    answer = Answer(Group("default", "none"), "1.1", 1, ACK, again=False)
    assert run(store._backend.transport.answer([answer])) == [False]  # noqa: SLF001 - nobody else can


WRITES: dict[str, Write] = {
    "a cell": lambda store: store.cells.set("c", 1),
    "a record": lambda store: store.records.put("r", {"a": 1}),
    "an indexed field": lambda store: store.records.set_field("r", "a", 2),
    "a message": lambda store: store.transport.publish("s", b"m"),
    "a branch": lambda store: store.branches.fork("other"),
}
NOTHING: dict[str, Write] = {
    "an answer to a group that is not there": _late,
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


def _merged(store: holdfast.Store) -> None:
    store.branches.fork("other")
    store.cells.on("other").set("c", 5)
    store.branches.merge("other", "main")


def _in_session(store: holdfast.Store) -> None:
    with store.cells.session() as session:
        session.set("c", 5)


def _in_transaction(store: holdfast.Store) -> None:
    with store.transaction() as tx:
        tx.cells.set("c", 5)


CHANGES: dict[str, Write] = {
    "set": lambda store: store.cells.set("c", 5),
    "deleted": lambda store: store.cells.delete("c"),
    "merged": _merged,
    "in a session": _in_session,
    "in a transaction": _in_transaction,
    "in an undone transaction": _undone,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("own", [True, False], ids=["by ourselves", "by another"])
def test_a_cell_goes_on_from_what_it_is_now(tmp_path: Path, change: Write, own: bool) -> None:  # noqa: FBT001 - a parameter
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.cells.set("c", 0)
        change(ours if own else theirs)
        found = theirs.cells.get_versioned("c")
        now = None if found is None else found.version
        assert ours.cells.cas("c", 9, "stale") is None
        after = ours.cells.cas("c", now, "next")
        assert after == max(cell.version for cell in theirs.cells.getv("c"))
        assert theirs.cells.get("c") == "next"
        assert ours.cells.set("c", "last") == after + 1


def _purged(store: holdfast.Store) -> None:
    store.records.delete("r")
    run(store._backend.move_clock(48 * _HOUR_US))  # noqa: SLF001 - for tests only
    assert store.records.purge() == 1
    store.records.put("s", {"took": "its row"})


def _undone_put(store: holdfast.Store) -> None:
    with contextlib.suppress(ZeroDivisionError), store.transaction() as tx:
        tx.records.put("r", {"a": 5})
        tx.records.put("new", {"a": 5})
        raise ZeroDivisionError


RECORD_CHANGES: dict[str, Write] = {
    "put": lambda store: store.records.put("r", {"a": 5}),
    "set": lambda store: store.records.set_field("r", "a", 5),
    "deleted": lambda store: store.records.delete("r"),
    "purged": _purged,
    "put in an undone transaction": _undone_put,
}


@pytest.mark.parametrize("change", RECORD_CHANGES.values(), ids=RECORD_CHANGES)
@pytest.mark.parametrize("own", [True, False], ids=["by ourselves", "by another"])
def test_a_record_is_put_where_it_is_now(tmp_path: Path, change: Write, own: bool) -> None:  # noqa: FBT001 - a parameter
    url = f"sqlite:///{tmp_path / 'x.db'}"
    op = uuid4()
    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        for _ in range(2):
            ours.records.put("r", {"a": 0}, op_id=op)
        change(ours if own else theirs)
        for key in ("r", "new", "s"):
            for number in range(2):
                ours.records.put(key, {"key": key, "n": number})
                found = theirs.records.get(key)
                assert found is not None
                assert found.fields == {"key": key.encode(), "n": b"%d" % number}
        assert sorted(key for key, _ in theirs.records.scan()) == ["new", "r", "s"]


def test_a_branch_made_again_under_its_name_begins_anew(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        store.cells.set("c", 0)
        for _ in range(2):
            store.branches.fork("other")
            assert [store.cells.on("other").set("c", 1) for _ in range(2)] == [2, 3]
            store.branches.delete("other")


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


def test_a_repeated_put_counts_no_commit(tmp_path: Path) -> None:
    op = uuid4()
    with holdfast.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        store.cells.set("c", "before")
        for _ in range(2):
            store.records.put("r", {"a": 1}, op_id=op)
        store.branches.fork("other")
        store.cells.set("c", "after")
        assert store.cells.on("other").get("c") == "before"
        for _ in range(2):
            store.records.put("r", {"a": 1}, op_id=op)
        store.transport.create_group("g", "s")
        store.transport.publish("s", "first")
        delivery = store.transport.fetch("g")
        assert delivery is not None
        assert delivery.message.payload == "first"


@pytest.mark.parametrize(
    ("before", "undo"),
    [("SAVEPOINT a", "ROLLBACK TO a"), ("SELECT 1", "ROLLBACK; BEGIN IMMEDIATE")],
)
def test_what_the_callers_own_sql_undid_is_not_remembered(
    tmp_path: Path, before: str, undo: str
) -> None:
    with holdfast.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        _append(store.events, "old")
        with store.transaction() as tx:
            tx.execute(before)
            _append(tx.events, "old")
            _append(tx.events, "new")
            tx.execute(undo)
            _append(tx.events, "old")
            _append(tx.events, "new")
        _append(store.events, "new")
        for run_id in ("old", "new"):
            assert [event.run_seq for event in store.events.fetch_events(run_id)] == [1, 2]


def test_an_interrupt_at_the_end_of_a_commit_leaves_nothing_to_remember(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"

    def interrupt(_: Moments) -> None:
        raise KeyboardInterrupt

    with holdfast.open(url) as ours, holdfast.open(url) as theirs:
        ours.cells.set("c", 0)
        with monkeypatch.context() as now:
            now.setattr(Moments, "committed", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ours.cells.set("c", 1)
        for number in range(3):
            theirs.cells.set("d", number)
        _late(ours)
        ours.cells.set("e", 1)
        assert ours.cells.get("e") == 1
        assert theirs.cells.get("e") == 1


def test_a_task_cancelled_while_a_thread_commits_is_cancelled(tmp_path: Path) -> None:
    async def transact(store: holdfast.AsyncStore, number: int, ready: asyncio.Event) -> None:
        async with store.transaction() as tx:
            for _ in range(20):
                await tx.execute("INSERT INTO big VALUES (zeroblob(500000))")
            await tx.cells.set("c", number)
            ready.set()

    async def scene() -> None:
        url = f"sqlite:///{tmp_path / 'x.db'}?commit=thread"
        async with holdfast.open_async(url) as store:
            async with store.transaction() as tx:
                await tx.execute("CREATE TABLE big (b)")
            for number in range(5):
                ready = asyncio.Event()
                task = asyncio.create_task(transact(store, number, ready))
                await ready.wait()
                await asyncio.sleep(0.001 * number)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await store.cells.set("d", number)  # the writer is free again

    asyncio.run(scene())


def _append(events: Events, run_id: str) -> None:
    events.append_event(Event(run_id, "Noted", str(uuid4())))

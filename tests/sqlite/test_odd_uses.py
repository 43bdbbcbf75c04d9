"""Uses that nobody plans: deep stacks, a changed folder, a forked child, one connection for all."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from pathlib import Path

import apsw
import pytest

import holdfast


def _in_time(work: threading.Thread) -> None:
    work.start()
    work.join(60)
    assert not work.is_alive(), "the store hangs"


@pytest.mark.usefixtures("garbage_waits")
def test_call_from_the_end_of_the_stack_does_not_hang_the_store(tmp_path: Path) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache")
    outcomes: list[str] = []

    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
        else:
            store.cells.set("x", 1)

    def work() -> None:
        for frames in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit()):
            try:
                deep(frames)
                outcomes.append("written")
            except (RecursionError, holdfast.StoreError):
                outcomes.append("refused")
        store.cells.set("x", 2)
        outcomes.append("done")

    _in_time(threading.Thread(target=work, daemon=True))
    assert outcomes[-1] == "done"
    assert {"written", "refused"} <= set(outcomes)
    store.close()


@pytest.mark.usefixtures("garbage_waits")
def test_transaction_at_the_end_of_the_stack_does_not_hang_the_store(tmp_path: Path) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache")
    outcomes: list[str] = []

    def deep(tx: holdfast.Transaction, frames: int) -> None:
        if frames:
            deep(tx, frames - 1)
        else:
            tx.cells.set("x", 1)

    def work() -> None:
        for frames in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit()):
            try:
                with store.transaction() as tx:
                    deep(tx, frames)
                outcomes.append("written")
            except (RecursionError, holdfast.StoreError):
                outcomes.append("refused")
        store.cells.set("y", 2)
        outcomes.append("done")

    _in_time(threading.Thread(target=work, daemon=True))
    assert outcomes[-1] == "done"
    assert {"written", "refused"} <= set(outcomes)
    store.close()


@pytest.mark.usefixtures("garbage_waits")
def test_call_from_the_end_of_the_stack_does_not_hold_up_others(tmp_path: Path) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache")
    ended = threading.Event()
    written: list[int] = []

    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
        else:
            store.cells.set("deep", 1)

    def beside() -> None:
        count = 0
        while not ended.is_set():
            try:
                store.cells.set("beside", count)
            except holdfast.Unavailable:  # it shared a batch with who was at the end
                continue
            count += 1
        written.append(count)

    def work() -> None:
        for frames in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit()):
            with contextlib.suppress(RecursionError, holdfast.StoreError):
                deep(frames)
        ended.set()

    others = [threading.Thread(target=beside, daemon=True) for _ in range(3)]
    for other in others:
        other.start()
    _in_time(threading.Thread(target=work, daemon=True))
    for other in others:
        other.join(60)
    assert len(written) == len(others), "the store hangs"
    assert min(written) > 0
    store.close()


def test_deepest_value_is_read_with_300_frames_to_spare(tmp_path: Path) -> None:
    value: object = b"x"
    for _ in range(249):
        value = [value]

    def deep(frames: int) -> object:
        return deep(frames - 1) if frames else store.cells.get("x")

    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        store.cells.set("x", value)
        assert deep(sys.getrecursionlimit() - len(inspect.stack(0)) - 300) == value
        with pytest.raises(holdfast.InvalidArgument, match="250 levels"):
            store.cells.set("x", [value])


def test_relative_path_means_the_folder_at_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with holdfast.open("sqlite:///x.db") as store:
        store.cells.set("x", 1)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert store.cells.get("x") == 1
        store.backup(tmp_path / "copy.db")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_forked_child_leaves_a_memory_store_alone() -> None:
    with holdfast.open("sqlite://:memory:") as store:
        store.cells.set("x", 1)
        pid = os.fork()
        if pid == 0:
            store.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert store.cells.get("x") == 1
        assert store.cells.set("x", 2) == 2


def test_one_connection_for_all_keeps_readers_and_writers_apart(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?locking=exclusive&durability=cache") as store:
        store.cells.set_many({"a": 0, "b": 0})
        stop, wrong = threading.Event(), list[object]()

        def read() -> None:
            while not stop.is_set():
                try:
                    found = store.cells.list()
                except Exception as exc:  # noqa: BLE001 - whatever it is, it is wrong
                    found = [repr(exc)]
                if found != ["a", "b"]:
                    wrong.append(found)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(500):
            store.cells.set_many({"a": number, "b": number})
        stop.set()
        for reader in readers:
            reader.join(30)
        assert wrong == []


def test_two_backups_to_one_target_make_one_good_file(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        store.cells.set_many({f"x{number}": "y" * 1000 for number in range(300)})
        start, outcomes = threading.Barrier(4), list[str]()

        def backup() -> None:
            start.wait()
            try:
                store.backup(tmp_path / "copy.db")
                outcomes.append("made")
            except holdfast.Conflict:
                outcomes.append("refused")

        threads = [threading.Thread(target=backup) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(outcomes) == ["made", "refused", "refused", "refused"]
    assert [file.name for file in tmp_path.glob("*.partial")] == []
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert len(copy.cells.list("x")) == 300


def test_backup_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store, pytest.raises(holdfast.StoreError):
        store.backup("/proc/holdfast-backup.db")


def test_set_many_beyond_one_commit_is_refused(tmp_path: Path) -> None:
    value = "y" * 2_000_000
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        with pytest.raises(holdfast.InvalidArgument, match="one commit"):
            store.cells.set_many({f"x{number}": value for number in range(35)})
        assert store.cells.list() == []


def test_lost_state_row_is_corruption_and_no_guess(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        store.cells.set("x", 1)
    raw = apsw.Connection(f"{tmp_path}/x.db")
    raw.execute("DELETE FROM holdfast_store_state")
    raw.close()
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        with pytest.raises(holdfast.Corrupt, match="store_state"):
            store.cells.set("x", 2)
        assert store.cells.get("x") == 1


def test_list_continues_inside_a_prefix(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        store.cells.set_many(dict.fromkeys(["a", "b", "b1", "b1x", "b2", "c"], 0))
        assert store.cells.list("b", after="b1") == ["b1x", "b2"]
        assert store.cells.list("b", after="a") == ["b", "b1", "b1x", "b2"]
        assert store.cells.list("b", after="c") == []

"""The feed and its wake-ups on SQLite: other processes, restored backups."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast import CAUGHT_UP, CellChange, StoreConfig
from holdfast.backends.sqlite.watch import Poller
from tests.feed.following import PATIENCE, caught_up, told

WRITER = """
import sys, holdfast
with holdfast.open(sys.argv[1], namespace=sys.argv[2]) as store:
    for line in sys.stdin:
        store.cells.set("a", int(line))
        print("done", flush=True)
"""


def pollers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast watch"]


def test_a_commit_of_another_process_wakes_a_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever waits for a change that nobody tells of waits in vain.
    monkeypatch.setattr("holdfast.backends.sqlite.db._PATIENCE", 3600.0)
    url = f"sqlite:///{tmp_path}/x.db"
    with holdfast.open(url) as store:
        watch = caught_up(store.cells.watch())
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, url, "default"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            for number in range(20):
                writer.stdin.write(f"{number}\n")
                writer.stdin.flush()
                assert told(watch, 1) == [("a", number)]
                assert writer.stdout.readline() == "done\n"
            writer.stdin.close()


def test_other_namespaces_of_other_processes_wake_nobody(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with holdfast.open(url) as store:
        watch = caught_up(store.cells.watch())
        woken = list[str]()
        listener = watch._watching._listener  # noqa: SLF001
        wake = listener.wake

        def noted() -> None:
            woken.append("woken")
            wake()

        listener.wake = noted  # type: ignore[method-assign]
        subprocess.run(
            [sys.executable, "-c", WRITER, url, "other"],
            input="1\n2\n3\n",
            check=True,
            capture_output=True,
            text=True,
        )
        time.sleep(0.2)  # nothing would be a signal that nothing happened
        before = len(woken)
        subprocess.run(
            [sys.executable, "-c", WRITER, url, "default"],
            input="1\n",
            check=True,
            capture_output=True,
            text=True,
        )
        assert told(watch, 1) == [("a", 1)]
        assert before <= 1  # the poller's first look at the file
        assert len(woken) > before


def test_the_poller_lives_as_long_as_somebody_listens(tmp_path: Path) -> None:
    assert pollers() == []
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        store.cells.set("a", 1)
        assert pollers() == []
        watches = [store.cells.watch() for _ in range(3)]
        assert len(pollers()) == 1
        (poller,) = pollers()
        watches.clear()
        poller.join(PATIENCE)
        assert pollers() == []
        watch = store.cells.watch()
        assert len(pollers()) == 1
        assert told(watch, 1) == [("a", 1)]
    assert pollers() == []


def test_a_forgotten_store_is_freed_also_on_the_thread_of_its_poller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = threading.Event()
    wait = Poller._stopped  # noqa: SLF001

    def collecting(poller: Poller, seconds: float) -> bool:
        forgotten.wait(PATIENCE)
        with pytest.warns(ResourceWarning, match="unclosed"):
            gc.collect()
        return wait(poller, seconds)

    def forget() -> list[threading.Thread]:
        before = set(threading.enumerate())
        store = holdfast.open(f"sqlite:///{tmp_path}/x.db")
        ring: list[object] = [store, store.cells.watch()]
        ring.append(ring)  # only a collection frees them, and both at once
        return [thread for thread in threading.enumerate() if thread not in before]

    monkeypatch.setattr(Poller, "_stopped", collecting)
    gc.disable()
    try:
        threads = forget()
        forgotten.set()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        gc.enable()
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads), threads


def test_deleting_a_branch_ends_who_waits_for_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.sqlite.db._PATIENCE", 3600.0)
    with (
        holdfast.open(f"sqlite:///{tmp_path}/x.db") as store,
        ThreadPoolExecutor(1) as threads,
    ):
        store.branches.fork("b")
        watch = caught_up(store.cells.on("b").watch())
        waits = threading.Event()
        listener = watch._watching._listener  # noqa: SLF001
        wait = listener.wait

        async def noted(seconds: float) -> None:
            waits.set()
            await wait(seconds)

        listener.wait = noted  # type: ignore[method-assign]
        # Longer than we wait for it: at its time-out a watch looks once more by itself.
        waiting = threads.submit(watch.next, timeout=2 * PATIENCE)
        assert waits.wait(PATIENCE)
        store.branches.delete("b")
        with pytest.raises(holdfast.NotFound, match="'b'"):
            waiting.result(PATIENCE)


def test_a_store_that_nobody_else_can_open_has_no_poller(tmp_path: Path) -> None:
    for url in ("sqlite://:memory:", f"sqlite:///{tmp_path}/x.db?locking=exclusive"):
        with holdfast.open(url) as store:
            watch = caught_up(store.cells.watch())
            assert pollers() == []
            store.cells.set("a", 1)
            assert told(watch, 1) == [("a", 1)]


def test_a_cancelled_reader_can_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/x.db") as store:
            watch = store.cells.watch()
            assert await watch.next() is CAUGHT_UP
            for number in range(5):
                reader = asyncio.create_task(watch.next())
                await asyncio.sleep(0.01)
                reader.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reader
                await store.cells.set("a", number)
                change = await watch.next(timeout=PATIENCE)
                assert isinstance(change, CellChange)
                assert change.cell is not None
                assert change.cell.value == number

    asyncio.run(main())


def test_a_thread_commit_wakes_a_watch(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/x.db?commit=thread"
        async with holdfast.open_async(url) as store:
            watch = store.cells.watch()
            assert await watch.next() is CAUGHT_UP
            reader = asyncio.create_task(watch.next(timeout=PATIENCE))
            await store.cells.set("a", 1)
            change = await reader
            assert isinstance(change, CellChange)

    asyncio.run(main())


# Restored from a backup


def test_a_cursor_beyond_a_backup_goes_on_with_what_the_copy_does_next(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        watch = caught_up(store.cells.watch())
        start = watch.cursor
        for number in range(3):
            store.cells.set("a", number)
        told(watch, 2)
        before = watch.cursor
        store.backup(tmp_path / "copy.db")
        for number in range(3, 6):
            store.cells.set("lost", number)
        told(watch, 4)
        beyond = watch.cursor
        assert store.cells.watch(after=beyond).next(timeout=PATIENCE) is CAUGHT_UP
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        copy.cells.set("a", "new")  # under a commit id that the original gave out too
        assert told(copy.cells.watch(after=beyond), 1) == [("a", "new")]
        assert told(copy.cells.watch(after=before), 2) == [("a", 2), ("a", "new")]
        follower = copy.cells.watch(after=start)
        assert told(follower, 4) == [("a", 0), ("a", 1), ("a", 2), ("a", "new")]
        caught_up(follower)
        copy.backup(tmp_path / "copy2.db")
        copy.cells.set("a", "lost")
        told(follower, 1)
    with holdfast.open(f"sqlite:///{tmp_path}/copy2.db") as copy:
        copy.cells.set("b", 1)
        assert told(copy.cells.watch(after=follower.cursor), 1) == [("b", 1)]
        assert told(copy.cells.watch(after=beyond), 2) == [("a", "new"), ("b", 1)]
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        wrong = store.cells.watch(after=follower.cursor)
        with pytest.raises(holdfast.InvalidArgument, match="older copy"):
            wrong.next(timeout=PATIENCE)


def test_the_present_of_a_restored_backup_is_replayed_once(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db", config=StoreConfig(history=1)) as store:
        store.cells.set_many({"a": 1, "b": 2})
        store.backup(tmp_path / "copy.db")
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        watch = copy.cells.watch()
        assert told(watch, 2) == [("a", 1), ("b", 2)]
        caught_up(watch)
        copy.cells.set("a", 3)
        assert told(watch, 1) == [("a", 3)]

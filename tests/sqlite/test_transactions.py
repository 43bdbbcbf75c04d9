"""Transactions on SQLite: the one writer, held by a caller."""

import asyncio
import gc
import threading
import time
from pathlib import Path

import apsw
import pytest

import holdfast

PATIENCE = 30


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/x.db"


def test_a_forgotten_transaction_gives_the_writer_back(url: str) -> None:
    with holdfast.open(url) as store:
        scope = store.transaction(timeout=3600)
        tx = scope.__enter__()
        tx.cells.set("a", 1)
        del scope, tx
        gc.collect()
        done = threading.Thread(target=lambda: store.cells.set("a", "other"), daemon=True)
        done.start()
        done.join(PATIENCE)
        assert store.cells.get("a") == "other"


def test_another_thread_writes_when_the_time_is_up(url: str) -> None:
    with holdfast.open(url) as store:
        written: list[int] = []

        def write() -> None:
            written.append(store.cells.set("a", "other"))

        thread = threading.Thread(target=write, daemon=True)

        def hang() -> None:
            with store.transaction(timeout=0.05) as tx:
                tx.cells.set("a", "hangs")
                thread.start()
                thread.join(PATIENCE)

        with pytest.raises(holdfast.Timeout, match=r"longer than 0\.05 s"):
            hang()
        assert written == [1]


def test_waiting_for_the_writer_counts(url: str) -> None:
    with (
        holdfast.open(url) as store,
        holdfast.open(url) as other,
        other.transaction(timeout=60),
        pytest.raises(holdfast.Timeout),
        store.transaction(timeout=0.05),
    ):
        raise AssertionError("must not begin")


def test_a_task_inside_is_refused_too(url: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(url) as store, store.transaction() as tx:
            await tx.cells.set("a", 1)
            with pytest.raises(holdfast.InvalidState, match="wait for itself"):
                await asyncio.create_task(store.cells.set("a", 2))

    asyncio.run(main())


def test_a_task_beside_waits_for_its_turn(url: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(url) as store:
            begun = asyncio.Event()

            async def beside() -> int:
                await begun.wait()
                return await store.cells.set("a", "beside")

            task = asyncio.create_task(beside())
            async with store.transaction() as tx:
                await tx.cells.set("a", "inside")
                begun.set()
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not task.done()
            assert await task == 2

    asyncio.run(main())


def test_a_cancelled_task_leaves_nothing_behind(url: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(url) as store:
            inside = asyncio.Event()

            async def hang() -> None:
                async with store.transaction(timeout=60) as tx:
                    await tx.cells.set("a", 1)
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(hang())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.cells.set("a", 2) == 1

    asyncio.run(main())


def test_a_task_that_gives_up_waiting_does_not_keep_the_writer(url: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(url) as store:

            async def wait() -> None:
                async with store.namespace("other").transaction(timeout=60):
                    raise AssertionError("must not begin")

            context = asyncio.Event()
            holder_is_in = asyncio.Event()

            async def hold() -> None:
                async with store.transaction(timeout=60) as tx:
                    await tx.cells.set("a", 1)
                    holder_is_in.set()
                    await context.wait()

            holder = asyncio.create_task(hold())
            await holder_is_in.wait()
            waiter = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            context.set()
            await holder
            assert await store.cells.set("a", 2) == 2

    asyncio.run(main())


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_commits_where_the_store_commits(url: str, commit: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"{url}?commit={commit}") as store:
            async with store.transaction() as tx:
                await tx.cells.set_many({"a": 1, "b": 2})
            await store.cells.set("a", 2)
            assert await store.cells.get("a") == 2

    asyncio.run(main())


def test_two_threads_inside_one_transaction_are_told(url: str) -> None:
    with holdfast.open(url) as store, store.transaction(timeout=60) as tx:
        inside, go_on = threading.Event(), threading.Event()
        raw = store._backend._db._writer.raw  # type: ignore[attr-defined]  # noqa: SLF001

        def stop() -> int:
            inside.set()
            go_on.wait(PATIENCE)
            return 1

        raw.create_scalar_function("stop", stop, 0)
        thread = threading.Thread(target=lambda: tx.execute("SELECT stop()"), daemon=True)
        thread.start()
        assert inside.wait(PATIENCE)
        with pytest.raises(holdfast.InvalidState, match="one thing at a time"):
            tx.cells.set("a", 1)
        go_on.set()
        thread.join(PATIENCE)
        tx.cells.set("a", 1)


def test_a_failed_commit_leaves_nothing_and_the_store_works(url: str, tmp_path: Path) -> None:
    with holdfast.open(url) as store:
        with store.transaction() as tx:
            tx.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
            tx.execute(
                "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"
            )
        writer = store._backend._db._writer  # type: ignore[attr-defined]  # noqa: SLF001
        writer.run("PRAGMA foreign_keys = ON")

        def orphan() -> None:
            with store.transaction() as tx:
                tx.cells.set("a", 1)
                tx.execute("INSERT INTO child VALUES (1)")

        with pytest.raises(holdfast.StoreError, match="FOREIGN KEY"):
            orphan()
        assert store.cells.get("a") is None
        store.cells.set("a", 2)
    with apsw.Connection(str(tmp_path / "x.db")) as raw:
        assert list(raw.execute("SELECT count(*) FROM child")) == [(0,)]


def test_exclusive_locking_has_no_transactions(url: str) -> None:
    with (
        holdfast.open(f"{url}?locking=exclusive") as store,
        pytest.raises(holdfast.Unsupported, match="transactions"),
    ):
        store.transaction()


def test_closing_waits_for_an_open_transaction(url: str) -> None:
    store = holdfast.open(url)
    closing = threading.Thread(target=store.close, daemon=True)
    with store.transaction(timeout=60) as tx:
        tx.cells.set("a", 1)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_a_call_while_the_timer_ends_the_transaction_says_that_it_took_too_long(url: str) -> None:
    with holdfast.open(url) as store, store.transaction() as tx:
        scope = tx._opened._scope  # type: ignore[attr-defined]  # noqa: SLF001
        scope._due = 0.0  # noqa: SLF001 - its time is up,
        assert scope._turn.take()  # noqa: SLF001 - the timer has it
        with pytest.raises(holdfast.Timeout):
            tx.cells.get("a")
        scope._turn.release()  # noqa: SLF001
        scope._due = time.monotonic() + 60  # noqa: SLF001
        tx.cells.set("a", 1)

"""Closing: whoever closes returns when everything is freed, however many do, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import apsw
import pytest

import holdfast


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_every_closing_thread_returns_when_all_is_freed(tmp_path: Path) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db")
    store.cells.set("x", "y" * 100_000)
    start, left = threading.Barrier(8), list[list[str]]()

    def close() -> None:
        start.wait(30)
        store.close()
        left.append(_files(tmp_path))

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert left == [["x.db"]] * 8


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_every_closing_task_returns_when_all_is_freed(tmp_path: Path, commit: str) -> None:
    async def main() -> None:
        store = await holdfast.open_async(f"sqlite:///{tmp_path}/x.db?commit={commit}")
        await store.cells.set("x", 1)

        async def close() -> list[str]:
            await store.close()
            return _files(tmp_path)

        assert await asyncio.gather(*(close() for _ in range(8))) == [["x.db"]] * 8

    asyncio.run(main())


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_cancelled_close_goes_on_and_writes_are_answered(tmp_path: Path, commit: str) -> None:
    async def main() -> None:
        path = tmp_path / "x.db"
        url = f"sqlite:///{path}?commit={commit}&busy_timeout=30"
        store = await holdfast.open_async(url)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        writes = [asyncio.ensure_future(store.cells.set("x", number)) for number in range(3)]
        await asyncio.sleep(0)
        writes.append(asyncio.ensure_future(store.cells.set("x", 3)))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing], timeout=30)
        assert closing.cancelled()
        with pytest.raises(holdfast.StoreClosed):
            await store.cells.get("x")
        other.execute("COMMIT")
        other.close()
        assert await asyncio.wait_for(asyncio.gather(*writes), 30) == [1, 2, 3, 4]
        await asyncio.wait_for(store.close(), 30)
        assert _files(tmp_path) == ["x.db"]

    asyncio.run(main())


def test_close_that_the_loops_end_cuts_short_frees_everything(tmp_path: Path) -> None:
    async def main() -> None:
        store = await holdfast.open_async(f"sqlite:///{tmp_path}/x.db?busy_timeout=30")
        other = apsw.Connection(f"{tmp_path}/x.db")
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.ensure_future(store.cells.set("x", 1))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        other.close()
        assert not write.done()
        assert not closing.done()

    asyncio.run(main())
    assert _files(tmp_path) == ["x.db"]


def test_reader_that_comes_back_after_the_end_is_freed(tmp_path: Path) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db")
    store.cells.set("x", 1)
    readers = store._backend._db._readers  # type: ignore[attr-defined]  # noqa: SLF001
    reader = readers.take()  # as a thread does that is about to read
    store.close()
    readers.give_back(reader)
    assert _files(tmp_path) == ["x.db"]


def test_close_under_another_loop_is_refused(tmp_path: Path) -> None:
    async def opened() -> holdfast.AsyncStore:
        return await holdfast.open_async(f"sqlite:///{tmp_path}/x.db")

    store = asyncio.run(opened())
    with pytest.raises(holdfast.InvalidState, match="event loop"):
        asyncio.run(store.close())
    del store
    with pytest.warns(ResourceWarning, match="unclosed store"):
        gc.collect()
    assert _files(tmp_path) == ["x.db"]


def test_a_loop_may_go_on_in_another_thread(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()

    async def open_store() -> holdfast.AsyncStore:
        return await holdfast.open_async(f"sqlite:///{tmp_path}/a.db")

    store = loop.run_until_complete(open_store())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for number in range(3):
            written = asyncio.run_coroutine_threadsafe(store.cells.set("a", number), loop)
            assert written.result(10) == number + 1
        asyncio.run_coroutine_threadsafe(store.close(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

"""Online backup: one moment, on any store, without stopping anybody, and nothing left half done."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import Capability, InvalidArgument, StoreClosed


def _fill(store: holdfast.Store, mib: int = 4) -> None:
    for number in range(mib):
        store.cells.set(f"pad{number}", "y" * 1_000_000)


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("options", ["locking=exclusive", "locking=normal"])
def test_backup_while_others_write_and_read_is_one_moment(tmp_path: Path, options: str) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache&{options}") as store:
        _fill(store)
        store.cells.set_many({f"x{n}": 0 for n in range(50)})
        over, written, wrong = threading.Event(), list[int](), list[object]()

        def write() -> None:
            while not over.is_set():
                written.append(len(written) + 1)
                store.cells.set_many({f"x{n}": written[-1] for n in range(50)})

        def read() -> None:
            while not over.is_set():
                wrong.extend(name for name in ("x0", "x49") if store.cells.get(name) is None)

        threads = [threading.Thread(target=write), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        during = list[int]()
        store.backup(tmp_path / "copy.db", progress=lambda *_: during.append(len(written)))
        over.set()
        for thread in threads:
            thread.join(30)
        assert wrong == []
        assert during[-1] > during[0] or options == "locking=normal", "the writer stood still"
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert len({copy.cells.get(f"x{n}") for n in range(50)}) == 1
        assert copy.cells.get("pad3") == "y" * 1_000_000
        assert copy.cells.set("after", 1) == 1
    assert _names(tmp_path) == ["copy.db", "x.db"]


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///{}/x.db"])
def test_exclusive_store_has_the_abilities_it_states(tmp_path: Path, url: str) -> None:
    with holdfast.open(url.format(tmp_path) + "?locking=exclusive") as store:
        assert Capability.BACKUP in store.capabilities
        assert Capability.SHARED not in store.capabilities
        store.cells.set("x", 1)
        store.backup(tmp_path / "copy.db")
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert copy.cells.get("x") == 1


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_event_loop_goes_on_during_a_backup(tmp_path: Path, locking: str) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/x.db?durability=cache&locking={locking}"
        async with holdfast.open_async(url) as store:
            for number in range(10):
                await store.cells.set(f"pad{number}", "y" * 1_000_000)
            turned, seen = asyncio.Event(), list[int]()
            loop = asyncio.get_running_loop()

            def progress(done: int, _total: int) -> None:
                # Returns only when the loop has turned and written: a blocked loop hangs here.
                if not seen:
                    asyncio.run_coroutine_threadsafe(store.cells.set("x", done), loop).result(30)
                    loop.call_soon_threadsafe(turned.set)
                seen.append(done)

            await asyncio.wait_for(store.backup(tmp_path / "copy.db", progress=progress), 60)
            assert turned.is_set()
            assert len(seen) > 1

    asyncio.run(main())


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_cancelled_backup_leaves_no_file(tmp_path: Path, locking: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/x.db?locking={locking}") as store:
            for number in range(10):
                await store.cells.set(f"pad{number}", "y" * 1_000_000)
            begun, go = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def progress(_done: int, _total: int) -> None:
                loop.call_soon_threadsafe(begun.set)
                go.wait(30)

            backup = asyncio.ensure_future(store.backup(tmp_path / "copy.db", progress=progress))
            await asyncio.wait_for(begun.wait(), 30)
            backup.cancel()
            await asyncio.wait([backup], timeout=30)
            assert backup.cancelled()
            go.set()
            assert await store.cells.set("x", 1) == 1

    asyncio.run(main())
    assert _names(tmp_path) == ["x.db"]


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_close_ends_a_backup_and_waits_for_it(tmp_path: Path, locking: str) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db?locking={locking}&durability=cache")
    _fill(store, 12)
    begun, closing, errors = threading.Event(), threading.Event(), list[Exception]()

    def progress(_done: int, _total: int) -> None:
        begun.set()
        closing.wait(30)

    def backup() -> None:
        try:
            store.backup(tmp_path / "copy.db", progress=progress)
        except StoreClosed as exc:
            errors.append(exc)

    thread = threading.Thread(target=backup)
    thread.start()
    assert begun.wait(30)
    closer = threading.Thread(target=store.close)
    closer.start()
    while not store._backend._db.copier._stopped.is_set():  # type: ignore[attr-defined]  # noqa: SLF001
        assert closer.is_alive()
    closing.set()
    closer.join(30)
    left = _names(tmp_path)
    thread.join(30)
    assert [str(error) for error in errors] == [
        "the store was closed, or the backup given up, before its end"
    ]
    assert [name for name in left if not name.endswith(".partial")] == ["x.db"]
    assert _names(tmp_path) == ["x.db"]


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_progress_may_close_the_store(tmp_path: Path, locking: str) -> None:
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db?locking={locking}&durability=cache")
    _fill(store, 12)
    with pytest.raises(StoreClosed):
        store.backup(tmp_path / "copy.db", progress=lambda *_: store.close())
    assert _names(tmp_path) == ["x.db"]


@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_store_goes_on_after_a_backup_that_failed(tmp_path: Path, locking: str) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?locking={locking}") as store:
        _fill(store, 1)

        def fail(_done: int, _total: int) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.backup(tmp_path / "copy.db", progress=fail)
        assert store.cells.set("x", 1) == 1
        assert store.cells.get("x") == 1
        store.backup(tmp_path / "copy.db")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (7, "wanted text or a path, found int"),
        (None, "found NoneType"),
        ("", "is a folder"),
        (".", "is a folder"),
        ("a\0b", "NUL"),
        ("\udcff.db", "not UTF-8"),
        (b"\xff.db", "not UTF-8"),
        ("x" * 300, "too long"),
        ("x" * 230, "too long"),
        ("no/copy.db", "the folder '.*/no' does not exist"),
        ("x.db/copy.db", "is not a folder"),
        ("~/copy.db", "~ is not expanded"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_target_that_cannot_be_is_an_invalid_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with holdfast.open("sqlite:///x.db") as store:
        with pytest.raises(InvalidArgument, match=words):
            store.backup(target)
        store.backup(b"copy.db")  # type: ignore[arg-type]
    assert _names(tmp_path) == ["copy.db", "x.db"]


def test_backup_never_replaces_anything(tmp_path: Path) -> None:
    (tmp_path / "one-byte").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("nowhere")
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        for name in ("one-byte", "dangling", "x.db"):
            with pytest.raises(holdfast.Conflict, match="exists already"):
                store.backup(tmp_path / name)
    assert _names(tmp_path) == ["dangling", "one-byte", "x.db"]

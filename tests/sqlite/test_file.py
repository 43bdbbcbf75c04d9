"""What is SQLite's own: the file, its settings, its lock, its log."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.backends.sql.migrate import Migration, load_migrations


def _pragma(store: holdfast.Store, name: str) -> object:
    writer = store._backend._db._writer  # type: ignore[attr-defined]  # noqa: SLF001
    ((value,),) = writer.run(f"PRAGMA {name}")
    return value


def _trace(store: holdfast.AsyncStore, seen: Callable[[str], object]) -> None:
    """Tell `seen` about every statement of the writer."""

    def trace(_cursor: object, sql: str, _params: object) -> bool:
        seen(sql)
        return True

    store._backend._db._writer.raw.set_exec_trace(trace)  # type: ignore[attr-defined]  # noqa: SLF001


def test_new_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        store.cells.set("x", 1)
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600}


def test_mode_of_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.touch(mode=0o640)
    holdfast.open(f"sqlite:///{file}").close()
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("durability", "synchronous"), [("always", 2), ("standard", 1), ("cache", 0)]
)
def test_durability_sets_synchronous(tmp_path: Path, durability: str, synchronous: int) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability={durability}") as store:
        assert _pragma(store, "synchronous") == synchronous
        assert _pragma(store, "journal_mode") == "wal"


def test_full_durability_is_the_default(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        assert _pragma(store, "synchronous") == 2


def test_memory_store_is_private_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with holdfast.open("sqlite://:memory:") as one, holdfast.open("sqlite://:memory:") as two:
        one.cells.set("x", 1)
        assert two.cells.get("x") is None
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", ["folder", "missing folder", "not a database"])
def test_unusable_path_is_refused_with_its_name(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x.db"
    error: type[holdfast.StoreError] = holdfast.InvalidArgument
    if make == "folder":
        path.mkdir()
    elif make == "missing folder":
        path = tmp_path / "no" / "x.db"
    else:
        path.write_bytes(b"this is not a database, it is a text file" * 100)
        error = holdfast.Corrupt
    with pytest.raises(error, match=re.escape("x.db")):
        holdfast.open(f"sqlite:///{path}")


def test_tables_of_the_caller_are_untouched(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    mine = apsw.Connection(str(path))
    mine.execute("CREATE TABLE cells (mine TEXT); INSERT INTO cells VALUES ('kept')")
    mine.close()
    with holdfast.open(f"sqlite:///{path}") as store:
        store.cells.set("x", 1)
    mine = apsw.Connection(str(path))
    assert mine.execute("SELECT mine FROM cells").fetchall() == [("kept",)]
    mine.close()


# Migrations


def test_database_newer_than_the_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    holdfast.open(f"sqlite:///{path}").close()
    raw = apsw.Connection(str(path))
    raw.execute("INSERT INTO holdfast_migrations VALUES (9999, 'from_the_future', 0)")
    raw.close()
    with pytest.raises(holdfast.InvalidState, match=r"version 9999.*upgrade Holdfast") as caught:
        holdfast.open(f"sqlite:///{path}")
    assert caught.value.found == 9999


def test_migrate_false_refuses_an_empty_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(holdfast.InvalidState, match=r"does not exist.*holdfast\.migrate"):
        holdfast.open(url, config=StoreConfig(migrate=False))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.db").touch()
    with pytest.raises(holdfast.InvalidState, match=r"0001_cells.*holdfast\.migrate"):
        holdfast.open(url, config=StoreConfig(migrate=False))
    holdfast.migrate(f"{url}?migrate=false")
    with holdfast.open(f"{url}?migrate=false") as store:
        assert store.cells.set("x", 1) == 1


def test_failed_migration_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = load_migrations("holdfast.backends.sqlite")
    bad = [*good, Migration(9000, "bad", "CREATE TABLE half (x); SELECT * FROM nowhere")]
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.backends.sqlite.migrate.load_migrations", lambda _: bad)
        with pytest.raises(holdfast.Database, match="nowhere"):
            holdfast.open(f"sqlite:///{tmp_path}/x.db")
    raw = apsw.Connection(str(tmp_path / "x.db"))
    assert raw.execute("SELECT name FROM sqlite_schema").fetchall() == []
    raw.close()
    holdfast.open(f"sqlite:///{tmp_path}/x.db").close()


# The write lock


class _Holder:
    """Another connection, as another process would be, that holds the write lock."""

    def __init__(self, path: Path) -> None:
        self._raw = apsw.Connection(str(path))
        self._raw.set_busy_timeout(5000)
        self._raw.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._raw.execute("COMMIT")
        self._raw.close()


def test_write_waits_for_another_processs_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}?busy_timeout=30") as store:
        holder = _Holder(path)
        versions: list[int] = []
        thread = threading.Thread(target=lambda: versions.append(store.cells.set("x", 1)))
        thread.start()
        assert store.cells.get("x") is None  # readers do not wait
        holder.release()
        thread.join(30)
        assert versions == [1]


def test_lock_held_too_long_is_a_timeout_and_the_store_works_again(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with holdfast.open(f"sqlite:///{path}?busy_timeout=0.05") as store:
        holder = _Holder(path)
        with pytest.raises(holdfast.Timeout, match="write lock") as caught:
            store.cells.set("x", 1)
        assert caught.value.retryable
        assert not caught.value.outcome_unknown
        holder.release()
        assert store.cells.set("x", 1) == 1


def test_event_loop_goes_on_while_a_write_waits_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.db"

    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{path}?busy_timeout=30") as store:
            holder = _Holder(path)
            write = asyncio.ensure_future(store.cells.set("x", 1))
            for _ in range(20):  # a blocked loop would never get through these
                await asyncio.sleep(0.001)
                assert await store.cells.get("x") is None
            assert not write.done()
            holder.release()
            assert await asyncio.wait_for(write, 30) == 1

    asyncio.run(main())


# The writer's thread


def test_commit_thread_leaves_the_loop_free(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/x.db?commit=thread"
        async with holdfast.open_async(url) as store:
            loop_thread = threading.get_ident()
            writers: set[int] = set()
            _trace(store, lambda _sql: writers.add(threading.get_ident()))
            versions = await asyncio.gather(*(store.cells.set("x", n) for n in range(50)))
            assert sorted(versions) == list(range(1, 51))
            assert len(writers) == 1
            assert loop_thread not in writers

    asyncio.run(main())


def test_commit_inline_writes_on_the_loops_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/x.db") as store:
            writers: set[int] = set()
            _trace(store, lambda _sql: writers.add(threading.get_ident()))
            await asyncio.gather(*(store.cells.set(f"x{n}", n) for n in range(50)))
            assert writers == {threading.get_ident()}

    asyncio.run(main())


def test_one_transaction_for_all_that_is_queued_in_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/x.db") as store:
            statements: list[str] = []
            _trace(store, statements.append)
            await asyncio.gather(*(store.cells.set(f"x{n}", n) for n in range(200)))
            assert statements.count("COMMIT") == 1
            # Per cell: look, add; per batch: begin, clock and commit id, commit.
            assert len(statements) == 200 * 2 + 3

    asyncio.run(main())


# The log


def test_log_stays_bounded_while_writes_go_on(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?checkpoint_pages=100&durability=cache") as store:
        largest = 0
        for number in range(6000):
            store.cells.set(f"x{number % 50}", "v" * 500)
            largest = max(largest, (tmp_path / "x.db-wal").stat().st_size)
        checkpointer = store._backend._db._checkpointer  # type: ignore[attr-defined]  # noqa: SLF001
        assert checkpointer is not None
    # Without checkpoints 6,000 commits of at least two pages each would be over 48 MB.
    assert largest < 24_000_000
    assert not (tmp_path / "x.db-wal").exists()


def test_large_value_is_noticed_at_once(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        checkpointer = store._backend._db._checkpointer  # type: ignore[attr-defined]  # noqa: SLF001
        store.cells.set("x", 1)
        assert checkpointer._length == 0  # noqa: SLF001 - a small one is not worth a look
        store.cells.set("x", "v" * 1_000_000)
        assert checkpointer._length > 200  # noqa: SLF001


def test_writer_leaves_the_log_to_the_checkpointer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db?checkpoint_pages=100000&durability=cache"
    with holdfast.open(url) as store:
        for number in range(1000):
            store.cells.set(f"x{number % 50}", number)
        # By itself SQLite would copy it at 1,000 pages and begin it anew.
        assert (tmp_path / "x.db-wal").stat().st_size > 1500 * 4096


def test_close_from_another_thread_ends_the_checkpointer(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db")
    store.cells.set("x", 1)
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join(30)
    deadline = time.monotonic() + 30
    while {thread.name for thread in threading.enumerate()} != before:
        assert time.monotonic() < deadline, "the checkpoint thread did not end"


def test_forgotten_store_is_freed_with_a_warning(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store = holdfast.open(f"sqlite:///{tmp_path}/x.db")
    store.cells.set("x", 1)
    del store
    with pytest.warns(ResourceWarning, match="unclosed store"):
        gc.collect()
    assert {thread.name for thread in threading.enumerate()} == before
    assert not (tmp_path / "x.db-wal").exists()


def test_backup_under_load_is_one_moment(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db?durability=cache") as store:
        store.cells.set_many({f"x{n}": 0 for n in range(200)} | {"pad": "y" * 1_000_000})
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                store.cells.set_many({f"x{n}": number for n in range(200)})

        writer = threading.Thread(target=write)
        writer.start()
        store.backup(tmp_path / "copy.db")
        stop.set()
        writer.join(30)
    with holdfast.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert len({copy.cells.get(f"x{n}") for n in range(200)}) == 1
    assert not (tmp_path / "copy.db.partial").exists()


def test_interrupted_backup_leaves_no_file(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        store.cells.set("x", "y" * 100_000)

        def stop(_done: int, _total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.backup(tmp_path / "copy.db", progress=stop)
        assert sorted(file.suffix for file in tmp_path.iterdir()) == [".db", ".db-shm", ".db-wal"]
        with pytest.raises(holdfast.InvalidArgument, match="folder"):
            store.backup(tmp_path / "no" / "copy.db")

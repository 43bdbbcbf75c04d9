"""Sessions on SQLite leave no read transaction and no connection open, whatever ends them."""

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import apsw
import pytest

import holdfast
from holdfast import Capability, Store
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.sync.sessions import CellsSession

PATIENCE = 30
ROUNDS = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with holdfast.open(f"sqlite:///{path}") as store:
        store.cells.set("a", 0)
        yield store


def is_read(path: Path) -> bool:
    """True while somebody reads an older state: the log cannot be emptied then."""
    looker = apsw.Connection(str(path))
    try:
        ((busy, _, _),) = looker.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        looker.close()
    return bool(busy)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"


def begin(store: Store) -> CellsSession:
    """A session that has read, with a later commit in the log."""
    s = store.cells.session()
    s.get("a")
    store.cells.set("b", time.monotonic())
    return s


def commit(s: CellsSession) -> None:
    s.set("mine", 1)
    s.commit()


def commit_nothing(s: CellsSession) -> None:
    assert s.commit() == {}


def fail(s: CellsSession) -> None:
    with contextlib.suppress(ZeroDivisionError), s:
        raise ZeroDivisionError


ENDS: dict[str, Callable[[CellsSession], None]] = {
    "commit": commit,
    "nothing to commit": commit_nothing,
    "rollback": lambda s: s.rollback(),
    "exception": fail,
    "forgotten": lambda _: None,
}


def test_an_open_session_is_seen_as_a_reader(store: Store, path: Path) -> None:
    s = begin(store)
    assert is_read(path), "the test cannot tell an open snapshot"
    s.rollback()
    assert not is_read(path)


@pytest.mark.parametrize("end", ENDS)
def test_every_end_frees_the_snapshot(store: Store, path: Path, end: str) -> None:
    ENDS[end](begin(store))
    before = descriptors()
    for _ in range(ROUNDS):
        ENDS[end](begin(store))
    gc.collect()
    assert descriptors() <= before
    assert not is_read(path)


def test_a_conflict_frees_the_snapshot(store: Store, path: Path) -> None:
    s = begin(store)
    assert s.get("b") is None
    s.set("mine", 1)
    with pytest.raises(holdfast.Conflict):
        s.commit()
    assert not is_read(path)


def test_the_time_frees_the_snapshot_while_its_owner_does_nothing(store: Store, path: Path) -> None:
    before = descriptors()
    s = store.cells.session(max_age=0.05)
    s.get("a")
    store.cells.set("b", 1)
    until(lambda: not is_read(path), "the end of the snapshot")
    with pytest.raises(holdfast.Timeout):
        s.get("a")
    with pytest.raises(holdfast.Timeout):
        s.commit()
    s.rollback()
    assert descriptors() <= before + 3  # one reader, kept for the next


def test_a_loop_that_never_turns_does_not_make_it_younger(path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{path}") as store:
            s = store.cells.session(max_age=0.01)
            await s.get("a")
            began = time.monotonic()
            until(lambda: time.monotonic() > began + 0.01, "10 ms")
            with pytest.raises(holdfast.Timeout):
                await s.get("a")
            assert not is_read(path)

    asyncio.run(main())


def test_a_cancelled_task_frees_the_snapshot(path: Path) -> None:
    async def main() -> None:
        async with holdfast.open_async(f"sqlite:///{path}") as store:
            begun = asyncio.Event()

            async def hang() -> None:
                async with store.cells.session() as s:
                    await s.set("a", 1)
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(hang())
            await begun.wait()
            await store.cells.set("b", 1)
            assert is_read(path)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not is_read(path)
            assert await store.cells.list() == ["b"]

    asyncio.run(main())


def test_writers_do_not_wait_for_a_session(store: Store, path: Path) -> None:
    with store.cells.session() as s:
        s.get("a")
        with holdfast.open(f"sqlite:///{path}") as other:
            assert other.cells.set("a", 1) == 2
        assert s.get("a") == 0


def test_one_connection_for_everything_has_no_sessions(path: Path) -> None:
    with holdfast.open(f"sqlite:///{path}?locking=exclusive") as store:
        assert Capability.SESSIONS not in store.capabilities
        with pytest.raises(holdfast.Unsupported, match="sessions"):
            store.cells.session()


def test_a_session_that_outlives_its_store_holds_nothing(path: Path) -> None:
    before = descriptors()
    store = holdfast.open(f"sqlite:///{path}")
    s = store.cells.session()
    s.get("a")
    store.close()
    assert descriptors() == before
    # The last connection to close takes the log along.
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(holdfast.StoreClosed):
        s.get("a")


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("op_id", [None, uuid4()])
def test_a_commit_whose_answer_is_lost_has_one_effect(
    store: Store, monkeypatch: pytest.MonkeyPatch, op_id: UUID | None, *, happened: bool
) -> None:
    backend = store._backend  # noqa: SLF001 - an engine whose sync fails cannot be had otherwise
    assert isinstance(backend, SqliteBackend)
    writer = backend._db._writer  # noqa: SLF001
    execute = writer.execute
    failed: list[str] = []

    def fail_once(sql: str, *params: Any) -> Any:  # noqa: ANN401 - the driver's
        if sql != "COMMIT" or failed:
            return execute(sql, *params)
        failed.append(sql)
        if happened:
            execute(sql)
        raise apsw.IOError("planted")

    s = store.cells.session(op_id=op_id)
    s.set("a", s.get("a") + 1)
    s.set("new", len(s.list()))
    monkeypatch.setattr(writer, "execute", fail_once)
    assert s.commit() == {"a": 2, "new": 1}
    assert failed
    assert [cell.value for cell in store.cells.getv("a")] == [1, 0]
    assert [cell.value for cell in store.cells.getv("new")] == [1]

"""Opening a file: what is refused stays as it was, and the reason is told in our own words."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Corrupt, InvalidArgument, InvalidState, StoreConfig
from holdfast.backends.sql.migrate import load_migrations

NOBODY = 65534


def _sql(path: Path, sql: str) -> list[tuple[object, ...]]:
    raw = apsw.Connection(str(path))
    try:
        return raw.execute(sql).fetchall()
    finally:
        raw.close()


def _foreign(path: Path) -> None:
    _sql(path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")


def _foreign_with_a_log(path: Path) -> None:
    """As another program leaves it that was killed."""
    alive = path.with_name("alive.db")
    raw = apsw.Connection(str(alive))
    raw.execute("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)").fetchall()
    shutil.copy(alive, path)
    shutil.copy(f"{alive}-wal", f"{path}-wal")
    raw.close()
    alive.unlink()


def _foreign_in_wal(path: Path) -> None:
    _sql(path, "PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)")


def _newer(path: Path) -> None:
    holdfast.open(f"sqlite:///{path}").close()
    _sql(path, "INSERT INTO holdfast_migrations VALUES (9999, 'from_the_future', 0)")
    _sql(path, "PRAGMA journal_mode = DELETE")


def _text(path: Path) -> None:
    path.write_bytes(b"this is a text file\n" * 100)


def _one_byte(path: Path) -> None:
    path.write_bytes(b"x")


@pytest.mark.parametrize(
    ("make", "migrate", "error"),
    [
        (_foreign, False, InvalidState),
        (_foreign_in_wal, False, InvalidState),
        (_foreign_with_a_log, False, InvalidState),
        (Path.touch, False, InvalidState),
        (_newer, False, InvalidState),
        (_newer, True, InvalidState),
        (_text, False, Corrupt),
        (_text, True, Corrupt),
        (_one_byte, False, Corrupt),
        (_one_byte, True, Corrupt),
    ],
)
@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_refused_file_stays_as_it_was(
    tmp_path: Path,
    make: Callable[[Path], object],
    migrate: bool,  # noqa: FBT001 - a parameter of the test
    error: type[holdfast.StoreError],
    locking: str,
) -> None:
    make(tmp_path / "x.db")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(error, match=re.escape("x.db")):
        holdfast.open(
            f"sqlite:///{tmp_path}/x.db?locking={locking}", config=StoreConfig(migrate=migrate)
        )
    # The index of a log is made anew by whoever reads it.
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-shm" not in file.name}
    assert after == before


def test_illegal_namespace_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="namespace"):
        holdfast.open(f"sqlite:///{tmp_path}/x.db", "")
    with pytest.raises(InvalidArgument, match="namespace"):
        holdfast.open_async(f"sqlite:///{tmp_path}/x.db", "a\0b")
    assert list(tmp_path.iterdir()) == []


# Links and modes


@pytest.mark.parametrize("target", ["real.db", "folder/real.db"])
def test_file_that_a_dangling_link_names_is_private(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(target)
    mask = os.umask(0o022)
    try:
        with holdfast.open(f"sqlite:///{tmp_path}/first") as store:
            store.cells.set("x", 1)
            real = tmp_path / target
            files = [real, Path(f"{real}-wal"), Path(f"{real}-shm")]
            assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    finally:
        os.umask(mask)


def test_new_file_is_made_without_a_descriptor_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Closing one would drop the locks of another thread that has opened the file meanwhile.
    monkeypatch.delattr(os, "open")
    with holdfast.open(f"sqlite:///{tmp_path}/x.db") as store:
        assert store.cells.set("x", 1) == 1


# Reasons


def _folder(path: Path) -> str:
    path.mkdir()
    return str(path)


def _pipe(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def _loop(path: Path) -> str:
    path.symlink_to(path.name)
    return str(path)


def _link_to_bytes(path: Path) -> str:
    os.symlink(b"\xff.db", os.fsencode(path))  # noqa: PTH211 - a name that is not text
    return str(path)


def _below_a_file(path: Path) -> str:
    path.touch()
    return f"{path}/x.db"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_folder, "is a folder"),
        (_pipe, "not a regular file"),
        (_loop, "symbolic links"),
        (_below_a_file, "is not a folder"),
        (_link_to_bytes, "not UTF-8"),
        (lambda path: f"{path.parent}/no/x.db", r"the folder '.*/no' does not exist"),
        (lambda path: f"{path.parent}/~/x.db", "does not exist; ~ is not expanded"),
        (lambda path: f"{path.parent}/{'x' * 300}.db", "too long"),
        (lambda path: f"{path.parent}/{'x' * 5000}.db", "bytes, SQLite takes"),
        (lambda path: f"{path.parent}/{'./' * 3000}{'y' * 300}", "too long"),
        (lambda path: f"{path.parent}/\udcff.db", "not UTF-8"),
        (lambda path: f"{path}-wal", "SQLite's own"),
        (lambda path: f"{path}-shm", "SQLite's own"),
        (lambda path: f"{path}-journal", "SQLite's own"),
    ],
)
def test_path_that_cannot_be_is_an_invalid_argument(
    tmp_path: Path, make: Callable[[Path], str], words: str
) -> None:
    path = make(tmp_path / "x.db")
    with pytest.raises(InvalidArgument, match=words) as caught:
        holdfast.open(f"sqlite:///{path}")
    assert len(str(caught.value)) < 1500


def test_longest_path_works_and_one_more_byte_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 150) / ("b" * 100)
    folder.mkdir(parents=True)
    name = "c" * (504 - len(f"{folder}/"))
    with holdfast.open(f"sqlite:///{folder}/{name}") as store:
        store.cells.set("x", 1)
    with pytest.raises(InvalidArgument, match="505 bytes"):
        holdfast.open(f"sqlite:///{folder}/{name}c")
    assert [file.name for file in folder.iterdir()] == [name]


@pytest.mark.parametrize("name", ["ünï.db", "a b.db", "日本.db", "a'b\".db", "-x.db", "%41.db"])
def test_odd_file_names_are_kept(tmp_path: Path, name: str) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/{name.replace('%', '%25')}") as store:
        store.cells.set("x", 1)
        assert (tmp_path / name).exists()


# Rights, which root has always: the tests give theirs up in a child of their own.


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can enter; pytest's own are for the user alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _as_nobody(work: Callable[[], object]) -> str:
    """What the work, without the rights of root, says when it fails."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
        except holdfast.StoreError as exc:
            os.write(writing, f"{type(exc).__name__} {exc.retryable} {exc}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def _made(folder: Path) -> str:
    with holdfast.open(f"sqlite:///{folder}/x.db") as store:
        store.cells.set("x", 1)
    return f"sqlite:///{folder}/x.db"


def test_unreadable_file_is_unauthorized(public: Path) -> None:
    url = _made(public)
    (public / "x.db").chmod(0)
    said = _as_nobody(lambda: holdfast.open(url))
    assert re.match(r"Unauthorized False SQLite 'x\.db'.*no right to read and write", said), said


def test_unreadable_log_is_unauthorized(public: Path) -> None:
    url = _made(public)
    (public / "x.db").chmod(0o666)
    public.chmod(0o777)
    for name in ("x.db-wal", "x.db-shm"):
        (public / name).touch(mode=0)
        (public / name).chmod(0)
    said = _as_nobody(lambda: holdfast.open(url))
    assert re.match(r"Unauthorized False .*x\.db-(wal|shm)", said), said


def test_file_in_a_forbidden_folder_is_unauthorized(public: Path) -> None:
    url = _made(public)
    public.chmod(0)
    try:
        assert re.match(
            "Unauthorized False SQLite .*denied", _as_nobody(lambda: holdfast.open(url))
        )
    finally:
        public.chmod(0o755)


def test_new_file_in_a_folder_without_the_right_is_unauthorized(public: Path) -> None:
    public.chmod(0o555)
    said = _as_nobody(lambda: holdfast.open(f"sqlite:///{public}/x.db"))
    assert re.match("Unauthorized False SQLite .*denied", said), said


# A file that another program has locked


def test_event_loop_goes_on_while_opening_waits_and_may_be_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "x.db"
        _foreign(path)
        other = apsw.Connection(str(path))
        other.execute("BEGIN EXCLUSIVE")
        opening = asyncio.ensure_future(_opened(f"sqlite:///{path}?busy_timeout=30"))
        for _ in range(20):  # a blocked loop would never get through these
            await asyncio.sleep(0.001)
        assert not opening.done()
        opening.cancel()
        await asyncio.wait([opening], timeout=30)
        assert opening.cancelled()
        other.execute("COMMIT")
        assert other.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        other.close()

    asyncio.run(main())
    assert [file.name for file in tmp_path.iterdir()] == ["x.db"]


def test_file_locked_for_too_long_is_a_timeout(tmp_path: Path) -> None:
    _foreign(tmp_path / "x.db")
    other = apsw.Connection(f"{tmp_path}/x.db")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(holdfast.Timeout, match="another process"):
        holdfast.open(f"sqlite:///{tmp_path}/x.db?busy_timeout=0.01")
    other.execute("COMMIT")
    other.close()
    holdfast.open(f"sqlite:///{tmp_path}/x.db").close()


async def _opened(url: str) -> holdfast.AsyncStore:
    return await holdfast.open_async(url)


# A machine in a bad state


def test_folder_that_is_gone_is_an_invalid_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidArgument, match="No such file"):
        holdfast.open("sqlite:///x.db")
    with (
        holdfast.open("sqlite://:memory:") as store,
        pytest.raises(InvalidArgument, match="folder is gone"),
    ):
        store.backup("copy.db")


def test_memory_without_a_place_for_it_is_an_invalid_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no"))
    with pytest.raises(InvalidArgument, match="temporary folder"):
        holdfast.open("sqlite://:memory:")


def test_too_few_descriptors_are_unavailable_and_nothing_stays_open(tmp_path: Path) -> None:
    def opened() -> set[int]:
        return set(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 - as plain as can be

    def fails(extra: int) -> bool:
        load_migrations.cache_clear()  # so that they are read, which takes one as well
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[extra], hard))
        try:
            holdfast.open(f"sqlite:///{tmp_path}/x.db").close()
        except holdfast.Unavailable:
            return True
        else:
            return False
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    holdfast.open(f"sqlite:///{tmp_path}/x.db").close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = opened()
    free = sorted(set(range(len(before) + 30)) - before)  # with holes, if others hold files
    outcomes = [fails(extra) for extra in range(30)]
    assert outcomes[0]
    assert not outcomes[-1]
    assert opened() == before


def test_open_async_without_a_loop_says_so(tmp_path: Path) -> None:
    opening = holdfast.open_async(f"sqlite:///{tmp_path}/x.db").__await__()
    with pytest.raises(InvalidState, match="open_async is for asyncio: no running event loop"):
        next(opening)


# Settings that only SQLite can judge


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///x.db"])
def test_unknown_vfs_is_an_invalid_argument_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="vfs 'nope': no such vfs"):
        holdfast.open(f"{url}?vfs=nope")
    assert list(tmp_path.iterdir()) == []


def test_migrate_false_makes_no_file_through_a_vfs(tmp_path: Path) -> None:
    with pytest.raises(holdfast.StoreError):
        holdfast.open(f"sqlite:///{tmp_path}/x.db?vfs=unix&migrate=false")
    assert list(tmp_path.iterdir()) == []

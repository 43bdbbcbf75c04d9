"""A folder: what is synced in which order, what a failing disk leaves, who waits for whom."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import ClaimCheck, Database, InvalidArgument, NotFound, StoreError

ABC = "claim:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:3"
DIGEST = ABC.split(":")[2]
CALLS = ("open", "write", "fsync", "replace", "close")
WAIT_SECS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".holdfast.lock")


@contextlib.contextmanager
def watched(seen: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Tell of every call to the system that a put makes, before it is made."""

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> object:
            seen(name, args)
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        yield


def test_content_is_synced_before_its_name_and_the_name_before_the_answer(folder: Path) -> None:
    claims = ClaimCheck(folder)
    calls: list[str] = []

    def seen(name: str, args: tuple[Any, ...]) -> None:
        kind = ""
        if name == "fsync":
            kind = " folder" if stat.S_ISDIR(os.fstat(args[0]).st_mode) else " file"
        calls.append(name + kind)

    with watched(seen):
        claims.put(b"abc")
    told = [call for call in calls if call not in {"open", "close"}]
    assert told == ["write", "fsync file", "replace", "fsync folder"]


def test_new_folders_are_synced_into_the_ones_above(folder: Path) -> None:
    synced = []

    def seen(name: str, args: tuple[Any, ...]) -> None:
        if name == "fsync":
            synced.append(os.fstat(args[0]).st_ino)

    with watched(seen):
        ClaimCheck(folder / "a" / "b")
    above = [folder.parent, folder, folder / "a"]
    assert synced == [path.stat().st_ino for path in above]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_disk_that_fails_at_any_call_gives_a_typed_error_and_no_half_object(
    folder: Path, error: int
) -> None:
    claims = ClaimCheck(folder)
    failed = []
    for fatal in range(100):
        left = fatal

        def seen(name: str, _: tuple[Any, ...]) -> None:
            nonlocal left
            if left == 0:
                failed.append(name)
                left -= 1
                raise OSError(error, os.strerror(error))
            left -= 1

        try:
            with watched(seen):
                claims.put(b"abc")
            break
        except Database as exc:
            raised = exc
        assert isinstance(raised.__cause__, OSError)
        # Once it has its name it is there, though perhaps not after a power loss.
        assert names(folder) == [] or (names(folder) == [DIGEST] and raised.outcome_unknown)
        assert claims.put(b"abc") == ABC
        assert claims.get(ABC) == b"abc"
        claims.delete(ABC)
    assert set(failed) == set(CALLS), "void: not every call was reached"
    assert claims.get(ABC) == b"abc"


def test_short_writes_are_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ClaimCheck(folder)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:1000]))
        ref = claims.put(bytes(10_500))
    assert claims.get(ref) == bytes(10_500)


def test_objects_are_their_owners_only(folder: Path) -> None:
    claims = ClaimCheck(folder)
    claims.put(b"abc")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_folder_that_was_removed_is_not_found(folder: Path) -> None:
    claims = ClaimCheck(folder)
    (folder).rmdir()
    with pytest.raises(NotFound, match="No such file"):
        claims.put(b"abc")
    assert not claims.exists(ABC)


def test_relative_folder_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claims = ClaimCheck("claims")
    monkeypatch.chdir("/")
    claims.put(b"abc")
    assert names(tmp_path / "claims") == [DIGEST]


def test_link_to_elsewhere_is_not_followed_into_wrong_content(folder: Path) -> None:
    claims = ClaimCheck(folder)
    (folder / DIGEST).symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match=DIGEST):
        claims.get(ABC)
    claims.put(b"abc")
    assert not (folder / DIGEST).is_symlink()
    assert claims.get(ABC) == b"abc"


@pytest.mark.parametrize("path", ["", "a\0b", "a\ud800b", 7, None, b"claims", "s3:bucket/x"])
def test_what_names_no_place_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument, match="claim check"):
        ClaimCheck(path)


def test_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidArgument, match="claim check"):
            ClaimCheck(path)


def test_folder_has_no_options(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="no option 'key'"):
        ClaimCheck(folder, key="x")


# Prune and put of the same content


def age(folder: Path) -> None:
    os.utime(folder / DIGEST, (0, 0))


def test_put_again_is_new(folder: Path) -> None:
    claims = ClaimCheck(folder)
    claims.put(b"abc")
    age(folder)
    claims.put(b"abc")
    assert claims.prune(3600) == 0
    age(folder)
    assert claims.prune(3600) == 1


def test_object_put_again_after_prune_has_seen_it_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = ClaimCheck(folder)
    claims.put(b"abc")
    age(folder)
    flock = fcntl.flock

    def put_first(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            claims.put(b"abc")
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", put_first)
        assert claims.prune(3600) == 0
    assert claims.get(ABC) == b"abc"


def test_put_waits_while_prune_removes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ClaimCheck(folder)
    arrived = threading.Event()
    flock = fcntl.flock

    def tell(file: int, how: int) -> None:
        arrived.set()
        flock(file, how)

    writer = threading.Thread(target=claims.put, args=(b"abc",))
    with (folder / ".holdfast.lock").open("wb") as lock:
        flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", tell)
        writer.start()
        assert arrived.wait(WAIT_SECS), "put never asked for the lock"
        assert not claims.exists(ABC)
    writer.join(WAIT_SECS)
    assert claims.get(ABC) == b"abc"


def test_what_is_put_while_others_prune_is_never_lost(folder: Path) -> None:
    claims = ClaimCheck(folder)
    claims.put(b"abc")
    over = threading.Event()
    removed = []

    def prune() -> None:
        while not over.is_set():
            removed.append(claims.prune(3600))

    pruner = threading.Thread(target=prune)
    pruner.start()
    try:
        for _ in range(500):
            with contextlib.suppress(FileNotFoundError):
                age(folder)
            claims.put(b"abc")
            assert claims.exists(ABC)
    finally:
        over.set()
        pruner.join(WAIT_SECS)
    assert sum(removed), "void: nothing was pruned"

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import apsw
import pytest

from holdfast.testing.counting import CountingDisk, FileCounts
from holdfast.testing.disk import SECTOR_BYTES, Failure, Fault, FaultyDisk, Operation
from holdfast.testing.power import PowerLossDisk, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DATABASE = "/disk/a.db"
WAL = f"{DATABASE}-wal"
OLD, NEW = b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES
CRASHES = 300


def open_file(
    disk: FaultyDisk, path: str = DATABASE, kind: int = apsw.SQLITE_OPEN_MAIN_DB
) -> apsw.VFSFile:
    flags = kind | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
    return apsw.VFSFile(disk.name, path, [flags, 0])


def open_database(disk: FaultyDisk, *, synchronous: str = "full") -> apsw.Connection:
    connection = apsw.Connection(DATABASE, vfs=disk.name)
    connection.pragma("locking_mode", "exclusive")
    assert connection.pragma("journal_mode", "wal") == "wal"
    connection.pragma("synchronous", synchronous)
    return connection


def crashes(disk: PowerLossDisk) -> Iterator[dict[str, bytes]]:
    """What many power cuts at this same moment leave."""
    return (disk.crash(Random(seed)) for seed in range(CRASHES))


def survivors(disk: PowerLossDisk) -> list[bytes]:
    return [image[DATABASE] for image in crashes(disk)]


def test_synced_data_survives_every_crash() -> None:
    disk = PowerLossDisk("synced", {DATABASE: OLD})
    file = open_file(disk)
    file.xWrite(NEW, 0)
    file.xWrite(NEW, SECTOR_BYTES)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert set(survivors(disk)) == {NEW + NEW}


def test_unsynced_write_may_survive_or_vanish() -> None:
    disk = PowerLossDisk("unsynced", {DATABASE: OLD})
    open_file(disk).xWrite(NEW, 0)
    assert {OLD, NEW} < set(survivors(disk))
    assert (disk.unsynced(DATABASE), disk.unsynced(WAL)) == (SECTOR_BYTES, 0)


def test_torn_write_leaves_head_or_tail_and_nothing_beside_it() -> None:
    disk = PowerLossDisk("torn", {DATABASE: OLD})
    open_file(disk).xWrite(NEW[:1000], 1000)
    torn = set(survivors(disk)) - {OLD, OLD[:1000] + NEW[:1000] + OLD[2000:]}
    assert {survivor[:1000] + survivor[2000:] for survivor in torn} == {OLD[1000:]}
    written = {survivor[1000:2000] for survivor in torn}
    assert {part.count(b"no") + part.count(b"on") for part in written} == {1}
    assert {part[:1] for part in written} == {b"o", b"n"}


def test_later_write_may_survive_without_an_earlier_one() -> None:
    disk = PowerLossDisk("reordered", {DATABASE: OLD + OLD})
    file = open_file(disk)
    file.xWrite(NEW, 0)
    file.xWrite(NEW, SECTOR_BYTES)
    assert {OLD + OLD, NEW + OLD, OLD + NEW, NEW + NEW} < set(survivors(disk))


def test_sector_shows_its_writes_in_their_order() -> None:
    disk = PowerLossDisk("versions", {DATABASE: b"0"})
    file = open_file(disk)
    for version in (b"1", b"2", b"3"):
        file.xWrite(version, 0)
    assert set(survivors(disk)) == {b"0", b"1", b"2", b"3"}


def test_grown_file_may_hold_zeros_or_garbage_where_data_was_lost() -> None:
    disk = PowerLossDisk("grown", {DATABASE: OLD})
    open_file(disk).xWrite(NEW, 2 * SECTOR_BYTES)
    tails = {survivor[SECTOR_BYTES:] for survivor in survivors(disk)}
    known = {b"", bytes(2 * SECTOR_BYTES), bytes(SECTOR_BYTES) + NEW}
    assert known < tails
    assert any(len(tail) == 2 * SECTOR_BYTES for tail in tails - known)


def test_truncate_happens_wholly_or_not_at_all_and_in_its_order() -> None:
    disk = PowerLossDisk("truncated", {DATABASE: OLD + OLD})
    file = open_file(disk)
    file.xTruncate(SECTOR_BYTES)
    assert set(survivors(disk)) == {OLD + OLD, OLD}
    file.xWrite(b"n", SECTOR_BYTES)
    assert OLD + b"n" + OLD[1:] not in set(survivors(disk))
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert set(survivors(disk)) == {OLD + b"n"}


def test_new_file_may_be_missing_until_a_new_log_syncs_the_directory() -> None:
    disk = PowerLossDisk("created")
    file = open_file(disk)
    file.xWrite(NEW, 0)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert {DATABASE in image for image in crashes(disk)} == {True, False}
    open_file(disk, WAL, apsw.SQLITE_OPEN_WAL).xSync(apsw.SQLITE_SYNC_NORMAL)
    assert {frozenset(image.items()) for image in crashes(disk)} == {
        frozenset({(DATABASE, NEW), (WAL, b"")})
    }


@pytest.mark.parametrize(("syncdir", "may_be_back"), [(False, {True, False}), (True, {False})])
def test_deleted_file_may_come_back_until_the_directory_is_synced(
    *, syncdir: bool, may_be_back: set[bool]
) -> None:
    disk = PowerLossDisk("deleted", {DATABASE: OLD})
    disk.xDelete(DATABASE, syncdir)
    assert {DATABASE in image for image in crashes(disk)} == may_be_back


def test_failed_sync_loses_its_writes_for_good() -> None:
    disk = PowerLossDisk("fsyncgate", {DATABASE: OLD})
    file = open_file(disk)
    file.xWrite(NEW, 0)
    disk.fault = Fault("sync", 1)
    with pytest.raises(apsw.IOError):
        file.xSync(apsw.SQLITE_SYNC_NORMAL)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert file.xRead(SECTOR_BYTES, 0) == NEW
    assert set(survivors(disk)) == {OLD}


def test_power_cut_fails_its_change_and_everything_after_it() -> None:
    disk = PowerLossDisk("cut", {DATABASE: OLD})
    file = open_file(disk)
    disk.cut_power_at(disk.changes + 2)
    file.xWrite(b"1", 0)
    calls: list[Callable[[], object]] = [
        lambda: file.xWrite(b"2", 0),
        lambda: file.xWrite(b"3", 0),
        lambda: file.xSync(apsw.SQLITE_SYNC_NORMAL),
        lambda: file.xTruncate(0),
        lambda: file.xRead(1, 0),
        lambda: open_file(disk),
    ]
    for call in calls:
        with pytest.raises(apsw.Error):
            call()
    assert {survivor[:1] for survivor in survivors(disk)} == {b"o", b"1"}


def test_crash_is_repeated_by_its_seed() -> None:
    disk = PowerLossDisk("seeded")
    connection = open_database(disk, synchronous="off")
    connection.execute("CREATE TABLE t AS SELECT randomblob(20000) AS x")
    assert disk.crash(Random(1)) == disk.crash(Random(1))
    assert len({frozenset(image.items()) for image in crashes(disk)}) > CRASHES / 10


def test_committed_row_survives_in_a_new_disk_and_in_a_folder(tmp_path: Path) -> None:
    disk = PowerLossDisk("before")
    connection = open_database(disk)
    connection.execute("CREATE TABLE t(x)")
    connection.execute("INSERT INTO t VALUES ('kept')")
    image = disk.crash(Random(1))
    after = open_database(PowerLossDisk("after", image))
    save(image, tmp_path)
    for reopened in (after, apsw.Connection(str(tmp_path / "a.db"))):
        assert list(reopened.execute("SELECT x FROM t")) == [("kept",)]
        reopened.close()


@pytest.mark.parametrize(
    ("operation", "failure", "code", "system_errno"),
    [
        ("open", "EIO", apsw.SQLITE_CANTOPEN, errno.EIO),
        ("open", "ENOSPC", apsw.SQLITE_CANTOPEN, errno.ENOSPC),
        ("read", "EIO", apsw.SQLITE_IOERR_READ, errno.EIO),
        ("write", "EIO", apsw.SQLITE_IOERR_WRITE, errno.EIO),
        ("write", "ENOSPC", apsw.SQLITE_FULL, errno.ENOSPC),
        ("sync", "EIO", apsw.SQLITE_IOERR_FSYNC, errno.EIO),
        ("sync", "ENOSPC", apsw.SQLITE_IOERR_FSYNC, errno.ENOSPC),
        ("truncate", "EIO", apsw.SQLITE_IOERR_TRUNCATE, errno.EIO),
        ("delete", "EIO", apsw.SQLITE_IOERR_DELETE, errno.EIO),
    ],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_nth_operation_fails_once_or_from_then_on(
    operation: Operation, failure: Failure, code: int, system_errno: int, *, persistent: bool
) -> None:
    disk = FaultyDisk("faulty", {DATABASE: OLD, "/disk/1": b"", "/disk/2": b"", "/disk/3": b""})
    file = open_file(disk)
    disk.fault = Fault(operation, disk.operations[operation] + 2, failure, persistent)
    calls: dict[Operation, Callable[[int], object]] = {
        "open": lambda _: open_file(disk),
        "read": lambda _: file.xRead(1, 0),
        "write": lambda _: file.xWrite(NEW, 0),
        "sync": lambda _: file.xSync(apsw.SQLITE_SYNC_NORMAL),
        "truncate": lambda _: file.xTruncate(0),
        "delete": lambda n: disk.xDelete(f"/disk/{n}", False),
    }
    failed = []
    for n in (1, 2, 3):
        try:
            calls[operation](n)
        except apsw.Error as error:
            codes = vars(error)  # the stubs do not know the attributes
            failed.append((n, codes["result"], codes["extendedresult"], disk.xGetLastError()[0]))
    expected = [(n, code & 0xFF, code, system_errno) for n in ((2, 3) if persistent else (2,))]
    assert failed == expected


def test_failed_write_leaves_its_first_half() -> None:
    disk = FaultyDisk("half", {DATABASE: OLD})
    disk.fault = Fault("write", 1)
    with pytest.raises(apsw.IOError):
        open_file(disk).xWrite(NEW, 0)
    half = SECTOR_BYTES // 2
    assert disk.image() == {DATABASE: NEW[:half] + OLD[half:]}


def test_corrupting_fault_writes_wrong_bytes_and_says_nothing() -> None:
    disk = FaultyDisk("corrupting", {DATABASE: OLD})
    disk.fault = Fault("write", 1, "corrupt")
    open_file(disk).xWrite(NEW, 0)
    assert disk.image() == {DATABASE: bytes(0xFF - byte for byte in NEW)}


def test_second_connection_finds_the_file_locked() -> None:
    disk = FaultyDisk("locked")
    first = open_database(disk)
    first.execute("CREATE TABLE t(x)")
    second = apsw.Connection(DATABASE, vfs=disk.name)
    second.pragma("locking_mode", "exclusive")
    with pytest.raises(apsw.BusyError):
        second.execute("SELECT 1 FROM t")
    first.close()
    assert list(second.execute("SELECT count(*) FROM t")) == [(0,)]
    second.close()


@pytest.mark.parametrize(("synchronous", "syncs"), [("full", 10), ("normal", 0), ("off", 0)])
def test_counts_one_sync_per_durable_commit(synchronous: str, syncs: int) -> None:
    disk = FaultyDisk("counted")
    connection = open_database(disk, synchronous=synchronous)
    connection.execute("CREATE TABLE t(x)")
    before = disk.counts[WAL]
    start = FileCounts(before.syncs, before.writes, before.bytes_written)
    for _ in range(10):
        connection.execute("INSERT INTO t VALUES (1)")
    spent = disk.counts[WAL] - start
    # A WAL frame is written as its header and its page.
    assert spent == FileCounts(syncs, 20, 10 * (24 + SECTOR_BYTES))


def test_counting_disk_counts_real_files_of_several_connections(tmp_path: Path) -> None:
    disk = CountingDisk("counting")
    path = str(tmp_path / "a.db")
    connections = [apsw.Connection(path, vfs=disk.name) for _ in range(2)]
    for connection in connections:
        assert connection.pragma("journal_mode", "wal") == "wal"
        connection.pragma("synchronous", "full")
        connection.execute("CREATE TABLE IF NOT EXISTS t(x)")
    before, all_before = disk.counts()[f"{path}-wal"], disk.total()
    for connection in connections * 5:
        connection.execute("INSERT INTO t VALUES (1)")
    assert disk.counts()[f"{path}-wal"] - before == FileCounts(10, 20, 10 * (24 + SECTOR_BYTES))
    assert disk.total() - all_before == FileCounts(10, 20, 10 * (24 + SECTOR_BYTES))
    for connection in connections:
        connection.close()

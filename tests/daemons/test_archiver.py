"""The archiver as processes: killed, several at once, stopped, short of disk."""

from __future__ import annotations

import asyncio
import gzip
import random
import select
import signal
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.archive import ArchiveFolder
from tests.daemons.processes import (
    PATIENCE_SECS,
    archived,
    command,
    heard,
    kill,
    pass_time,
    publish,
    start,
    totals,
    until,
)

KILLS = 12
MESSAGES = 600


class Trial:
    """One archive whose archivers are killed, one after the other."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.store = holdfast.open(url)
        self.published = publish(self.store, MESSAGES)
        self.torn = self.in_flight = 0

    def kill_one(self, role: str, rng: random.Random, *, halfway: bool = False) -> None:
        """Kill an archiver after some batches: halfway through a write, or at any moment."""
        batches = rng.randrange(1, 4)
        process = start(role, self.url, str(self.folder), batches if halfway else None)
        for _ in range(batches):
            assert int(heard(process)) > 0
        if halfway:
            assert heard(process) == "half"
        else:
            # Not to wait for anything: the moment of the kill is to be a random one.
            select.select([], [], [], rng.uniform(0, 0.01))
        kill(process)
        self.torn += any(_is_torn(path) for path in self.folder.glob("*.gz"))
        self.check()
        pass_time(self.url, 61)  # what the dead one held is delivered again

    def check(self) -> None:
        """Nothing is done that is not in a file."""
        status = self.store.transport.status("archiver")
        self.in_flight += status.delivered > 0
        done = len(self.published) - status.waiting - status.delivered
        found = archived(self.folder)
        assert len(found) == len(set(found)), "read twice"
        assert set(found) <= self.published
        assert len(found) >= done, f"{done} are done, {len(found)} are in the files"


def _is_torn(path: Path) -> bool:
    try:
        gzip.decompress(path.read_bytes())
    except EOFError:
        return True
    return False


def test_kill_loses_nothing_and_breaks_no_file(url: str, tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    rng = random.Random(seed)
    trial = Trial(url, tmp_path / "archive")
    for number in range(KILLS):
        trial.kill_one("archive", rng, halfway=number % 3 == 0)
    activity = f"void: {trial.torn} torn ends, {trial.in_flight} batches in flight, seed {seed}"
    assert trial.in_flight >= KILLS / 4, activity
    assert trial.torn >= KILLS / 3, activity
    with trial.store:
        archiver = holdfast.Archiver(trial.store, trial.folder)
        archiver.drain()
        assert archiver.totals.messages > 0, "void: the killed ones did it all"
        assert archiver.status().group == holdfast.GroupStatus(0, 0, 0, None)
    assert set(archived(trial.folder)) == trial.published
    files = list(trial.folder.iterdir())
    assert len({path.name.partition(".")[0] for path in files}) == len(files), "one file a day"
    assert not any(map(_is_torn, files))


def test_archiver_that_acks_first_is_found(tmp_path: Path) -> None:
    trial = Trial(f"sqlite:///{tmp_path}/store.db", tmp_path / "archive")

    def kill_often() -> None:
        rng = random.Random(7)
        for number in range(KILLS):
            trial.kill_one("ack_first", rng, halfway=number % 3 == 2)

    with trial.store, pytest.raises(AssertionError, match="are done"):
        kill_often()


def test_archivers_at_once_share_the_work_and_stop_when_asked(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with holdfast.open(url) as store:
        published = publish(store, 50)
        processes = [command("archive", url, folder, "--json", "--batch", 5) for _ in range(2)]

        def both_have_written() -> bool:
            published.update(publish(store, 20))
            return len(list(folder.glob("*.gz"))) == 2

        until(both_have_written)
        until(lambda: store.transport.status("archiver").oldest_at is None)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        done = [totals(process) for process in processes]
        assert store.transport.status("archiver") == holdfast.GroupStatus(0, 0, 0, None)
    found = archived(folder)
    assert sorted(found) == sorted(published)
    assert sum(each["messages"] for each in done) == len(published)
    assert min(each["messages"] for each in done) > 0
    assert [(each["waiting"], each["lag_secs"]) for each in done] == [(0, 0)] * 2
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert sum(each["bytes"] for each in done) == size


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_archiver_that_waits_ends_by_a_signal(url: str, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "archive"
    with holdfast.open(url) as store:
        process = command("archive", url, folder)
        until(lambda: store.transport.list_groups() == ["archiver"])
        publish(store, 1)
        until(lambda: len(archived(folder)) == 1)
        process.send_signal(getattr(signal, name))
        output, errors = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0, errors
    assert output.startswith("messages 1, bytes ")
    assert "Traceback" not in errors


def test_file_that_may_not_grow_leaves_nothing_done(postgres_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    rng = random.Random(1)
    with holdfast.open(postgres_url) as store:
        for _ in range(5):
            store.transport.publish("gbe.tasks.mail.terminal", rng.randbytes(300_000))
        process = start("archive_with_little_room", postgres_url, str(folder), 1_000_000)
        assert heard(process) == "database True File too large"
        whole = int(heard(process))
        assert process.wait(PATIENCE_SECS) == 0
        kill(process)
        assert 0 < whole < 5
        (path,) = folder.iterdir()
        assert gzip.decompress(path.read_bytes()).count(b"\n") == whole
        status = store.transport.status("archiver")
        assert status.waiting + status.delivered == 5 - whole
        assert totals(command("archive", postgres_url, folder, "--once", "--json"))["messages"] == (
            5 - whole
        )
    assert len(archived(folder)) == 5
    assert [path.name] == [each.name for each in folder.iterdir()]


def test_files_are_written_off_the_loops_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    real = ArchiveFolder.add

    def add(self: ArchiveFolder, messages: list[holdfast.Message]) -> int:
        threads.append(threading.get_ident())
        return real(self, messages)

    async def archive() -> int:
        async with holdfast.open_async(f"sqlite:///{tmp_path}/store.db") as store:
            await store.transport.publish("gbe.tasks.mail.terminal", 1)
            return await holdfast.AsyncArchiver(store, tmp_path / "archive").archive()

    monkeypatch.setattr(ArchiveFolder, "add", add)
    assert asyncio.run(archive()) == 1
    assert len(threads) == 1
    assert threads != [threading.get_ident()]

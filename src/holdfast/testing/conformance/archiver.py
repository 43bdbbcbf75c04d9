"""Specs for the archiver: what is done is in a file, and read once."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Capability, Corrupt, Database, InvalidArgument, Message, read_archive
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

ARCHIVER = needs(Capability.TRANSPORT)
CLOCK = needs(Capability.TRANSPORT, Capability.MOVABLE_CLOCK)
SUBJECT = "gbe.tasks.mail.terminal"
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an archive can be: there is nothing else."""
    return tmp_path / "archive"


async def _publish(world: World, *payloads: object) -> list[str]:
    return [await world.store.transport.publish(SUBJECT, payload) for payload in payloads]


def _payloads(folder: Path) -> list[object]:
    return [message.payload for message in read_archive(folder)]


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@ARCHIVER
async def test_archived_messages_are_read_as_they_were_published(
    world: World, folder: Path
) -> None:
    payload = {"state": "completed", "bytes": b"\0\xff", "list": [1, 2.5, None], "word": "ä\n"}
    sent = await world.store.transport.publish(SUBJECT, payload, message_id="m-1", trace_id="t")
    await world.store.transport.publish("gbe.tasks.mail.progress", "not for the archive")
    async with world.store.transport.consumer("other", "gbe.>", from_start=True) as consumer:
        delivery = await consumer.next(0)
        assert delivery is not None
        archiver = world.archiver(folder / "a" / "b")
        assert await archiver.archive() == 1
        assert list(read_archive(folder / "a" / "b")) == [delivery.message]
    message = delivery.message
    assert message == Message(sent, SUBJECT, message.timestamp, "t", payload)
    name = f"{message.timestamp:%Y-%m-%d}.0.jsonl.gz"
    assert _files(folder / "a" / "b") == [name]
    line = gzip.decompress((folder / "a" / "b" / name).read_bytes())
    assert line.startswith(b'{"message_id":"m-1","subject":"gbe.tasks.mail.terminal","timestamp":"')
    assert line.count(b"\n") == 1


@ARCHIVER
async def test_a_message_is_done_once_it_is_in_a_file(world: World, folder: Path) -> None:
    await _publish(world, *range(5))
    archiver = world.archiver(folder, batch=2)
    assert (await archiver.status()).group.waiting == 0
    assert [await archiver.archive() for _ in range(4)] == [2, 2, 1, 0]
    status = await archiver.status()
    assert (status.group.waiting, status.group.delivered, status.lag) == (0, 0, timedelta(0))
    assert (status.totals.messages, status.totals.batches) == (5, 3)
    assert status.totals.bytes == _only_file(folder).stat().st_size
    assert _payloads(folder) == list(range(5))


@CLOCK
async def test_the_lag_is_the_age_of_the_oldest_message(world: World, folder: Path) -> None:
    archiver = world.archiver(folder, batch=1)
    await _publish(world, 1)
    assert await archiver.archive() == 1
    await _publish(world, 2)
    await world.move_clock(100)
    await _publish(world, 3)
    status = await archiver.status()
    assert status.group.waiting == 2
    assert timedelta(seconds=100) <= status.lag < timedelta(seconds=160)
    metrics = await archiver.metrics()
    assert 100 <= metrics.pop("holdfast_archiver_lag_seconds") < 160
    assert metrics == {
        "holdfast_archiver_messages_total": 1.0,
        "holdfast_archiver_bytes_total": status.totals.bytes,
        "holdfast_archiver_batches_total": 1.0,
        "holdfast_archiver_waiting": 2.0,
    }
    assert await archiver.archive() == 1
    assert (await archiver.status()).lag < timedelta(seconds=60)


@CLOCK
async def test_each_day_has_its_file(world: World, folder: Path) -> None:
    archiver = world.archiver(folder)
    days = []
    for number in range(3):
        days.append((await world.store.now()).date())
        await _publish(world, number)
        if number:  # the first two days come in one batch
            await archiver.archive()
        await world.move_clock(DAY)
    assert _files(folder) == [f"{day}.0.jsonl.gz" for day in days]
    assert _payloads(folder) == [0, 1, 2]
    for number, day in enumerate(days):
        assert [message.payload for message in read_archive(folder, day)] == [number]
    assert list(read_archive(folder, days[0] - timedelta(days=1))) == []


@ARCHIVER
async def test_archivers_at_once_have_files_of_their_own(world: World, folder: Path) -> None:
    sent = await _publish(world, *range(40))
    archivers = [world.archiver(folder, batch=3) for _ in range(4)]
    first = [await archiver.archive() for archiver in archivers]
    assert first == [3] * 4
    assert len(_files(folder)) == 4

    async def empty(at: int) -> None:
        while await archivers[at].archive():
            pass

    await world.together(empty(at) for at in range(4))
    assert sorted(message.message_id for message in read_archive(folder)) == sorted(sent)
    assert sum(archiver.totals.messages for archiver in archivers) == 40
    for archiver in archivers:
        archiver.close()
    await _publish(world, 41)
    await world.archiver(folder).archive()
    assert len(_files(folder)) == 4, "a file that nobody writes to is taken over"


@CLOCK
async def test_a_batch_that_is_written_twice_is_read_once(world: World, folder: Path) -> None:
    await _publish(world, 1, 2)
    late = world.store.transport.consumer(
        "archiver", "gbe.tasks.*.terminal", prefetch=2, from_start=True, ack_timeout=1
    )
    assert len(await late.next_batch(0)) == 2  # written, say, and died before the ack
    await world.move_clock(2)
    archiver = world.archiver(folder)
    assert await archiver.archive() == 2
    path = _only_file(folder)
    path.write_bytes(path.read_bytes() * 2)
    assert _payloads(folder) == [1, 2]


@ARCHIVER
@pytest.mark.parametrize("tail", ["half", "byte", "zeros", "half and zeros"])
async def test_a_torn_end_is_cut_off_and_never_read(world: World, folder: Path, tail: str) -> None:
    await _publish(world, 1)
    first = world.archiver(folder)
    await first.archive()
    first.close()
    path = _only_file(folder)
    whole = path.read_bytes()
    half = whole[: len(whole) // 2]
    ends = {"half": half, "byte": whole[:1], "zeros": bytes(900), "half and zeros": half + bytes(9)}
    path.write_bytes(whole + ends[tail])
    assert _payloads(folder) == [1]
    await _publish(world, 2)
    await world.archiver(folder).archive()
    assert path.read_bytes().startswith(whole)
    assert _payloads(folder) == [1, 2]
    assert gzip.decompress(path.read_bytes()).count(b"\n") == 2


@ARCHIVER
async def test_a_damaged_file_is_left_alone_and_reported(world: World, folder: Path) -> None:
    archiver = world.archiver(folder, batch=1)
    await _publish(world, 1, 2, 3)
    await archiver.archive()
    path = _only_file(folder)
    first = path.stat().st_size
    while await archiver.archive():
        pass
    archiver.close()
    data = bytearray(path.read_bytes())
    data[first + 20] ^= 0xFF
    path.write_bytes(data)
    await _publish(world, 4)
    await world.archiver(folder).archive()
    assert path.read_bytes() == data
    assert len(_files(folder)) == 2
    read = read_archive(folder)
    assert next(read).payload == 1
    with pytest.raises(Corrupt, match=f"damaged at byte {first}"):
        next(read)


@ARCHIVER
async def test_a_file_that_is_moved_away_is_not_written_to(world: World, folder: Path) -> None:
    archiver = world.archiver(folder)
    await _publish(world, 1)
    await archiver.archive()
    path = _only_file(folder)
    path.rename(folder.with_name("taken"))
    size = folder.with_name("taken").stat().st_size
    await _publish(world, 2)
    await archiver.archive()
    assert folder.with_name("taken").stat().st_size == size
    assert _payloads(folder) == [2]


@ARCHIVER
@pytest.mark.parametrize("call", ["pwrite", "fsync"])
async def test_a_full_disk_leaves_nothing_done_and_the_file_whole(
    world: World, folder: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = world.archiver(folder, retry=0.01)
    await _publish(world, 1)
    await archiver.archive()
    path = _only_file(folder)
    before = path.read_bytes()
    real_write = os.pwrite

    def refuse(descriptor: int, data: Sequence[int] = b"", at: int = 0) -> int:
        if call == "pwrite" and at == len(before):
            return real_write(descriptor, data[:10], at)  # type: ignore[arg-type]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await _publish(world, 2)
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.archive.folder.os.{call}", refuse)
        with pytest.raises(Database, match="No space left on device") as caught:
            await archiver.archive()
    assert caught.value.retryable
    assert path.read_bytes() == before
    group = (await archiver.status()).group
    assert group.waiting + group.delivered == 1
    assert await archiver.archive() == 1
    assert _payloads(folder) == [1, 2]
    assert len(_files(folder)) == 1


@ARCHIVER
async def test_a_message_is_done_only_when_its_file_has_a_durable_name(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = world.archiver(folder)
    await _publish(world, 1)

    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.archive.folder.sync_folder", refuse)
        with pytest.raises(Database, match="Input/output error"):
            await archiver.archive()
    group = (await archiver.status()).group
    assert group.waiting + group.delivered == 1
    assert await archiver.archive() == 1
    assert _payloads(folder) == [1]


@ARCHIVER
async def test_a_running_archiver_goes_on_after_an_error(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = world.archiver(folder, retry=0.01, report=0.01)
    failures = iter(range(3))
    real = os.fsync

    def refuse_at_first(descriptor: int) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    async def stop() -> None:
        while archiver.totals.messages < 1:
            await world.store.pause(0.01)
        archiver.stop()

    await _publish(world, 1)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.archive.folder.os.fsync", refuse_at_first)
        await world.together([archiver.run(), stop()])
    assert next(failures, None) is None
    assert _payloads(folder) == [1]


@ARCHIVER
async def test_a_stopped_archiver_has_done_what_it_took(world: World, folder: Path) -> None:
    archiver = world.archiver(folder, batch=2)
    await _publish(world, *range(5))

    async def stop() -> None:
        while archiver.totals.messages < 5:
            await world.store.pause(0.01)
        archiver.stop()

    await world.together([archiver.run(), stop()])
    group = (await archiver.status()).group
    assert (group.waiting, group.delivered) == (0, 0)
    assert _payloads(folder) == list(range(5))


@ARCHIVER
async def test_an_archivers_settings_are_checked(world: World, folder: Path) -> None:
    for settings in (
        {"batch": 0},
        {"group": "a:b"},
        {"subjects": ()},
        {"subjects": "a b"},
        {"retry": 0},
        {"report": -1},
    ):
        with pytest.raises(InvalidArgument):
            world.archiver(folder, **settings)
    with pytest.raises(InvalidArgument):
        world.archiver(7)  # type: ignore[arg-type]
    await _publish(world, 1)
    with pytest.raises(InvalidArgument, match="File exists"):
        await world.archiver(Path(__file__)).archive()


@ARCHIVER
async def test_consumers_take_and_answer_batches(world: World) -> None:
    await _publish(world, *range(5))
    consumer = world.store.transport.consumer("batches", SUBJECT, prefetch=3, from_start=True)
    batch = await consumer.next_batch(0)
    assert [delivery.message.payload for delivery in batch] == [0, 1, 2]
    assert await consumer.ack_batch(batch[:1]) == 1
    assert await consumer.nak_batch(batch[1:]) == 2
    again = await consumer.next_batch(0)
    assert await consumer.ack_batch(batch) == 0
    assert sorted(delivery.message.payload for delivery in again) == [1, 2, 3]
    assert [delivery.number for delivery in again if delivery.message.payload < 3] == [2, 2]
    assert await consumer.ack_batch(again) == 3
    assert len(await consumer.next_batch(0)) == 1
    assert await consumer.next_batch(0) == []
    assert await consumer.ack_batch([]) == 0

"""Specs for runs in files: export, import, archive; a run that is deleted while others append."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast import (
    AsyncStore,
    Capability,
    Conflict,
    Corrupt,
    Event,
    InvalidArgument,
    InvalidState,
    NotFound,
    StoreConfig,
    Unsupported,
)
from holdfast.events import CONTRACT_VERSION, Exported, Imported
from holdfast.testing.conformance.events import event, new
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

EVENTS = needs(Capability.EVENTS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for files, which holds nothing else."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


async def fill(store: AsyncStore) -> None:
    """Two runs, and all that an event can have."""
    full = Event(
        "r",
        "RunStarted",
        "k0",
        {"raw": b"\xff", "text": "grün \n\x00", "$bytes": 1},
        step_id="load",
        logical_attempt_id=2,
        engine_attempt_id="e-3",
        event_id=str(uuid4()),
        emitted_at=datetime(2026, 2, 3, 4, 5, 6, 789012, UTC),
        adapter_version="1.2",
        engine_run_ref={"workflow": b"w"},
        caused_by_signal_id="s-1",
        parent_event_id="p-1",
    )
    await store.events.append_event(full)
    await store.events.append_events(
        [event(f"k{number}", event_data=number) for number in range(1, 700)]
    )
    await store.events.append_event(event("end", event_type="RunCompleted"))
    await store.events.append_events([event("a", "other%/ä"), event("b", "other%/ä")])


def files(folder: Path) -> list[Path]:
    """What is in the folder."""
    return sorted(folder.iterdir())


async def contents(store: AsyncStore) -> dict[str, list[Event]]:
    """Everything but when it was persisted."""
    return {
        run_id: [
            msgspec.structs.replace(one, persisted_at=None)
            for one in await store.events.fetch_events(run_id, limit=10_000)
        ]
        for run_id in await store.events.list_runs()
    }


async def exported(store: AsyncStore) -> bytes:
    """All runs as a file."""
    file = io.BytesIO()
    await store.events.export_runs(file)
    return file.getvalue()


@EVENTS
async def test_what_was_exported_is_imported_with_all_fields(world: World, place: Path) -> None:
    await fill(world.store)
    path = place / "runs.jsonl.gz"
    path.write_bytes(b"what was there before")
    assert await world.store.events.export_runs(path) == Exported(2, 703)
    assert [file.name for file in files(place)] == ["runs.jsonl.gz"]
    first, line, *_, last = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(first) == {"holdfast": "events", "contract_version": CONTRACT_VERSION}
    assert set(json.loads(line)) == {field.name for field in msgspec.structs.fields(Event)}
    assert json.loads(last) == {"holdfast": "end", "events": 703}
    there = world.store.namespace("there")
    before = await there.now()
    assert await there.events.import_runs(path) == Imported(703, 0)
    assert await contents(there) == await contents(world.store)
    (one, *_) = await there.events.fetch_events("r")
    assert one.persisted_at is not None
    assert one.persisted_at.timestamp() >= before.timestamp() - 0.01
    assert await there.events.import_runs(path) == Imported(0, 703)
    assert await contents(there) == await contents(world.store)


@EVENTS
async def test_named_runs_are_exported_and_missing_ones_refused(world: World) -> None:
    events = world.store.events
    await fill(world.store)
    file = io.BytesIO()
    seen: list[int] = []
    assert await events.export_runs(file, ["r"], progress=seen.append) == Exported(1, 701)
    assert seen == sorted(seen)
    assert seen[-1] == 701
    assert b"other" not in file.getvalue()
    with pytest.raises(NotFound, match="never"):
        await events.export_runs(io.BytesIO(), ["r", "never"])
    with pytest.raises(InvalidArgument, match="several"):
        await events.export_runs(io.BytesIO(), "r")
    with pytest.raises(InvalidArgument, match="binary"):
        await events.export_runs(io.StringIO())  # type: ignore[arg-type]


@EVENTS
async def test_an_export_that_fails_leaves_the_old_file(world: World, place: Path) -> None:
    path = place / "runs.jsonl"
    path.write_bytes(b"before")
    with pytest.raises(NotFound):
        await world.store.events.export_runs(path, ["never"])
    assert path.read_bytes() == b"before"
    assert [file.name for file in files(place)] == ["runs.jsonl"]
    with pytest.raises(NotFound):
        await world.store.events.import_runs(place / "never")


@EVENTS
async def test_whole_files_one_after_the_other_are_imported(world: World) -> None:
    await fill(world.store)
    files = []
    for run_id in await world.store.events.list_runs():
        file = io.BytesIO()
        await world.store.events.export_runs(file, [run_id])
        files.append(file.getvalue())
    there = world.store.namespace("there")
    assert await there.events.import_runs(io.BytesIO(b"".join(files))) == Imported(703, 0)
    assert await contents(there) == await contents(world.store)


@EVENTS
async def test_a_run_that_is_there_in_part_is_completed(world: World) -> None:
    await fill(world.store)
    file = await exported(world.store)
    there = world.store.namespace("there")
    start = await world.store.events.fetch_events("r", limit=123)
    await there.events.append_events(start)
    assert await there.events.import_runs(io.BytesIO(file)) == Imported(580, 123)
    assert await contents(there) == await contents(world.store)


def _changed(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":")).encode()


@EVENTS
@pytest.mark.parametrize(
    "fields",
    [
        {"event_data": "other"},
        {"event_type": "Other"},
        {"emitted_at": "2020-01-01T00:00:00Z"},
        {"step_id": "other"},
        {"event_id": "01890000-0000-7000-8000-000000000000"},
        {"idempotency_key": "other"},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_a_run_with_other_content_is_a_conflict(world: World, fields: dict[str, Any]) -> None:
    await fill(world.store)
    before = await contents(world.store)
    lines = (await exported(world.store)).splitlines()
    lines[5] = _changed(lines[5], **fields)
    with pytest.raises(Conflict, match=r"^line 6: run 'r': event 3 ") as caught:
        await world.store.events.import_runs(io.BytesIO(b"\n".join(lines)))
    assert (caught.value.line, caught.value.run_id, caught.value.run_seq) == (6, "r", 3)
    assert await contents(world.store) == before


@EVENTS
async def test_a_run_that_does_not_follow_is_a_conflict(world: World) -> None:
    await fill(world.store)
    lines = (await exported(world.store)).splitlines()
    there = world.store.namespace("there")
    del lines[3]
    with pytest.raises(Conflict, match=r"^line 4: run 'r': event 2 does not follow") as caught:
        await there.events.import_runs(io.BytesIO(b"\n".join(lines)))
    assert caught.value.line == 4


@EVENTS
async def test_a_key_that_is_in_a_run_twice_is_a_conflict(world: World) -> None:
    await fill(world.store)
    lines = (await exported(world.store)).splitlines()
    lines[5] = _changed(lines[5], idempotency_key="k0")
    there = world.store.namespace("there")
    with pytest.raises(Conflict, match=r"^line 6: run 'r': event 3 is another one"):
        await there.events.import_runs(io.BytesIO(b"\n".join(lines)))


@EVENTS
async def test_damage_is_told_with_its_line(world: World) -> None:
    await fill(world.store)
    whole = await exported(world.store)
    lines = whole.splitlines(keepends=True)
    there = world.store.namespace("there").events

    async def caught(file: bytes, error: type[Exception] = Corrupt) -> Any:  # noqa: ANN401
        with pytest.raises(error) as found:
            await there.import_runs(io.BytesIO(file))
        assert f"line {found.value.line}" in str(found.value)  # type: ignore[attr-defined]
        return found.value

    assert (await caught(b"")).line == 1
    assert (await caught(b"".join(lines[1:]))).line == 1
    assert (await caught(b"".join(lines[:-1]))).line == 705  # truncated
    assert (await caught(lines[0])).line == 2
    assert (await caught(whole[:-40])).line == 704
    assert (await caught(b"".join([*lines[:7], lines[7][9:], *lines[8:]]))).line == 8
    assert (await caught(b"".join([*lines[:7], b"{}\n", *lines[8:]]))).line == 8
    assert (await caught(b"".join([*lines[:7], b"\xff\n", *lines[8:]]))).line == 8
    one_less = b"".join([*lines[:7], *lines[8:]])
    assert (await caught(one_less)).line == 704  # what comes before is here already
    short = b"".join([*lines[:7], lines[-1]])
    assert (await caught(short)).line == 8  # 703 events were written
    assert (await caught(lines[0] + whole)).line == 2
    assert (await caught(b'{"holdfast":"cells"}\n' + whole)).line == 1
    assert (await caught(lines[0].replace(b"1.0", b"2.0") + lines[-1], Unsupported)).line == 1
    assert (await caught(lines[0].replace(b"1.0", b"x") + lines[-1])).line == 1
    for fields in ({"run_id": ""}, {"run_seq": 0}, {"event_id": "7"}, {"idempotency_key": "a\0"}):
        wrong = _changed(lines[1], **fields) + b"\n"
        assert (await caught(lines[0] + wrong + lines[-1], InvalidArgument)).line == 2


@EVENTS
async def test_fields_of_a_later_minor_version_are_passed_over(world: World) -> None:
    await fill(world.store)
    first, line, *_ = (await exported(world.store)).splitlines()
    end = b'{"holdfast":"end","events":1}'
    later = b"\n".join([first.replace(b"1.0", b"1.7"), _changed(line, later=1), end])
    there = world.store.namespace("there").events
    assert await there.import_runs(io.BytesIO(later)) == Imported(1, 0)
    assert await there.import_runs(io.BytesIO(later)) == Imported(0, 1)


def _deflated_to(lines: list[bytes]) -> bytes:
    """Gzipped data that goes on after those lines."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(b"".join(lines)) + packer.flush(zlib.Z_SYNC_FLUSH)


@EVENTS
async def test_damaged_gzip_is_corrupt_and_told_with_its_line(world: World) -> None:
    await fill(world.store)
    whole = await exported(world.store)
    lines = whole.splitlines(keepends=True)
    packed = gzip.compress(whole)
    start = _deflated_to(lines[:7])
    bad_sum = packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]
    there = world.store.namespace("there").events
    for file, line, events in (
        (packed[:2], 1, 0),
        (b"\x1f\x8bnot gzipped", 1, 0),
        (start, 8, 0),  # truncated
        (_deflated_to([*lines[:7], lines[7][:9]]), 8, 0),
        (start + b"\xff" * 50, 8, 0),
        (packed + b"\x1f\x8b", 706, 500),
        (bad_sum, 706, 500),
        (packed[:-9], 706, 500),
    ):
        with pytest.raises(Corrupt, match=rf"^line {line}: ") as caught:
            await there.import_runs(io.BytesIO(file))
        assert caught.value.line == line
        runs = await there.list_runs()
        assert sum([len(await there.fetch_events(run_id)) for run_id in runs]) == events
    assert await there.import_runs(io.BytesIO(packed)) == Imported(203, 500)


@EVENTS
async def test_an_imported_event_that_is_too_large_is_refused(world: World) -> None:
    await world.store.events.append_event(event("k", event_data="x" * 5000))
    file = await exported(world.store)
    small = await world.open_fresh(StoreConfig(payload_max_bytes=1000))
    with pytest.raises(InvalidArgument, match=r"^line 2: .*claim check") as caught:
        await small.events.import_runs(io.BytesIO(file))
    assert caught.value.limit == 1000
    assert await small.events.list_runs() == []


# Archive


@EVENTS
async def test_an_archived_run_is_gone_and_comes_back_by_import(world: World, place: Path) -> None:
    events = world.store.events
    await fill(world.store)
    before = await contents(world.store)
    with pytest.raises(NotFound, match="never"):
        await events.archive_run("never", place)
    with pytest.raises(InvalidState, match="force"):
        await events.archive_run("other%/ä", place)
    assert files(place) == []
    path = Path(await events.archive_run("r", place))
    assert path.parent == place
    forced = Path(await events.archive_run("other%/ä", place, force=True))
    assert await events.list_runs() == []
    assert files(place) == sorted([path, forced])
    assert await events.append_event(event("new", "other%/ä")) == new(1)
    another = await events.archive_run("other%/ä", place, force=True)
    assert len(files(place)) == 3, "another run of the same id has its own file"
    for file in files(place):
        if str(file) != another:
            await events.import_runs(file)
    assert await contents(world.store) == before
    assert await events.archive_run("r", place) == str(path)


@EVENTS
async def test_long_run_ids_are_archived_apart(world: World, place: Path) -> None:
    events = world.store.events
    names = [".", "..", "a/b", "ä" * 500, "ä" * 500 + "x", "~" * 1024]
    for name in names:
        await events.append_event(event("k", name))
    for name in names:
        await events.archive_run(name, place, force=True)
    assert await events.list_runs() == []
    for file in files(place):
        assert (await events.import_runs(file)).events == 1
    assert sorted(await events.list_runs()) == sorted(names)


@EVENTS
async def test_a_run_that_is_appended_to_meanwhile_is_archived_whole(
    world: World, place: Path
) -> None:
    events = world.store.events
    for number in range(20):
        await events.append_event(event(f"{number}", f"r{number}"))
    appends = [
        events.append_event(event(f"late{late}", f"r{number}"))
        for number in range(20)
        for late in range(3)
    ]
    archives = [events.archive_run(f"r{number}", place, force=True) for number in range(20)]
    await world.together([*appends, *archives])
    kept = await contents(world.store)
    elsewhere = world.store.namespace("elsewhere")
    for file in files(place):
        await elsewhere.events.import_runs(file)
    archived = await contents(elsewhere)
    for number in range(20):
        name = f"r{number}"
        keys = [one.idempotency_key for one in [*archived[name], *kept.get(name, [])]]
        assert sorted(keys) == sorted([f"{number}", "late0", "late1", "late2"])


@EVENTS
async def test_a_run_that_is_new_while_another_of_its_id_is_deleted_stays(world: World) -> None:
    events = world.store.events

    async def appending() -> None:
        for number in range(40):
            await events.append_event(event(f"new{number}"))

    await events.append_events([event(f"old{number}") for number in range(1000)])
    await events.append_events([event(f"more{number}") for number in range(1000)])
    await world.together([events.delete_run("r", force=True), appending()])
    left = [one.idempotency_key for one in await events.fetch_events("r")]
    assert [one.run_seq for one in await events.fetch_events("r")] == [*range(1, len(left) + 1)]
    assert left == [f"new{number}" for number in range(40 - len(left), 40)]

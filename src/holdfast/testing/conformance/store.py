"""Specs for what holds in all facets: namespaces, clock, operation ids, names, limits, closing."""

from __future__ import annotations

import io
import logging
import os
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, timedelta

import pytest

import holdfast
from holdfast import Capability, Event, Projection, StoreConfig
from holdfast.aio.store import AsyncStore
from holdfast.testing.conformance.cells import kept_versions
from holdfast.testing.plugin import needs
from holdfast.testing.world import World, backend_of

MIB = 1024 * 1024
NOTED = Event("r", "Noted", "k")
COUNT = Projection("count", lambda count, _: count + 1, initial=0)

Call = Callable[[AsyncStore], object]


async def test_ping_answers(world: World) -> None:
    await world.store.ping()


async def test_store_states_the_engines_capabilities(world: World) -> None:
    assert world.store.capabilities == world.engine.capabilities


async def test_missing_capability_is_unsupported_at_once(world: World) -> None:
    if Capability.BACKUP in world.store.capabilities:
        return
    with pytest.raises(holdfast.Unsupported, match="lacks the ability") as caught:
        await world.store.backup("never-written.db")
    assert caught.value.capability == "BACKUP"


ASKING: list[tuple[Capability, Call]] = [
    (Capability.BACKUP, lambda store: store.backup("never-written.db")),
    (Capability.TRANSACTIONS, lambda store: store.transaction()),
    (Capability.TRANSACTIONS, lambda store: store.events.inline()),
    (Capability.BRANCHES, lambda store: store.branches.list()),
    (Capability.CELLS_HISTORY, lambda store: store.cells.getv("x")),
    (Capability.CELLS_ATOMIC, lambda store: store.cells.set_many({"x": 1, "y": 2})),
    (Capability.CELLS_WATCH, lambda store: store.cells.watch()),
    (Capability.CELLS_SEARCH, lambda store: store.cells.search("x")),
    (Capability.SESSIONS, lambda store: store.cells.session()),
    (Capability.RECORDS_WATCH, lambda store: store.records.watch()),
    (Capability.RECORDS_INDEX, lambda store: store.records.list_indexes()),
    (Capability.TRANSPORT, lambda store: store.transport.publish("s", 1)),
    (Capability.TRANSPORT, lambda store: store.transport.create_group("g", "s")),
    (Capability.TRANSPORT, lambda store: store.transport.consumer("g")),
    (Capability.TRANSPORT, lambda store: store.transport.fetch("g")),
    (Capability.TRANSPORT, lambda store: store.transport.list_groups()),
    (Capability.TRANSPORT, lambda store: store.transport.purge()),
    (Capability.EVENTS, lambda store: store.events.append_event(NOTED)),
    (Capability.EVENTS, lambda store: store.events.append_events([])),
    (Capability.EVENTS, lambda store: store.events.fetch_events("r")),
    (Capability.EVENTS, lambda store: store.events.get_snapshot("r", max_age=60)),
    (Capability.EVENTS, lambda store: store.events.project_snapshot("r")),
    (Capability.EVENTS, lambda store: store.events.keep_snapshot("r")),
    (Capability.EVENTS, lambda store: store.events.view(COUNT, "r")),
    (Capability.EVENTS, lambda store: store.events.keep_view(COUNT, "r")),
    (Capability.EVENTS, lambda store: store.events.feed()),
    (Capability.EVENTS, lambda store: store.events.feed_end()),
    (Capability.EVENTS, lambda store: store.events.last_seq("r")),
    (Capability.EVENTS, lambda store: store.events.list_runs()),
    (Capability.EVENTS, lambda store: store.events.delete_run("r")),
    (Capability.EVENTS, lambda store: store.events.delete_run("r", force=True)),
    (Capability.EVENTS, lambda store: store.events.export_runs(io.BytesIO())),
    (Capability.EVENTS, lambda store: store.events.import_runs(io.BytesIO())),
    (Capability.EVENTS, lambda store: store.events.archive_run("r", "never-written")),
]
"""Calls that not every engine can do, and what they need."""


async def test_calls_ask_for_their_capability_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(world.store)
    for capability, call in ASKING:
        with monkeypatch.context() as lacking:
            others = backend.capabilities - {capability}
            lacking.setattr(backend, "capabilities", others)
            with pytest.raises(holdfast.Unsupported, match="lacks the ability") as caught:
                await _result(call(world.store))
            assert caught.value.capability == capability.name


async def _result(answer: object) -> object:
    return await answer if isinstance(answer, Awaitable) else answer


# Namespaces


async def test_namespaces_do_not_see_each_other(world: World) -> None:
    other = world.store.namespace("acme")
    await world.store.cells.set("x", "ours")
    assert await other.cells.get("x") is None
    assert await other.cells.list() == []
    if Capability.CELLS_HISTORY in world.store.capabilities:
        assert await other.cells.getv("x") == []
    assert await other.cells.delete("x") is False
    assert await other.cells.set("x", "theirs") == 1
    assert await world.store.cells.get("x") == "ours"
    assert await other.cells.get("x") == "theirs"


async def test_same_op_id_in_another_namespace_is_another_operation(world: World) -> None:
    op = uuid.uuid4()
    await world.store.cells.set("x", 1, op_id=op)
    other = world.store.namespace("acme")
    assert await other.cells.set("x", 2, op_id=op) == 1
    assert await other.cells.get("x") == 2


async def test_namespace_is_chosen_when_opening(world: World) -> None:
    await world.store.namespace("acme").cells.set("x", 1)
    if Capability.SHARED in world.store.capabilities:
        acme = await world.open("acme")
        assert await acme.cells.get("x") == 1


async def test_closing_a_namespace_view_leaves_the_store_open(world: World) -> None:
    await world.store.namespace("acme").close()
    await world.store.ping()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1025, 7])
async def test_illegal_namespace_is_refused(world: World, name: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="namespace"):
        world.store.namespace(name)


# Time


async def test_now_is_aware_utc(world: World) -> None:
    now = await world.store.now()
    assert now.tzinfo is UTC


@needs(Capability.MOVABLE_CLOCK)
async def test_clock_moves_for_everyone_who_uses_the_store(world: World) -> None:
    before = await world.store.now()
    await world.move_clock(3600)
    assert timedelta(hours=1) <= await world.store.now() - before < timedelta(hours=1, minutes=5)
    await world.store.cells.set("x", 1)
    cell = await world.store.cells.get_versioned("x")
    assert cell is not None
    assert cell.updated_at >= int(before.timestamp() * 1e6) + 3600 * 1_000_000


@needs(Capability.MOVABLE_CLOCK, Capability.SHARED)
async def test_clock_offset_is_kept_in_the_store(world: World) -> None:
    await world.move_clock(7200)
    other = await world.open()
    assert abs(await other.now() - await world.store.now()) < timedelta(minutes=5)


# Operation ids


async def test_same_op_id_again_returns_the_first_answer(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    assert await cells.set("x", "first", op_id=op) == 1
    assert await cells.set("x", "second", op_id=op) == 1
    assert await cells.get("x") == "first"
    await kept_versions(world, "x", 1)


async def test_op_id_is_remembered_past_later_writes(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    assert await cells.cas("x", None, "first", op_id=op) == 1
    assert await cells.set("x", "later") == 2
    assert await cells.cas("x", None, "again", op_id=op) == 1
    assert await cells.get("x") == "later"


async def test_repeated_cas_still_succeeds(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    await cells.set("x", 0)
    assert await cells.cas("x", 1, 1, op_id=op) == 2
    assert await cells.cas("x", 1, 1, op_id=op) == 2
    assert await cells.cas("x", 1, 1, op_id=uuid.uuid4()) is None


async def test_repeated_init_returns_the_version_it_made(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    assert await cells.init("x", 1, op_id=op) == 1
    await cells.set("x", 2)
    assert await cells.init("x", 1, op_id=op) == 1


async def test_repeated_delete_still_says_it_deleted(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    await cells.set("x", 1)
    assert await cells.delete("x", op_id=op) is True
    assert await cells.delete("x", op_id=op) is True
    await cells.set("x", 2)
    assert await cells.delete("x", op_id=op) is True
    assert await cells.get("x") == 2


async def test_repeated_set_many_returns_the_first_versions(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    first = await cells.set_many({"a": 1, "b": 2}, op_id=op)
    await cells.set("a", 3)
    assert await cells.set_many({"a": 1, "b": 2}, op_id=op) == first
    assert await cells.get("a") == 3


async def test_refusal_is_not_remembered(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    assert await cells.cas("x", 1, "v", op_id=op) is None
    await cells.set("x", 0)
    assert await cells.cas("x", 1, "v", op_id=op) == 2


async def test_op_id_belongs_to_its_cell(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    await cells.set("x", 1, op_id=op)
    assert await cells.set("y", 2, op_id=op) == 1
    assert await cells.get("y") == 2


async def test_op_id_may_be_given_as_text(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    await cells.set("x", 1, op_id=str(op))
    assert await cells.set("x", 2, op_id=op) == 1


async def test_racing_repeats_of_one_operation_have_one_effect(world: World) -> None:
    cells, op = world.store.cells, uuid.uuid4()
    await cells.set("x", 0)
    answers = await world.together(cells.set("x", n, op_id=op) for n in range(20))
    assert answers == [2] * 20
    await kept_versions(world, "x", 2)


@pytest.mark.parametrize("op_id", ["", "not-a-uuid", 7, b"0123456789abcdef"])
async def test_illegal_op_id_is_refused(world: World, op_id: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="op_id"):
        await world.store.cells.set("x", 1, op_id=op_id)


# Names and payloads


@pytest.mark.parametrize(
    "name",
    ["a", "x" * 1024, "ü" * 512, "\U0010ffff" * 256, " ", "a/b:c.d", "Ä", "%_*[\\", "\n", "'\"--;"],
)
async def test_legal_names_work(world: World, name: str) -> None:
    cells = world.store.cells
    await cells.set(name, name)
    assert await cells.get(name) == name
    assert await cells.list(name) == [name]


@pytest.mark.parametrize(
    "name", ["", "a\0", "\0", "x" * 1025, "ü" * 513, "\ud800", None, 7, b"bytes", ["x"]]
)
async def test_illegal_names_are_refused_everywhere(world: World, name: str) -> None:
    cells = world.store.cells
    calls: list[Awaitable[object]] = [
        cells.init(name, 1),
        cells.get(name),
        cells.get_versioned(name),
        cells.set(name, 1),
        cells.cas(name, None, 1),
        cells.cas(name, 1, 1),
        cells.delete(name),
    ]
    if Capability.CELLS_HISTORY in world.store.capabilities:
        calls += [cells.getv(name), cells.get_at(name, 0)]
    for call in calls:
        with pytest.raises(holdfast.InvalidArgument, match="cell name"):
            await call
    assert await cells.list() == []


async def test_names_are_compared_byte_by_byte(world: World) -> None:
    cells = world.store.cells
    names = ["a", "A", "ä", "a\u0308", "a ", " a"]
    await cells.set_many({name: name for name in names})
    assert await cells.list() == sorted(names, key=str.encode)
    for name in names:
        assert await cells.get(name) == name


async def test_payload_of_the_largest_size_is_kept(world: World) -> None:
    value = "x" * (2 * MIB - 2)  # two quotes make it 2 MiB of JSON
    await world.store.cells.set("x", value)
    assert await world.store.cells.get("x") == value


async def test_payload_above_the_limit_is_refused_with_a_hint(world: World) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="claim check") as caught:
        await world.store.cells.set("x", "x" * (2 * MIB - 1))
    assert caught.value.limit == 2 * MIB
    assert await world.store.cells.get("x") is None


async def test_payload_limit_is_a_setting(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=100))
    await store.cells.set("x", "y" * 98)
    with pytest.raises(holdfast.InvalidArgument, match="at most 100"):
        await store.cells.set("x", "y" * 99)


async def test_large_payload_is_warned_of(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        await world.store.cells.set("small", "x" * (MIB - 2))
        assert caplog.records == []
        await world.store.cells.set("large", "x" * MIB)
    assert ["'large'" in record.getMessage() for record in caplog.records] == [True]


# Life cycle


async def test_closed_store_refuses_every_call(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    await store.cells.set("x", 1)
    await store.close()
    await store.close()
    calls: list[Awaitable[object]] = [
        store.ping(),
        store.now(),
        store.cells.get("x"),
        store.cells.set("x", 2),
        store.cells.list(),
        store.namespace("other").cells.get("x"),
    ]
    if Capability.CELLS_HISTORY in store.capabilities:
        calls.append(store.cells.getv("x"))
    for call in calls:
        with pytest.raises(holdfast.StoreClosed):
            await call


@needs(Capability.RECORDS)
async def test_closed_store_refuses_records(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    await store.records.put("k", {"a": 1})
    await store.close()
    await _refused_as_closed(
        store,
        lambda store: store.records.get("k"),
        lambda store: store.records.put("k", {"a": 2}),
        lambda store: store.records.delete("k"),
        lambda store: store.records.claim("k", "worker", timeout=60),
        lambda store: anext(aiter(store.records.scan())),
        lambda store: store.namespace("other").records.get("k"),
    )
    if Capability.RECORDS_WATCH in store.capabilities:
        await _refused_as_closed(store, lambda store: store.records.watch().next(1))


@needs(Capability.TRANSPORT)
async def test_closed_store_refuses_transport(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    await store.transport.create_group("g", "s")
    await store.transport.publish("s", 1)
    delivery = await store.transport.fetch("g")
    assert delivery is not None
    await store.close()
    await _refused_as_closed(
        store,
        lambda store: store.transport.publish("s", 2),
        lambda store: store.transport.create_group("h", "s"),
        lambda store: store.transport.fetch("g"),
        lambda store: store.transport.consumer("g").next(1),
        lambda store: store.transport.list_groups(),
        lambda store: store.transport.status("g"),
        lambda _: delivery.ack(),
    )


@needs(Capability.EVENTS)
async def test_closed_store_refuses_events(world: World) -> None:
    store = await world.open_fresh(StoreConfig())
    await store.events.append_event(NOTED)
    await store.events.get_snapshot("r", max_age=600)
    await store.close()
    await _refused_as_closed(
        store,
        lambda store: store.events.get_snapshot("r", max_age=600),  # which is in memory
        lambda store: store.events.append_event(NOTED),
        lambda store: store.events.append_events([NOTED]),
        lambda store: store.events.fetch_events("r"),
        lambda store: store.events.get_snapshot("r"),
        lambda store: store.events.project_snapshot("r"),
        lambda store: store.events.keep_snapshot("r"),
        lambda store: store.events.keep_view(COUNT, "r"),
        lambda store: store.events.last_seq("r"),
        lambda store: store.events.list_runs(),
        lambda store: store.events.delete_run("r", force=True),
        lambda store: store.events.feed().next(1),
        lambda store: store.events.feed_end(),
        lambda store: store.namespace("other").events.list_runs(),
    )


async def _refused_as_closed(store: AsyncStore, *calls: Call) -> None:
    for call in calls:
        with pytest.raises(holdfast.StoreClosed):
            await _result(call(store))


async def test_closing_waits_for_writes_in_flight(world: World) -> None:
    store = await world.open_fresh(StoreConfig())

    async def write(number: int) -> str:
        try:
            await store.cells.set(f"x{number}", number)
        except holdfast.StoreClosed:
            return "closed"
        return "written"

    async def close() -> str:
        await store.close()
        return "done"

    outcomes = await world.together([*(write(number) for number in range(20)), close()])
    assert set(outcomes) <= {"written", "closed", "done"}


@needs(Capability.SHARED)
async def test_data_outlives_the_store_that_wrote_it(world: World) -> None:
    store = await world.open()
    await store.cells.set("x", {"kept": True})
    await store.close()
    again = await world.open()
    assert await again.cells.get("x") == {"kept": True}


@needs(Capability.SHARED)
async def test_two_stores_on_one_database_see_each_others_writes(world: World) -> None:
    other = await world.open()
    await world.store.cells.set("x", 1)
    assert await other.cells.get("x") == 1
    assert await other.cells.cas("x", 1, 2) == 2
    assert await world.store.cells.get("x") == 2


async def test_use_after_fork_raises(world: World) -> None:
    await world.store.cells.set("x", 1)
    store = world.store
    pid = os.fork()
    if pid == 0:
        refused = 0
        await store.close()  # does nothing here: the connections are the parent's
        for call in (store.cells.get("x"), store.cells.set("x", 2), store.ping()):
            try:
                await call
            except holdfast.InvalidState:
                refused += 1
            except BaseException:  # noqa: BLE001, S110 - the child reports by its exit code alone
                pass
        os._exit(refused)
    _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 - the child ends at once
    assert os.waitstatus_to_exitcode(status) == 3
    assert await world.store.cells.set("x", 3) == 2


@needs(Capability.BACKUP)
async def test_backup_is_a_store_of_its_own(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("backup") / "copy.db"
    await world.store.cells.set_many({f"x{number}": "y" * 1000 for number in range(500)})
    steps: list[tuple[int, int]] = []
    await world.store.backup(target, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] > 100
    assert target.stat().st_mode & 0o777 == 0o600
    await world.store.cells.set("after", 1)
    copy = await world.open(url=f"sqlite:///{target}")
    assert len(await copy.cells.list("x")) == 500
    assert await copy.cells.get("after") is None
    with pytest.raises(holdfast.Conflict):
        await world.store.backup(target)


@needs(Capability.NAMESPACES)
async def test_a_store_tells_its_namespaces(world: World) -> None:
    assert await world.store.namespaces() == []
    await world.store.namespace("cells").cells.set("x", 1)
    for number in range(30):
        view = world.store.namespace(f"n{number:02}")
        for key in range(3):
            await view.records.put(f"key.{key}", {"a": "b"})
    await world.store.namespace("Ö").records.put("k", {"a": "b"})
    await world.store.namespace("Z").transport.create_group("g", "s")
    await world.store.namespace("messages").transport.publish("s", 1)
    long = "z" * 1000
    await world.store.namespace(long).cells.set("x", 1)
    wanted = ["Z", "cells", "messages", *(f"n{number:02}" for number in range(30)), long, "Ö"]
    assert await world.store.namespaces() == wanted
    assert await world.store.namespace("other").namespaces() == wanted

"""A store that nobody holds any more ends its thread and its connection, and says so."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import Event, Store
from holdfast.backends.nats.connection import Connection
from holdfast.sync.transport import Consumer
from holdfast.testing.freezing import freeze
from holdfast.testing.nats import NatsServer

PATIENCE = 30.0
UNCLOSED = "unclosed store on nats://"
MOMENT = 0.05


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast nats"]


def assert_ended(some: list[threading.Thread]) -> None:
    assert len(some) == 1
    for thread in some:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the thread goes on"


def connection_of(store: Any) -> Connection:  # noqa: ANN401 - of either colour
    """What the store is connected by, which does not hold the store."""
    connection: Connection = store._backend._db.connection  # noqa: SLF001
    return connection


def assert_disconnected(connection: Connection) -> None:
    client = connection._client  # noqa: SLF001
    assert client is not None
    assert client.is_closed


def collect_one() -> None:
    """Collect until a store was found: the loop may still hold its last call."""
    deadline = time.monotonic() + PATIENCE
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        while not found:
            assert time.monotonic() < deadline, "the forgotten store is still alive"
            gc.collect()
            time.sleep(MOMENT)
    assert [(one.category, UNCLOSED in str(one.message)) for one in found] == [
        (ResourceWarning, True)
    ]


def nothing(store: Store) -> None:
    del store


def write(store: Store) -> None:
    store.records.put("a", {"x": 1})
    assert store.cells.set("c", 1) == 1


def watch(store: Store) -> None:
    records = store.records.watch()
    store.records.put("a", {"x": 1})
    assert records.next(PATIENCE) is not None


def consume(store: Store) -> None:
    with store.transport.consumer("g", "a") as consumer:
        store.transport.publish("a", 1)
        assert consumer.next(PATIENCE) is not None


def follow(store: Store) -> None:
    feed = store.events.feed()
    store.events.append_event(Event("r", "Noted", "k"))
    assert feed.next(PATIENCE) is not None


@pytest.mark.parametrize("use", [nothing, write, watch, consume, follow])
def test_a_forgotten_store_is_freed_with_a_warning(
    server: NatsServer, use: Callable[[Store], None]
) -> None:
    assert threads() == []
    store = holdfast.open(server.fresh_url())
    use(store)
    ours, connection = threads(), connection_of(store)
    del store
    collect_one()
    assert_ended(ours)
    assert_disconnected(connection)


HELD: dict[str, Callable[[Store], Callable[[], object]]] = {
    "records": lambda store: partial(store.records.get_field, "a", "x"),
    "cells": lambda store: partial(store.cells.set, "c", 1),
    "transport": lambda store: store.transport.list_groups,
    "consumer": lambda store: partial(_taken, store.transport.consumer("g")),
    "events": lambda store: store.events.list_runs,
    "feed": lambda store: partial(store.events.feed().next, PATIENCE),
    "watch": lambda store: partial(store.records.watch().next, PATIENCE),
    "scan": lambda store: partial(next, iter(store.records.scan())),
    "view": lambda store: partial(store.namespace("default").cells.set, "c", 1),
}


def _taken(consumer: Consumer) -> bool:
    return consumer.next(0) is None


@pytest.mark.parametrize("what", HELD)
def test_a_store_lives_as_long_as_anything_of_it_is_held(server: NatsServer, what: str) -> None:
    store = holdfast.open(server.fresh_url())
    store.records.put("a", {"x": 1})
    store.transport.create_group("g", "a")
    use, ours = HELD[what](store), threads()
    del store
    gc.collect()
    assert use() is not None
    del use
    collect_one()
    assert_ended(ours)


def test_a_forgotten_store_is_freed_also_on_its_own_thread(server: NatsServer) -> None:
    def forget() -> tuple[asyncio.AbstractEventLoop, list[threading.Thread]]:
        store = holdfast.open(server.fresh_url())
        loop = store._backend._db._home._loop  # type: ignore[attr-defined]  # noqa: SLF001
        ring: list[object] = [store]
        ring.append(ring)
        return loop, threads()

    gc.disable()
    try:
        loop, ours = forget()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            loop.call_soon_threadsafe(gc.collect)
            assert_ended(ours)
        assert [UNCLOSED in str(one.message) for one in found] == [True]
    finally:
        gc.enable()


def test_a_forgotten_store_ends_its_thread_also_while_the_server_is_silent() -> None:
    with NatsServer() as server:
        store = holdfast.open(server.fresh_url())
        store.cells.set("c", 1)
        ours = threads()
        freeze(server.pid)
        del store
        collect_one()
        assert_ended(ours)


def test_a_forgotten_async_store_is_freed_with_a_warning(server: NatsServer) -> None:
    async def forget() -> Connection:
        store = await holdfast.open_async(server.fresh_url())
        async with store.records.watch() as changes:
            await store.records.put("a", {"x": 1})
            assert await changes.next(PATIENCE) is not None
        return connection_of(store)

    async def main() -> None:
        connection = await forget()
        await asyncio.sleep(0)
        collect_one()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), PATIENCE)
        await asyncio.sleep(MOMENT)
        assert_disconnected(connection)

    asyncio.run(main())


def test_a_store_that_outlives_its_loop_is_forgotten_with_a_warning(server: NatsServer) -> None:
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(holdfast.open_async(server.fresh_url()))
    loop.run_until_complete(connection_of(store).close())  # as far as the loop is concerned
    loop.close()
    del store
    collect_one()


def test_a_closed_store_is_collected_without_a_word(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        write(store)
    del store
    gc.collect()  # a warning would be an error
    assert threads() == []


def _forget_in_child(store: list[Store]) -> None:
    store.clear()
    gc.collect()


def test_a_forked_child_leaves_its_parents_store_alone(server: NatsServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        write(store)
        child = multiprocessing.get_context("fork").Process(
            target=_forget_in_child, args=([store],)
        )
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert store.cells.get("c") == 1


PROGRAMS = {
    "a store": "store.cells.set('c', 1)",
    "a watch": "watch = store.records.watch()\nwatch.next(PATIENCE)",
    "a ring": "store.cells.set('c', 1)\nring = [store]\nring.append(ring)\ndel store",
    "a thread": """
import threading
ready = threading.Event()

def run():
    for change in store.records.watch():
        ready.set()
        while True:
            store.records.get("a")

threading.Thread(target=run, daemon=True).start()
ready.wait(PATIENCE)
""",
    "an error": "raise SystemExit(0)",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
@pytest.mark.parametrize("mode", ["plain", "warnings"])
def test_a_program_that_forgets_to_close_ends_without_a_traceback(
    server: NatsServer, program: str, mode: str
) -> None:
    opening = (
        f"import holdfast\nPATIENCE = {PATIENCE}\nstore = holdfast.open({server.fresh_url()!r})"
    )
    lines = f"{opening}\nstore.records.put('a', {{'x': 1}})\n{program}"
    flags = ["-W", "default::ResourceWarning"] if mode == "warnings" else []
    ended = subprocess.run(
        [sys.executable, *flags, "-c", lines],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    hint = "tracemalloc"  # which would tell where it was opened
    said = [line for line in ended.stderr.splitlines() if UNCLOSED not in line and hint not in line]
    assert (ended.returncode, said) == (0, [])
    if mode == "plain":
        assert ended.stderr == ""
    elif "threading" not in program:  # which holds the store to the end
        assert UNCLOSED in ended.stderr

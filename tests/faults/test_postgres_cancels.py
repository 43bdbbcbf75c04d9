"""Callers who give up on a server that does not answer: free at once, and nobody else is harmed.

psycopg would open another connection to ask the server for a cancellation, and wait for it.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.testing.proxy import FaultProxy

# What a call needs to reach the driver and to leave it again, where nothing is waited for.
TURNS = 30
CALLS: dict[str, Callable[[holdfast.AsyncStore], Any]] = {
    "ping": lambda store: store.ping(),
    "get": lambda store: store.cells.get("cell"),
    "getv": lambda store: store.cells.getv("cell"),
    "set": lambda store: store.cells.set("cell", "other"),
}


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def one_connection(url: str, namespace: str) -> AsyncIterator[holdfast.AsyncStore]:
    async with holdfast.open_async(f"{url}?pool_size=1", namespace) as store:
        await store.cells.set("cell", "value")
        yield store


async def give_up(proxy: FaultProxy, *calls: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    """Let the calls reach a server that does not answer, and cancel the first one."""
    proxy.black_hole()
    tasks = [asyncio.ensure_future(call) for call in calls]
    await turns()
    assert not any(task.done() for task in tasks)
    tasks[0].cancel()
    await turns()
    assert tasks[0].cancelled(), "the caller is still held"
    return tasks


@pytest.mark.parametrize("name", CALLS)
def test_cancelled_caller_is_free_at_once(
    proxy: FaultProxy, database: str, namespace: str, name: str
) -> None:
    async def main() -> None:
        async with one_connection(proxy.through(database), namespace) as store:
            before = proxy.counts.connections
            await give_up(proxy, CALLS[name](store))
            assert proxy.counts.connections == before
            proxy.heal()
            assert await store.cells.get("cell") in {"value", "other"}
            assert len(await store.cells.getv("cell")) in {1, 2}

    asyncio.run(main())


@pytest.mark.parametrize("name", CALLS)
def test_cancelled_caller_does_not_harm_those_beside_it(
    proxy: FaultProxy, database: str, namespace: str, name: str
) -> None:
    async def main() -> None:
        async with one_connection(proxy.through(database), namespace) as store:
            expected = await CALLS[name](store)
            _, *others = await give_up(proxy, *(CALLS[name](store) for _ in range(3)))
            assert not any(task.done() for task in others)
            proxy.heal()
            answers = await asyncio.gather(*others)
        if name == "set":
            assert sorted(answers) == [expected + 2, expected + 3]
        else:
            assert answers == [expected] * 2

    asyncio.run(main())


def test_loop_that_ends_does_not_wait_for_the_flush(
    proxy: FaultProxy, database: str, namespace: str
) -> None:
    async def main() -> None:
        async with one_connection(proxy.through(database), namespace) as store:
            proxy.black_hole()
            caller = asyncio.ensure_future(store.cells.set("cell", "other"))
            await turns()
            (flush,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast flush")
            flush.cancel()
            await turns()
            assert flush.cancelled()
            assert caller.cancelled()
            proxy.heal()
            assert await store.cells.get("cell") in {"value", "other"}

    asyncio.run(main())


class Interrupted(KeyboardInterrupt):
    """What Ctrl-C raises, raised by the test."""


def test_interrupted_thread_is_not_held_by_a_silent_server(
    proxy: FaultProxy, database: str, namespace: str
) -> None:
    url = f"{proxy.through(database)}?pool_size=1"
    main = threading.get_ident()

    def interrupt() -> None:
        with psycopg.connect(database, autocommit=True) as observer:
            waiting = """
                SELECT count(*) FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND datname = current_database()
            """
            while observer.execute(waiting).fetchone() == (0,):
                observer.execute("SELECT pg_sleep(0.02)")
        # Only now: what follows the interrupt must not be answered.
        proxy.black_hole()
        signal.pthread_kill(main, signal.SIGUSR1)

    def hit(signal_: int, frame: object) -> None:
        del signal_, frame
        raise Interrupted

    previous = signal.signal(signal.SIGUSR1, hit)
    interrupter = threading.Thread(target=interrupt)
    try:
        with holdfast.open(url, namespace) as store, psycopg.connect(database) as holder:
            store.cells.set("cell", "value")
            holder.execute(
                "SELECT FROM holdfast.cells WHERE namespace = %s FOR UPDATE", [namespace]
            )
            interrupter.start()
            with pytest.raises(Interrupted):
                store.cells.set("cell", "other")
            holder.rollback()
            proxy.heal()
            assert store.cells.get("cell") in {"value", "other"}
    finally:
        interrupter.join()
        signal.signal(signal.SIGUSR1, previous)

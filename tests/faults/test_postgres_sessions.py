# ruff: noqa: PT012 -- what is raised inside must pass the session's end
"""Sessions on PostgreSQL: whatever ends one, it leaves no transaction and no place in the pool."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast import AsyncStore, StoreConfig, Timeout, Unavailable
from holdfast.aio.sessions import AsyncCellsSession
from holdfast.sync.transaction import TransactionScope
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour

OpenStore: TypeAlias = Callable[..., AsyncStore]
PATIENCE = 30
_OPEN = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = %s AND state LIKE 'idle in transaction%%'
"""
_WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = %s AND wait_event_type = 'Lock'
"""


class Watched:
    """A database whose sessions can be looked at, under a name of their own."""

    def __init__(self, database: str) -> None:
        self.name = f"watched {uuid4()}"
        self.url = f"{database}?application_name={self.name.replace(' ', '%20')}"
        self.looker = psycopg.connect(database, autocommit=True)

    def count(self, query: str) -> int:
        ((number,),) = self.looker.execute(query.encode(), [self.name]).fetchall()
        return int(number)

    def until(self, query: str, number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.count(query) != number:
            assert time.monotonic() < deadline, f"never {number} of {query}"


@pytest.fixture
def watched(database: str) -> Iterator[Watched]:
    watched = Watched(database)
    yield watched
    watched.looker.close()


@pytest.fixture
def store(open_store: OpenStore, watched: Watched) -> AsyncStore:
    """A store with one connection: who keeps it keeps everybody out."""
    return open_store(watched.url, pool_size=1, connect_timeout=5)


async def begin(store: AsyncStore, watched: Watched) -> AsyncCellsSession:
    s = store.cells.session()
    await s.get("a")
    assert watched.count(_OPEN) == 1, "the test cannot tell an open snapshot"
    return s


async def is_free(store: AsyncStore, watched: Watched) -> None:
    watched.until(_OPEN, 0)
    await store.cells.set("works", "again")


async def commit(s: AsyncCellsSession) -> None:
    await s.set("mine", 1)
    assert "mine" in await s.commit()


async def commit_nothing(s: AsyncCellsSession) -> None:
    assert await s.commit() == {}


async def rollback(s: AsyncCellsSession) -> None:
    await s.rollback()


async def fail(s: AsyncCellsSession) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with s:
            raise ZeroDivisionError


ENDS = {
    "commit": commit,
    "nothing to commit": commit_nothing,
    "rollback": rollback,
    "exception": fail,
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_frees_the_connection(
    colour: Colour, store: AsyncStore, watched: Watched, end: str
) -> None:
    async def scene() -> None:
        for _ in range(3):
            await ENDS[end](await begin(store, watched))
            await is_free(store, watched)

    colour.run(scene())


def test_a_forgotten_session_frees_the_connection(
    colour: Colour, store: AsyncStore, watched: Watched
) -> None:
    async def scene() -> None:
        for _ in range(3):
            s = await begin(store, watched)
            del s
            gc.collect()
            await is_free(store, watched)

    colour.run(scene())


def test_a_conflict_frees_the_connection(
    colour: Colour, store: AsyncStore, open_store: OpenStore, watched: Watched, database: str
) -> None:
    other = open_store(database)

    async def scene() -> None:
        s = await begin(store, watched)
        await s.set("a", "mine")
        await other.cells.set("a", "other")
        with pytest.raises(holdfast.Conflict):
            await s.commit()
        await is_free(store, watched)

    colour.run(scene())


def test_the_time_frees_the_connection_while_its_owner_does_nothing(
    colour: Colour, store: AsyncStore, watched: Watched
) -> None:
    async def scene() -> None:
        s = store.cells.session(max_age=0.05)
        await s.set("a", 1)
        # The only connection: the write waits until the session has lost it.
        await store.cells.set("other", 1)
        assert watched.count(_OPEN) == 0
        with pytest.raises(Timeout):
            await s.get("a")
        with pytest.raises(Timeout):
            await s.commit()
        await s.rollback()
        assert await store.cells.list() == ["other"]

    colour.run(scene())


def test_the_server_ends_the_transaction_of_a_loop_that_hangs(
    watched: Watched, namespace: str
) -> None:
    async def scene() -> None:
        config = StoreConfig(pool_size=1)
        async with holdfast.open_async(watched.url, namespace, config=config) as store:
            s = store.cells.session(max_age=0.1)
            await s.get("a")
            watched.until(_OPEN, 0)  # the loop does not turn meanwhile
            with pytest.raises(Timeout):
                await s.get("a")
            with pytest.raises(Timeout):
                await s.commit()
            await store.cells.set("works", "again")

    asyncio.run(scene())


def test_a_task_cancelled_between_reads_frees_the_connection(
    watched: Watched, namespace: str
) -> None:
    async def scene() -> None:
        config = StoreConfig(pool_size=1)
        async with holdfast.open_async(watched.url, namespace, config=config) as store:
            begun = asyncio.Event()

            async def hang() -> None:
                async with store.cells.session() as s:
                    await s.set("a", 1)
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(hang())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await is_free(store, watched)
            assert await store.cells.list() == ["works"]

    asyncio.run(scene())


def test_a_task_cancelled_in_a_read_frees_the_connection(
    watched: Watched, namespace: str, database: str
) -> None:
    async def scene() -> None:
        config = StoreConfig(pool_size=1)
        async with holdfast.open_async(watched.url, namespace, config=config) as store:
            s = store.cells.session()
            with psycopg.connect(database) as blocker:
                blocker.execute("LOCK TABLE holdfast.cell_versions IN ACCESS EXCLUSIVE MODE")
                task = asyncio.create_task(s.get("b"))
                await asyncio.to_thread(watched.until, _WAITING, 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(holdfast.InvalidState, match="over"):
                await s.get("a")
            with pytest.raises(holdfast.InvalidState, match="over"):
                await s.commit()
            await is_free(store, watched)

    asyncio.run(scene())


def test_a_task_cancelled_in_its_commit_leaves_all_or_nothing_and_frees_the_connection(
    watched: Watched, namespace: str, database: str
) -> None:
    async def scene() -> None:
        config = StoreConfig(pool_size=1)
        async with holdfast.open_async(watched.url, namespace, config=config) as store:
            await store.cells.set_many({"a": 0, "b": 0})
            s = store.cells.session()
            await s.set_many({"a": 1, "b": 1})
            async with holdfast.open_async(database, namespace) as other:
                with pytest.raises(ZeroDivisionError):
                    async with other.transaction() as tx:
                        await tx.cells.set("b", "theirs")
                        task = asyncio.create_task(s.commit())
                        await asyncio.to_thread(watched.until, _WAITING, 1)
                        task.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await task
                        raise ZeroDivisionError
            await is_free(store, watched)
            # Once begun it goes on without its caller, as every write does.
            assert [await store.cells.get(name) for name in "ab"] == [1, 1]

    asyncio.run(scene())


def test_a_cut_inside_ends_the_session_and_leaves_nothing(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database, pool_size=1)

    async def scene() -> None:
        with pytest.raises(Unavailable) as raised:
            async with store.cells.session() as s:
                await s.set("a", 1)
                proxy.cut()
                await s.get("b")
        assert not raised.value.outcome_unknown
        with pytest.raises(holdfast.InvalidState, match="over"):
            await s.get("a")
        assert await store.cells.list() == []
        await store.cells.set("works", "again")

    colour.run(scene())


def test_a_cut_after_the_last_read_does_not_matter(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database, pool_size=1)

    async def scene() -> None:
        async with store.cells.session() as s:
            await s.set("a", 1)
            proxy.cut()
        assert await store.cells.get("a") == 1

    colour.run(scene())


def test_a_server_that_restarts_inside_leaves_nothing(
    colour: Colour, open_store: OpenStore
) -> None:
    with PostgresServer("18") as server:
        store = open_store(server.create_database(), pool_size=1)

        async def scene() -> None:
            with pytest.raises(Unavailable):
                async with store.cells.session() as s:
                    await s.set("a", 1)
                    server.restart()
                    await s.get("b")
            assert await store.cells.list() == []
            async with store.cells.session() as s:
                await s.set("a", 1)
            assert await store.cells.get("a") == 1

        colour.run(scene())
        colour.run(store.close())


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("when", ["cut_before_reply", "cut_before_server"])
@pytest.mark.parametrize("history", ["all", 1])
def test_a_lost_answer_to_the_commit_is_asked_for_again_and_has_one_effect(
    colour: Colour,
    open_store: OpenStore,
    proxy: FaultProxy,
    database: str,
    *,
    given: bool,
    when: str,
    history: Any,  # noqa: ANN401 - a setting
) -> None:
    store = open_store(proxy.through(database), listen_url=database, history=history)

    async def scene() -> None:
        await store.cells.set_many({"a": 0, "gone": 0})
        s = store.cells.session(op_id=uuid4() if given else None)
        await s.set("a", await s.get("a") + 1)
        await s.set("a", await s.get("a") + 1)
        await s.set("new", len(await s.list()))
        await s.delete("gone")
        getattr(proxy, when)(b"commit_session")
        assert await s.commit() == {"a": 3, "new": 1}
        assert await store.cells.get("a") == 2
        assert len(await store.cells.getv("a")) == (2 if history == "all" else 1)
        assert await store.cells.list() == ["a", "new"]

    colour.run(scene())
    assert proxy.counts.cuts == 1, "the cut hit nothing: the run is void"


def test_a_commit_whose_answer_stays_away_can_be_repeated_under_its_id(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store, op = open_store(proxy.through(database), listen_url=database), uuid4()

    async def work(s: AsyncCellsSession) -> None:
        await s.set("a", await s.get("a", 0) + 1)

    async def scene() -> None:
        proxy.cut_before_reply(b"commit_session", times=2)
        with pytest.raises(Unavailable) as raised:
            await store.cells.in_session(work, op_id=op)
        assert raised.value.outcome_unknown
        await store.cells.in_session(work, op_id=op)
        assert [cell.value for cell in await store.cells.getv("a")] == [1]

    colour.run(scene())


def test_a_second_try_that_finds_changes_cannot_tell_what_became_of_the_first(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, watched: Watched, namespace: str
) -> None:
    store = open_store(proxy.through(watched.url))

    def change_meanwhile(others: TransactionScope) -> None:
        watched.until(_WAITING, 1)
        proxy.cut()
        watched.until(_WAITING, 2)  # the first try is still there, and the second waits too
        others.__exit__(None, None, None)

    async def scene() -> None:
        await store.cells.set("a", 0)
        s = store.cells.session()
        await s.set("a", 1)
        with holdfast.open(watched.url.partition("?")[0], namespace) as other:
            others = other.transaction(timeout=60)
            others.__enter__().cells.set("a", "theirs")
            changer = threading.Thread(target=change_meanwhile, args=[others])
            changer.start()
            with pytest.raises(Unavailable) as raised:
                await s.commit()
            changer.join(PATIENCE)
        assert raised.value.outcome_unknown
        assert await store.cells.get("a") == "theirs"

    colour.run(scene())

"""The feed and its wake-ups on PostgreSQL: open transactions, restored dumps, lost connections."""

import asyncio
import contextlib
import gc
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import CAUGHT_UP, CellChange, Event, FeedEvent, StoreConfig
from holdfast.backends.postgres.watch import Exchange
from holdfast.facets.feed import from_cursor
from holdfast.runtime.blocking import BlockingRuntime
from holdfast.testing.servers import PostgresServer
from tests.feed.following import PATIENCE, caught_up, told

# Whoever waits for a change that nobody tells of waits in vain.
NO_POLLING = StoreConfig(poll_interval=3600)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.create_database()


def wait_until(what: str, true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.01)


# Open transactions


def test_a_writing_transaction_elsewhere_delays_but_loses_nothing(
    postgres: PostgresServer, url: str
) -> None:
    other = postgres.create_database()
    with holdfast.open(url) as store, psycopg.connect(other) as idle:
        watch = caught_up(store.cells.watch())
        idle.execute("CREATE TABLE t (x int)")  # it has a transaction id now, and stays open
        store.cells.set("a", 1)
        assert watch.next(timeout=0.2) is None
        # The present state is there for all who ask, and needs no log.
        late = store.cells.watch()
        assert told(late, 1) == [("a", 1)]
        caught_up(late)
        # Who follows the log is not caught up: it is known that there is more.
        follower = store.cells.watch(after=watch.cursor)
        assert follower.next(timeout=0.2) is None
        assert not follower.caught_up
        idle.rollback()
        assert told(watch, 1) == [("a", 1)]
        assert told(follower, 1) == [("a", 1)]
        caught_up(follower)
        assert late.next(timeout=0.1) is None


def test_a_page_is_read_in_one_pass_beside_an_open_transaction(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as early:
        start = _cursor(store)
        store.cells.set_many({f"n{number}": 1 for number in range(100)})
        store.join(early).cells.set_many({f"open{number}": 1 for number in range(100)})
        store.cells.set("held back", 1)
        query = store._backend.cells._own.changes  # type: ignore[attr-defined]  # noqa: SLF001
        (epoch, xid, seq), _ = from_cursor("cells", start)
        row = early.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {query}",
            {
                "namespace": "default",
                "branch_id": 0,
                "first": "",
                "end": "z",
                "epoch": epoch,
                "xid": xid,
                "seq": seq,
                "limit": 500,
            },
        ).fetchone()
        assert row is not None
        scans = [
            node["Actual Loops"]
            for node in _nodes(row[0][0]["Plan"])
            if node.get("Relation Name") == "cell_versions"
        ]
        assert scans == [1, 1]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def test_a_reading_transaction_delays_nobody(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as idle:
        watch = caught_up(store.cells.watch())
        idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        idle.execute("SELECT count(*) FROM holdfast.cells")
        store.cells.set("a", 1)
        assert told(watch, 1) == [("a", 1)]


def test_early_transaction_that_writes_late_keeps_the_order_of_versions(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as early:
        watch = caught_up(store.cells.watch())
        tx = store.join(early)
        tx.cells.set("other", "early")  # here it gets its id
        for number in (1, 2):
            store.cells.set("a", number)  # under larger ids
        tx.cells.set("a", 3)
        early.commit()
        changes = told(watch, 4)
        assert [value for name, value in changes if name == "a"] == [1, 2, 3]
        store.cells.set("a", 4)
        assert told(watch, 1) == [("a", 4)]


def test_merges_and_branches_keep_the_order_of_versions(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as early:
        store.cells.set("a", 0)
        store.branches.fork("side")
        watch = caught_up(store.cells.watch(after=_cursor(store)))
        tx = store.join(early)
        tx.namespace("other").cells.set("early", 1)
        store.cells.on("side").set("a", 1)
        store.branches.merge("side")
        tx.cells.set("a", 2)
        early.commit()
        assert told(watch, 2) == [("a", 1), ("a", 2)]


def _cursor(store: holdfast.Store) -> str:
    cursor = caught_up(store.cells.watch("nothing has this prefix")).cursor
    assert cursor is not None
    return cursor


# Wake-ups


def test_a_commit_elsewhere_wakes_a_watch_without_polling(url: str) -> None:
    with (
        holdfast.open(url, config=NO_POLLING) as store,
        holdfast.open(url, config=NO_POLLING) as writer,
    ):
        watch = caught_up(store.cells.watch())
        exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        sender = writer._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        wait_until("the listener listens", lambda: exchange._listening_since)  # noqa: SLF001
        writer.cells.set("a", 0)  # it finds the listener within a second of this
        wait_until("the writer knows of it", lambda: sender.heard_elsewhere)
        exchange._listening_since -= 60  # noqa: SLF001 - the time of looking by itself is over
        assert told(watch, 1) == [("a", 0)]
        for number in range(1, 20):
            writer.cells.set("a", number)
            assert told(watch, 1) == [("a", number)]
        # Nobody listens any more, so nobody is told.
        del watch
        writer.cells.set("a", 20)
        wait_until("the writer knows it", lambda: _written(writer) and not sender.heard_elsewhere)


def _written(store: holdfast.Store) -> int:
    return store.cells.set("again", 1)


def test_a_joined_transaction_wakes_a_watch_when_it_commits(url: str) -> None:
    with (
        holdfast.open(url, config=NO_POLLING) as store,
        holdfast.open(url, config=NO_POLLING) as writer,
        psycopg.connect(url) as connection,
    ):
        watch = caught_up(store.cells.watch())
        exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        wait_until("the listener listens", lambda: exchange._listening_since)  # noqa: SLF001
        exchange._listening_since -= 60  # noqa: SLF001
        tx = writer.join(connection)
        tx.cells.set("a", 1)
        assert watch.next(timeout=0.1) is None
        connection.commit()
        assert told(watch, 1) == [("a", 1)]


def test_a_transaction_joined_before_anybody_listened_wakes_who_came_since(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        ThreadPoolExecutor(1) as threads,
        holdfast.open(url, config=NO_POLLING) as store,
        holdfast.open(url, config=NO_POLLING) as writer,
        psycopg.connect(url) as connection,
    ):
        sender = writer._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        sender._start()  # noqa: SLF001 - so it believes that nobody listens
        writer.join(connection).cells.set("a", 1)
        watch = caught_up(store.cells.watch())
        exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        wait_until("the listener has looked", lambda: exchange._seen)  # noqa: SLF001
        exchange._listening_since -= 60  # noqa: SLF001
        assert watch.next(timeout=0.1) is None
        # At its time-out a watch looks once more by itself: that must not be what finds it.
        monkeypatch.setattr("holdfast.backends.postgres.watch._LONG", 3600.0)
        waiting = threads.submit(watch.next, timeout=2 * PATIENCE)
        connection.commit()
        change = waiting.result(PATIENCE)
        assert isinstance(change, CellChange)
        assert change.name == "a"


def test_who_only_joins_transactions_learns_who_listens(url: str) -> None:
    with (
        holdfast.open(url) as store,
        holdfast.open(url) as writer,
        psycopg.connect(url) as connection,
    ):
        watch = caught_up(store.cells.watch())
        sender = writer._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001

        def joined() -> None:
            writer.join(connection).cells.set("a", 1)
            connection.commit()

        wait_until("the writer knows", lambda: joined() or sender.heard_elsewhere)  # type: ignore[func-returns-value]
        del watch
        wait_until("the writer knows", lambda: joined() or not sender.heard_elsewhere)  # type: ignore[func-returns-value]


def test_a_role_that_may_only_read_is_woken(url: str) -> None:
    with (
        holdfast.open(url, config=NO_POLLING) as writer,
        psycopg.connect(url, autocommit=True) as admin,
    ):
        admin.execute("CREATE ROLE reader LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA holdfast TO reader")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO reader")
        try:
            with holdfast.open(url.replace("postgres@", "reader@"), config=NO_POLLING) as store:
                watch = caught_up(store.cells.watch())
                exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
                wait_until("the listener has looked", lambda: exchange._seen)  # noqa: SLF001
                exchange._listening_since -= 60  # noqa: SLF001
                writer.cells.set("a", 1)
                assert told(watch, 1) == [("a", 1)]
        finally:
            admin.execute("DROP OWNED BY reader")
            admin.execute("DROP ROLE reader")


def test_many_open_files_are_no_trouble(url: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1100  # select() takes descriptors up to 1023
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * many), limits[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(many):
            stack.enter_context(open(os.devnull, "rb"))  # noqa: PTH123
        writer, store = (
            stack.enter_context(holdfast.open(url, config=NO_POLLING)) for _ in range(2)
        )
        watch = caught_up(store.cells.watch())
        exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        wait_until("the listener has looked", lambda: exchange._seen)  # noqa: SLF001
        exchange._listening_since -= 60  # noqa: SLF001
        writer.cells.set("a", 1)
        assert told(watch, 1) == [("a", 1)]


def test_a_server_that_refuses_to_listen_is_asked_ever_less_often(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    done = threading.Event()

    def noted(exchange: Exchange, seconds: float, connection: object = None) -> None:
        del connection
        pauses.append(seconds)
        if len(pauses) == 8:
            exchange.end()
            done.set()

    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(url, autocommit=True)
        connection.execute("BEGIN")
        with contextlib.suppress(psycopg.Error):
            connection.execute("no SQL")  # now it refuses everything
        return connection

    monkeypatch.setattr(Exchange, "_sleep", noted)
    exchange = Exchange(connect, BlockingRuntime(), "x", can_listen=True, poll_interval=1)
    listener = exchange.listen(("cells", "default"))
    assert done.wait(PATIENCE)
    exchange.stop()
    del listener
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_what_a_process_told_nobody_of_before_it_died_is_found(url: str) -> None:
    with holdfast.open(url, config=NO_POLLING) as store:
        watch = caught_up(store.cells.watch())
        exchange = store._backend._db.exchange  # type: ignore[attr-defined]  # noqa: SLF001
        wait_until("the listener listens", lambda: exchange._listening_since)  # noqa: SLF001
        exchange._listening_since -= 60  # noqa: SLF001
        for number in range(3):
            program = (
                f"import os, holdfast; store = holdfast.open({url!r}); "
                f"store.cells.set('a', {number}); os._exit(0)"
            )
            subprocess.run([sys.executable, "-c", program], check=True)
            assert told(watch, 1) == [("a", number)]


def test_a_lost_listening_connection_is_made_again(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as admin:
        watch = caught_up(store.cells.watch())

        def listeners() -> list[int]:
            rows = admin.execute(
                "SELECT l.pid FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) "
                "WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()"
            ).fetchall()
            return [pid for (pid,) in rows]

        wait_until("somebody listens", listeners)
        (first,) = listeners()
        admin.execute("SELECT pg_terminate_backend(%s)", (first,))
        store.cells.set("a", 1)
        assert told(watch, 1) == [("a", 1)]
        wait_until("somebody listens again", lambda: [p for p in listeners() if p != first])


def test_a_watch_outlives_a_restart_of_the_server() -> None:
    with PostgresServer("18") as server, holdfast.open(server.create_database()) as store:
        watch = caught_up(store.cells.watch())
        store.cells.set("a", 1)
        assert told(watch, 1) == [("a", 1)]
        server.restart()
        store.cells.set("a", 2)
        assert told(watch, 1) == [("a", 2)]


def test_a_watch_says_when_the_server_stays_away(postgres: PostgresServer) -> None:
    async def main() -> None:
        with PostgresServer("18") as server:
            async with holdfast.open_async(server.create_database()) as store:
                watch = store.cells.watch()
                assert await watch.next(timeout=PATIENCE) is CAUGHT_UP
                server.stop()
                with pytest.raises(holdfast.Unavailable):
                    await watch.next(timeout=PATIENCE)

    del postgres
    asyncio.run(main())


def test_watches_leave_no_connection_and_no_thread_behind(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:

        def others() -> int:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            assert row is not None
            return int(row[0])

        for _ in range(3):
            store = holdfast.open(url)
            watch = caught_up(store.cells.watch("a"))
            store.cells.set("a", 1)
            told(watch, 1)
            store.cells.delete("a")
            store.close()
        forgotten = holdfast.open(url)
        caught_up(forgotten.cells.watch())
        del forgotten
        with pytest.warns(ResourceWarning, match="unclosed store"):
            gc.collect()
        wait_until("all connections are closed", lambda: others() == 0)


# Another server with the same data


def test_a_promoted_standby_begins_a_new_epoch_at_once() -> None:
    with PostgresServer("18") as server:
        url = server.create_database()
        with holdfast.open(url) as store:
            start = _cursor(store)
            store.cells.set("a", 1)
        with psycopg.connect(url) as admin:
            row = admin.execute("SHOW data_directory").fetchone()
            assert row is not None
        Path(row[0], "standby.signal").touch()
        server.restart()
        with holdfast.open(url) as store:  # which only reads, and cannot be told of anything
            assert told(store.cells.watch(after=start), 1) == [("a", 1)]
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("SELECT pg_promote()")
        with holdfast.open(url) as store:
            store.cells.set("a", 2)
            watch = store.cells.watch(after=start)
            assert told(watch, 2) == [("a", 1), ("a", 2)]
            epochs = [
                from_cursor("cells", cursor)[0].epoch for cursor in (start, watch.cursor or "")
            ]
            assert epochs == [1, 2]


# Restored into another cluster


def test_a_cursor_goes_on_in_another_cluster(postgres: PostgresServer, url: str) -> None:
    """Ids of transactions are larger where the dump comes from, and mean nothing where it goes."""
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        for _ in range(2000):
            admin.execute("SELECT pg_current_xact_id()")
    with holdfast.open(url) as store:
        start = _cursor(store)
        for number in range(5):
            store.cells.set("a", number)
        store.events.append_event(Event("old", "Noted", "k1"))
        watch = store.cells.watch(after=start)
        assert told(watch, 3) == [("a", 0), ("a", 1), ("a", 2)]
        middle = watch.cursor
        told(watch, 2)
        end = caught_up(watch).cursor
    dump = subprocess.run(
        [postgres.program("pg_dump"), "--no-owner", url], check=True, capture_output=True
    ).stdout
    with PostgresServer("18") as elsewhere:
        restored = elsewhere.create_database()
        subprocess.run(
            [elsewhere.program("psql"), "--quiet", "--set=ON_ERROR_STOP=1", restored],
            input=dump,
            check=True,
            capture_output=True,
        )
        with holdfast.open(restored) as store, holdfast.open(restored) as again:
            fresh = store.cells.watch()
            assert told(fresh, 1) == [("a", 4)]
            assert caught_up(fresh).cursor is not None
            follower = store.cells.watch(after=middle)
            assert told(follower, 2) == [("a", 3), ("a", 4)]
            caught_up(follower)
            for number in range(5, 8):
                again.cells.set("a", number)
            again.cells.set("b", 0)
            feed = store.events.feed(after=store.events.feed_end())
            for run_id in ("old", "new"):
                again.events.append_event(Event(run_id, "Noted", "k2"))
            fed = [feed.next(timeout=PATIENCE) for _ in range(2)]
            assert [one.event.run_id for one in fed if isinstance(one, FeedEvent)] == ["old", "new"]
            new = [("a", 5), ("a", 6), ("a", 7), ("b", 0)]
            assert told(follower, 4) == new
            assert told(store.cells.watch(after=end), 4) == new
            everything = store.cells.watch(after=start)
            assert told(everything, 9) == [("a", number) for number in range(5)] + new
            caught_up(everything)
            assert told(store.cells.watch(after=follower.cursor), 0) == []
        # Opened there again, it is where it was.
        with holdfast.open(restored) as store:
            assert store.cells.watch(after=follower.cursor).next(timeout=PATIENCE) is CAUGHT_UP

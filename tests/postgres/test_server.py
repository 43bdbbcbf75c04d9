"""What is PostgreSQL's own: schemas, settings, round trips, prepared statements, plans."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.backends.postgres.db import PostgresDb
from holdfast.backends.sql.migrate import load_migrations
from holdfast.backends.sql.queries import load, postgres
from holdfast.runtime.blocking import run
from holdfast.testing.servers import PostgresServer

Url = Callable[[], str]
PATIENCE = 30
HOUR_US = 3600 * 1_000_000
BEFORE_CONSTANT_OFFSET = 8


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


@pytest.fixture(scope="module")
def url(database: str) -> Url:
    numbers = itertools.count()
    return lambda: f"{database}?schema=own{next(numbers)}"


def _connection(store: holdfast.Store) -> psycopg.Connection[tuple[object, ...]]:
    """The driver's connection that the store used last."""
    idle = store._backend._db._pool._idle  # type: ignore[attr-defined]  # noqa: SLF001
    return idle[-1]._raw  # type: ignore[no-any-return]  # noqa: SLF001


def _setting(store: holdfast.Store, name: str) -> object:
    store.ping()
    row = _connection(store).execute(f"SHOW {name}", prepare=False).fetchone()
    assert row is not None
    return row[0]


def test_schema_keeps_stores_apart(database: str) -> None:
    with (
        holdfast.open(f"{database}?schema=blue") as blue,
        holdfast.open(database, config=StoreConfig(schema="green")) as green,
    ):
        blue.cells.set("x", "blue")
        assert green.cells.get("x") is None
    with psycopg.connect(database) as raw:
        tables = raw.execute("SELECT count(*) FROM blue.cells").fetchone()
    assert tables == (1,)


def test_schema_may_be_named_like_a_keyword(database: str) -> None:
    with holdfast.open(f"{database}?schema=order") as store:
        assert store.cells.set("x", 1) == 1
        assert [cell.value for cell in store.cells.getv("x")] == [1]
    holdfast.open(f"{database}?schema=order").close()


def test_several_hosts_are_libpqs_to_choose_from(database: str) -> None:
    user, _, place = database.removeprefix("postgresql://").partition("@")
    host, _, name = place.partition("/")
    with holdfast.open(f"postgresql://{user}@127.0.0.1:1,{host}/{name}?schema=hosts") as store:
        assert store.cells.set("x", 1) == 1


def test_bad_schema_name_is_refused(database: str) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="schema"):
        holdfast.open(f"{database}?schema=Bad-Name")


@contextlib.contextmanager
def _default(database: str, setting: str, value: str) -> Iterator[None]:
    """The database's own default is this."""
    name = database.rpartition("/")[2]
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
        try:
            yield
        finally:
            raw.execute(f"ALTER DATABASE {name} RESET {setting}")


@pytest.mark.parametrize(
    ("default", "always", "standard"),
    [
        ("off", "on", "off"),
        ("local", "on", "off"),
        ("remote_write", "on", "off"),
        ("on", "on", "off"),
        ("remote_apply", "remote_apply", "off"),
    ],
)
def test_durability_is_at_least_what_was_asked_for(
    url: Url, database: str, default: str, always: str, standard: str
) -> None:
    with _default(database, "synchronous_commit", default):
        with holdfast.open(f"{url()}&durability=always") as store:
            assert _setting(store, "synchronous_commit") == always
        with holdfast.open(f"{url()}&durability=standard") as store:
            assert _setting(store, "synchronous_commit") == standard


def test_default_isolation_of_the_database_does_not_matter(url: Url, database: str) -> None:
    with (
        _default(database, "default_transaction_isolation", "serializable"),
        holdfast.open(url()) as store,
    ):
        assert _setting(store, "transaction_isolation") == "read committed"


def test_pruning_and_writing_do_not_deadlock(url: Url) -> None:
    names = [f"x{number}" for number in range(20)]
    with holdfast.open(f"{url()}&history=2&durability=standard") as store:
        errors: list[holdfast.StoreError] = []

        def write(order: int) -> None:
            for number in range(40):
                try:
                    store.cells.set_many(dict.fromkeys(names[::order], number))
                    store.cells.prune()
                except holdfast.StoreError as exc:
                    errors.append(exc)

        threads = [threading.Thread(target=write, args=(order,)) for order in (1, -1, 1, -1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert {len(store.cells.getv(name)) for name in names} == {2}


def test_timeouts_are_the_servers_too(url: Url) -> None:
    with holdfast.open(f"{url()}&statement_timeout=7&lock_timeout=3") as store:
        assert _setting(store, "statement_timeout") == "7s"
        assert _setting(store, "lock_timeout") == "3s"
        assert _setting(store, "application_name") == "holdfast"


@pytest.mark.parametrize("endless", [1e9, timedelta(days=100_000_000)], ids=str)
def test_timeouts_beyond_what_the_server_counts_are_its_longest(
    url: Url, endless: float | timedelta
) -> None:
    config = StoreConfig(
        statement_timeout=endless, lock_timeout=endless, connect_timeout=endless, pool_size=1
    )
    with holdfast.open(url(), config=config) as store:
        assert _setting(store, "statement_timeout") == "2147483s"
        assert _setting(store, "lock_timeout") == "2147483s"
        # One waits for the other: the patience with the pool has its own limit.
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(store.cells.getv, "ab")) == [[], []]
        assert store.cells.set("x", 1) == 1

    async def main() -> None:
        async with holdfast.open_async(url(), config=config) as store:
            await asyncio.gather(store.cells.getv("a"), store.cells.getv("b"))

    asyncio.run(main())


def test_options_of_the_url_are_kept(url: Url) -> None:
    with holdfast.open(f"{url()}&options=-c%20work_mem%3D5MB") as store:
        assert _setting(store, "work_mem") == "5MB"
        assert _setting(store, "lock_timeout") == "5s"


class _Counted:
    """Counts what the server was asked, from its own books."""

    def __init__(self, store: holdfast.Store) -> None:
        store.ping()
        self._raw = _connection(store)

    def statements(self) -> dict[str, int]:
        rows = self._raw.execute(
            "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements",
            prepare=False,
        )
        return {str(text): int(str(count)) for text, count in rows}


def test_one_statement_per_operation(url: Url) -> None:
    with holdfast.open(url()) as store:
        counted = _Counted(store)
        before = counted.statements()
        for number in range(20):
            store.cells.set("x", number)
        store.cells.set_many({"a": 1, "b": 2})
        store.cells.cas("x", 1, 0)
        store.cells.delete("a")
        for _ in range(10):
            store.cells.get("x")
        after = counted.statements()
    done = {text: count - before.get(text, 0) for text, count in after.items()}
    writes = sum(count for text, count in done.items() if "write_cell" in text)
    reads = sum(count for text, count in done.items() if "unnest" in text and "write" not in text)
    assert (writes, reads, sum(done.values())) == (23, 10, 33)


def test_writes_of_a_kind_are_the_same_prepared_statement(url: Url) -> None:
    with holdfast.open(url()) as store:
        counted = _Counted(store)
        store.cells.set("x", 1)
        store.cells.cas("x", 1, None)
        store.cells.cas("x", 2**40, 1)
        assert sum("write_cell(" in text for text in counted.statements()) == 1
        store.cells.delete("x")
        store.cells.cas("x", None, "new")
        store.cells.init("x", 0)
        store.cells.set("x", 2, op_id=uuid4())
        assert sum("write_cell(" in text for text in counted.statements()) == 2
        for size in (2, 30, 300):
            store.cells.set_many({str(number): number for number in range(size)})
        assert sum("write_cells(" in text for text in counted.statements()) == 1


def test_concurrent_calls_share_statements(url: Url) -> None:
    async def main() -> int:
        async with holdfast.open_async(url()) as store:
            await asyncio.gather(*(store.cells.set(f"x{n}", n) for n in range(500)))
            pool = store._backend._db._pool  # type: ignore[attr-defined]  # noqa: SLF001
            raw = pool._idle[-1]._raw  # noqa: SLF001
            cursor = await raw.execute(
                "SELECT sum(generic_plans + custom_plans) FROM pg_prepared_statements "
                "WHERE statement LIKE '%write_cell%'",
                prepare=False,
            )
            ((count,),) = await cursor.fetchall()
            return int(count)

    assert asyncio.run(main()) <= 3


class _Echo:
    async def apply(self, on: object, items: Sequence[int], *, repeat: bool) -> Sequence[int]:
        del on, repeat
        return items


def test_operations_never_share_a_queue(url: Url) -> None:
    # What is queued for one operation is one statement: a batch that took over the place of
    # another one in memory must not take over its queue too.
    with holdfast.open(url()) as store:
        db: PostgresDb = store._backend._db  # type: ignore[attr-defined]  # noqa: SLF001
        queues = []
        for number in range(100):
            assert run(db.write(_Echo(), [number])) == [number]
            queues.append(list(db._coalescers.values())[-1])  # noqa: SLF001
    assert len(set(queues)) == 100


def test_no_query_reads_a_whole_table(url: Url) -> None:
    """On a young table without statistics, and with a generic plan, as in production."""
    target = url()
    schema = target.partition("schema=")[2]
    with holdfast.open(target) as store:
        for number in range(50):
            store.cells.set_many({f"x{n:03}": number for n in range(100)})
        store.branches.fork("b")
    dialect = postgres(schema)
    queries = load("holdfast.backends.sql", "cells.sql", dialect)
    queries |= load("holdfast.backends.sql", "branches.sql", dialect)
    for file in ("cells.sql", "branches.sql"):
        queries |= load("holdfast.backends.postgres", file, dialect)
    params = {
        "namespace": "default",
        "name": "x001",
        "at": 2**60,
        "before": 2**60,
        "limit": 10,
        "first": "x",
        "end": "y",
        "namespaces": "{default}",
        "names": "{x001}",
        "branch": "b",
        "branch_id": 1,
        "upto": 2**60,
        "everything": 2**60,
        "op_id": "0" * 32,
        "expected": "-1",
        "value": "1",
        "since_epoch": 1,
        "since_xid": 1,
        "since_seq": 1,
        "epoch": 1,
        "xid": 1,
        "seq": 1,
    }
    reads = ["get_cells", "get_cell_at", "list_versions", "list_names", "list_names_upto"]
    reads += ["list_level_versions", "get_branch_cell", "get_states", "list_merged"]
    reads += ["read_changes"]
    for name in [*reads, "write_live_cell"]:
        with psycopg.connect(target.partition("?")[0], autocommit=True) as raw:
            raw.execute("SET plan_cache_mode = force_generic_plan")
            raw.prepare_threshold = 0
            plan = "\n".join(
                line for (line,) in raw.execute(f"EXPLAIN {queries[name]}", params).fetchall()
            )
        assert "Seq Scan" not in plan, f"{name}:\n{plan}"
        assert "Join Filter" not in plan, f"{name}:\n{plan}"


# Migrations


def test_database_newer_than_the_code_is_refused(url: Url, database: str) -> None:
    target = url()
    holdfast.open(target).close()
    with psycopg.connect(database, autocommit=True) as raw:
        schema = target.partition("schema=")[2]
        raw.execute(f"INSERT INTO {schema}.migrations VALUES (9999, 'future', now())")
    with pytest.raises(holdfast.InvalidState, match=r"version 9999.*upgrade Holdfast"):
        holdfast.open(target)


def test_clock_moved_before_its_offset_was_a_constant_stays_moved(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = url()
    with monkeypatch.context() as then:
        known = load_migrations("holdfast.backends.postgres")[:BEFORE_CONSTANT_OFFSET]
        then.setattr("holdfast.backends.postgres.migrate.load_migrations", lambda _: known)
        with holdfast.open(target) as store:
            real = store.now()
            run(store._backend.move_clock(HOUR_US))  # noqa: SLF001 - for tests only
    with holdfast.open(target) as store:
        assert store.now() - real >= timedelta(hours=1)
        run(store._backend.move_clock(HOUR_US))  # noqa: SLF001 - for tests only
        assert store.now() - real >= timedelta(hours=2)


def test_migrate_false_refuses_an_empty_database(url: Url) -> None:
    target = url()
    with pytest.raises(holdfast.InvalidState, match=r"0001_cells.*holdfast\.migrate"):
        holdfast.open(f"{target}&migrate=false")
    holdfast.migrate(target)
    holdfast.open(f"{target}&migrate=false").close()


def test_user_without_create_rights_opens_a_migrated_store(url: Url, database: str) -> None:
    target = url()
    schema = target.partition("schema=")[2]
    holdfast.open(target).close()
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute("CREATE ROLE plain LOGIN")
        raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO plain")
        raw.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO plain")
        raw.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO plain")
        user = raw.info.user
    with holdfast.open(target.replace(f"//{user}@", "//plain@")) as store:
        assert store.cells.set("x", 1) == 1
    with pytest.raises(holdfast.Unauthorized):
        holdfast.open(url().replace(f"//{user}@", "//plain@"))


def test_migrations_of_two_schemas_do_not_wait_for_each_other(url: Url, database: str) -> None:
    held, free = url(), url()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
    with (
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(database) as holder,
        psycopg.connect(database, autocommit=True) as observer,
    ):
        # Its migration has the lock, and cannot create what somebody else is creating.
        holder.execute(f"CREATE SCHEMA {held.partition('schema=')[2]}")
        blocked = pool.submit(holdfast.migrate, held)
        while not blocked.done() and observer.execute(waiting).fetchone() == (0,):
            observer.execute("SELECT pg_sleep(0.02)")
        try:
            pool.submit(holdfast.migrate, free).result(PATIENCE)
            assert not blocked.done()
        finally:
            holder.rollback()
        blocked.result(PATIENCE)
    for target in (held, free):
        holdfast.open(f"{target}&migrate=false").close()


# The pool


def test_process_without_descriptors_gets_an_error_of_ours(url: Url) -> None:
    with holdfast.open(url()) as store, contextlib.ExitStack() as after:
        store.ping()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        after.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with contextlib.suppress(OSError):
            while True:
                after.callback(os.close, os.dup(0))
        # One is free again then: enough for a socket, not for waiting on it.
        run(store._backend._db._pool._drop_idle())  # type: ignore[attr-defined]  # noqa: SLF001
        with pytest.raises(holdfast.Unavailable) as raised:
            store.ping()
        assert not raised.value.outcome_unknown
        after.close()
        store.ping()


def test_pool_stays_within_its_size(url: Url, database: str) -> None:
    def processes() -> set[int]:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"
        with psycopg.connect(database) as raw:
            return {pid for (pid,) in raw.execute(query)}

    async def main() -> None:
        before = processes()
        async with holdfast.open_async(f"{url()}&pool_size=3") as store:
            await asyncio.gather(*(store.cells.getv(f"x{n}") for n in range(200)))
            deadline = time.monotonic() + 10
            # The one that looked at the schema may still be ending. What the pool has stays.
            while len(processes() - before) > 3:
                assert time.monotonic() < deadline, "the pool has more connections than it may"
            assert processes() - before

    asyncio.run(main())


def test_a_transaction_that_cannot_begin_leaves_no_trace(url: Url) -> None:
    with holdfast.open(f"{url()}&pool_size=1&connect_timeout=0.1") as store:
        inside, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            with store.transaction(timeout=60) as tx:
                tx.cells.set("a", 1)
                inside.set()
                go_on.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        assert inside.wait(30)
        with pytest.raises(holdfast.Timeout, match="pool_size"), store.transaction():
            raise AssertionError("must not begin")
        go_on.set()
        thread.join()
        assert store._backend._db.transactions == set()  # type: ignore[attr-defined]  # noqa: SLF001
        store.cells.set("a", 2)


def test_a_forgotten_transaction_frees_its_place(url: Url) -> None:
    with holdfast.open(f"{url()}&pool_size=1") as store:
        scope = store.transaction(timeout=3600)
        tx = scope.__enter__()
        tx.cells.set("a", 1)
        del scope, tx
        gc.collect()
        assert store.cells.set("a", "other") == 1

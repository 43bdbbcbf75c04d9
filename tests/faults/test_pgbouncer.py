"""Behind PgBouncer in transaction mode: nothing is lost silently, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast import AsyncStore, InvalidArgument, NotFound, Timeout, Unavailable
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.pooler import PooledAsync, PooledBlocking
from holdfast.backends.postgres.statements import PreparedAsync, PreparedBlocking
from holdfast.testing.bouncer import PgBouncer, need_pgbouncer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour

need_pgbouncer()

OpenStore = Callable[..., AsyncStore]

SPY = """
CREATE TABLE IF NOT EXISTS {schema}.seen (name text, setting text);
CREATE OR REPLACE FUNCTION {schema}.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.seen
    SELECT NEW.name, s.name || '=' || current_setting(s.name)
    FROM unnest(ARRAY[
        'lock_timeout', 'statement_timeout', 'transaction_isolation', 'synchronous_commit',
        'plan_cache_mode'
    ]) AS s (name);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER spy AFTER INSERT ON {schema}.cell_versions
FOR EACH ROW EXECUTE FUNCTION {schema}.spy();
"""
CONTRARY = """
ALTER DATABASE {database} SET default_transaction_isolation = 'serializable';
ALTER DATABASE {database} SET synchronous_commit = 'off';
"""


@pytest.fixture(scope="module")
def contrary(server: PostgresServer) -> str:
    """A database whose defaults are not what the store needs."""
    url = server.create_database()
    database = url.rpartition("/")[2]
    with psycopg.connect(server.url(), autocommit=True) as raw:
        for statement in filter(str.strip, CONTRARY.format(database=database).split(";")):
            raw.execute(statement.encode())
    return url


@pytest.fixture
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server.port) as bouncer:
        yield bouncer


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as raw:
        cursor = raw.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def idle_connection(store: AsyncStore) -> PgConnection:
    opened: Any = getattr(store, "target", store)
    connection: PgConnection = opened._backend._db._pool._idle[-1]  # noqa: SLF001
    return connection


def test_store_notices_the_pooler_by_itself(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour
) -> None:
    direct, pooled = open_store(database), open_store(bouncer.through(database))
    for store in (direct, pooled):
        colour.run(store.ping())
    assert type(idle_connection(direct)) in {PreparedBlocking, PreparedAsync}
    assert type(idle_connection(pooled)) in {PooledBlocking, PooledAsync}


@pytest.mark.parametrize("mode", ["transaction", "session", "statement"])
def test_store_notices_a_pooler_that_drops_the_settings(
    server: PostgresServer, database: str, open_store: OpenStore, colour: Colour, mode: str
) -> None:
    colour.run(open_store(database).ping())  # migrated: not possible in statement mode
    settings = {"ignore_startup_parameters": "options", "pool_mode": mode}
    with PgBouncer(server.port, settings=settings) as bouncer:
        store = open_store(bouncer.through(database))
        assert colour.run(store.cells.set("x", 1)) == 1
        assert type(idle_connection(store)) in {PooledBlocking, PooledAsync}
        colour.run(store.close())


def test_every_write_has_the_stores_settings(
    bouncer: PgBouncer, contrary: str, open_store: OpenStore, colour: Colour
) -> None:
    schema = f"spied_{type(colour).__name__.lower()}"

    async def write(store: AsyncStore) -> None:
        await store.cells.set("one", 1)
        await store.cells.set_many({"many": 1, "more": 1})
        async with store.transaction() as tx:
            await tx.cells.set("tx", 1)

    url = f"{bouncer.through(contrary)}?schema={schema}"
    store = open_store(url, lock_timeout=1.5, statement_timeout=7)
    execute(contrary, SPY.format(schema=schema))
    colour.run(write(store))

    wanted = {
        "lock_timeout=1500ms",
        "statement_timeout=7s",
        "transaction_isolation=read committed",
        "synchronous_commit=on",
        "plan_cache_mode=force_generic_plan",
    }
    seen = execute(contrary, f"SELECT name, setting FROM {schema}.seen")
    assert {(name, setting) for name, setting in seen} == {
        (name, setting) for name in ("one", "many", "more", "tx") for setting in wanted
    }


@pytest.mark.parametrize("durability", ["standard", "cache"])
def test_weaker_durability_reaches_the_server(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour, durability: str
) -> None:
    schema = f"weak_{durability}_{type(colour).__name__.lower()}"
    store = open_store(f"{bouncer.through(database)}?schema={schema}", durability=durability)
    execute(database, SPY.format(schema=schema))
    colour.run(store.cells.set("x", 1))
    seen = execute(database, f"SELECT setting FROM {schema}.seen WHERE setting LIKE 'sync%'")
    assert seen == [("synchronous_commit=off",)]


def test_nothing_is_left_in_the_servers_sessions(
    server: PostgresServer, contrary: str, open_store: OpenStore, colour: Colour
) -> None:
    async def work(store: AsyncStore) -> None:
        await store.cells.set("x", 1)
        await store.cells.get("x")
        async with store.transaction() as tx:
            await tx.cells.set("x", 2)
        with pytest.raises(InvalidArgument):
            async with store.transaction() as tx:
                await tx.execute("SELECT 1 / 0", ())

    # PgBouncer itself keeps application_name true; the isolation is each transaction's own.
    changed = """
        SELECT name, setting FROM pg_settings
        WHERE source = 'session' AND name NOT IN ('application_name', 'transaction_isolation')
    """
    with PgBouncer(server.port, settings={"default_pool_size": "1"}) as bouncer:
        url = bouncer.through(contrary)
        store = open_store(url)
        colour.run(work(store))
        assert execute(url, changed) == []
        assert execute(url, "SHOW transaction_isolation") == [("serializable",)]
        assert execute(url, "SELECT name FROM pg_prepared_statements") == []
        assert execute(url, "SELECT mode FROM pg_locks WHERE locktype = 'advisory'") == []
        colour.run(store.close())


def test_lock_timeout_ends_a_wait(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour
) -> None:
    store = open_store(bouncer.through(database), lock_timeout=0.2)
    colour.run(store.cells.set("x", 1))
    with psycopg.connect(database) as raw:
        raw.execute("SELECT FROM holdfast.cells FOR UPDATE")
        with pytest.raises(Timeout, match="lock timeout") as caught:
            colour.run(store.cells.set("x", 2))
        assert not caught.value.outcome_unknown
        raw.rollback()
    assert colour.run(store.cells.set("x", 2)) == 2


def test_statement_timeout_ends_a_statement(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour
) -> None:
    store = open_store(bouncer.through(database), statement_timeout=0.3, lock_timeout=20)
    colour.run(store.cells.set("x", 1))
    with psycopg.connect(database) as raw:
        raw.execute("SELECT FROM holdfast.cells FOR UPDATE")
        with pytest.raises(Timeout, match="statement timeout") as caught:
            colour.run(store.cells.set("x", 2))
        assert not caught.value.outcome_unknown
        raw.rollback()
    assert colour.run(store.cells.set("x", 2)) == 2


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "direct"])
def test_wait_for_locks_can_be_shortened_for_a_while(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour, *, pooled: bool
) -> None:
    async def shorten(connection: PgConnection) -> list[object]:
        seen = []
        for millis in (20, None):
            await connection.limit_lock_wait(millis)
            ((limit,),) = await connection.fetch("SELECT current_setting('lock_timeout')", {})
            seen.append(limit)
        return seen

    store = open_store(bouncer.through(database) if pooled else database, lock_timeout=3)
    colour.run(store.ping())
    assert colour.run(shorten(idle_connection(store))) == ["20ms", "3s"]


def test_store_works_again_after_the_pooler_was_killed(
    bouncer: PgBouncer, database: str, open_store: OpenStore, colour: Colour
) -> None:
    store = open_store(bouncer.through(database))
    colour.run(store.cells.set("x", 1))
    bouncer.kill()
    with pytest.raises(Unavailable):
        colour.run(store.cells.set("x", 2))
    bouncer.start()
    assert colour.run(store.cells.cas("x", 1, 3)) == 2


def test_own_options_that_the_pooler_refuses_are_named(
    bouncer: PgBouncer, database: str, open_store: OpenStore
) -> None:
    with pytest.raises(InvalidArgument, match="unsupported startup parameter"):
        open_store(f"{bouncer.through(database)}?options=-c%20work_mem%3D8MB")


def test_database_that_is_not_there_is_not_found(
    bouncer: PgBouncer, server: PostgresServer, open_store: OpenStore
) -> None:
    with pytest.raises(NotFound):
        open_store(bouncer.through(server.url("nowhere")))

# ruff: noqa: PT012 -- what is raised inside must pass the end of the caller's transaction
"""The store inside a transaction that the caller began, on psycopg and through SQLAlchemy."""

import asyncio
import uuid
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import holdfast
from holdfast.testing.servers import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database()


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


class Regret(Exception):
    """What a test raises inside the caller's transaction."""


def test_commits_with_the_callers_connection(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE payments (amount integer)")
        connection.commit()
        tx = store.join(connection)
        connection.execute("INSERT INTO payments VALUES (10)")
        assert tx.cells.set("balance", 90) == 1
        assert tx.cells.get("balance") == 90
        assert tx.execute("SELECT amount FROM payments") == [(10,)]
        assert store.cells.get("balance") is None
        connection.commit()
        assert store.cells.get("balance") == 90
        tx.cells.set("balance", 80)
        connection.rollback()
        assert store.cells.get("balance") == 90


def test_rolls_back_with_the_callers_block(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(Regret), connection.transaction():
            store.join(connection).cells.set_many({"a": 1, "b": 2})
            raise Regret
        assert store.cells.list() == []


def test_rows_come_as_tuples_whatever_the_caller_likes(url: str) -> None:
    with (
        holdfast.open(url) as store,
        psycopg.connect(url, row_factory=dict_row) as connection,
    ):
        tx = store.join(connection)
        assert tx.cells.set("a", {"deep": [1]}) == 1
        assert tx.cells.set("a", 2) == 2
        assert [cell.version for cell in tx.cells.getv("a")] == [2, 1]
        assert tx.execute("SELECT 1, 2") == [(1, 2)]
        assert connection.execute("SELECT 1 AS one").fetchall() == [{"one": 1}]


def test_the_callers_connection_may_have_any_encoding(url: str) -> None:
    with holdfast.open(url) as store:
        store.cells.set("zäh", "ö")
        store.records.put("zäh", {"ä": "ö"})
        with psycopg.connect(url, client_encoding="LATIN1") as connection:
            tx = store.join(connection)
            assert tx.cells.get("zäh") == "ö"
            assert tx.records.get_field("zäh", "ä") == "ö".encode()
            tx.cells.set_many({"öne": "ü", "twö": 2})
        assert store.cells.get("öne") == "ü"
        assert store.cells.list() == ["twö", "zäh", "öne"]


def test_retention_keeps_what_a_branch_sees_that_the_transaction_cannot(url: str) -> None:
    """An older snapshot than the fork: what it does not know it must not throw away."""
    brief = holdfast.StoreConfig(history=1)
    with holdfast.open(url, config=brief) as store, psycopg.connect(url) as connection:
        store.cells.set("a", 1)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        store.branches.fork("b")
        assert store.join(connection).cells.set("a", 2) == 2
        connection.commit()
        assert store.cells.on("b").get("a") == 1
        assert store.cells.set("a", 3) == 3  # retention goes on with the next write
        assert [cell.version for cell in store.cells.getv("a")] == [3]


def test_operation_ids_hold_across_the_callers_transactions(url: str) -> None:
    op_id = uuid.uuid4()
    with holdfast.open(url) as store, psycopg.connect(url) as connection:
        tx = store.join(connection)
        assert tx.cells.set("a", 1, op_id=op_id) == 1
        connection.commit()
        assert tx.cells.set("a", 1, op_id=op_id) == 1
        connection.commit()
        assert len(store.cells.getv("a")) == 1


def test_needs_a_transaction(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as connection:
        tx = store.join(connection)
        with pytest.raises(holdfast.InvalidState, match="no transaction"):
            tx.cells.set("a", 1)
        with connection.transaction():
            tx.cells.set("a", 2)
        with pytest.raises(holdfast.InvalidState, match="no transaction"):
            tx.cells.get("a")
        assert store.cells.get("a") == 2


def test_a_failed_transaction_is_the_callers_to_end(url: str) -> None:
    with holdfast.open(url) as store, psycopg.connect(url) as connection:
        tx = store.join(connection)
        tx.cells.set("a", 1)
        with pytest.raises(holdfast.StoreError) as raised:
            tx.execute("SELECT * FROM nowhere")
        assert not raised.value.outcome_unknown
        with pytest.raises(holdfast.StoreError, match="aborted"):
            tx.cells.set("a", 2)
        connection.rollback()
        tx.cells.set("b", 3)
        connection.commit()
        assert store.cells.list() == ["b"]


def test_joins_a_sqlalchemy_session_and_connection(url: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(url))
    with holdfast.open(url) as store:
        with Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text("CREATE TABLE payments (amount integer)"))
            store.join(session).cells.set("session", 1)
        with pytest.raises(Regret), Session(engine) as session, session.begin():
            store.join(session).cells.set("session", 2)
            raise Regret
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO payments VALUES (1)"))
            tx = store.join(connection)
            assert tx.execute("SELECT count(*) FROM payments") == [(1,)]
            tx.cells.set("connection", 1)
        assert store.cells.get("session") == 1
        assert store.cells.get("connection") == 1
    engine.dispose()


def test_joins_in_asyncio(url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(alchemy(url))
        async with holdfast.open_async(url) as store:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                tx = await store.join(connection)
                await tx.cells.set("psycopg", 1)
                assert await store.cells.get("psycopg") is None
            async with AsyncSession(engine) as session, session.begin():
                tx = await store.join(session)
                await tx.cells.set("session", 1)
            async with engine.begin() as alchemy_connection:
                tx = await store.join(alchemy_connection)
                await tx.cells.set("connection", 1)
            with pytest.raises(Regret):
                async with AsyncSession(engine) as session, session.begin():
                    await (await store.join(session)).cells.set("session", 2)
                    raise Regret
            assert await store.cells.list() == ["connection", "psycopg", "session"]
            assert await store.cells.get("session") == 1
        await engine.dispose()

    asyncio.run(main())


def test_what_cannot_be_joined_is_refused(url: str) -> None:
    sqlite = sqlalchemy.create_engine("sqlite://")
    with holdfast.open(url) as store:
        for wrong in (None, 1, "connection", object(), url):
            with pytest.raises(holdfast.InvalidArgument, match="wanted a psycopg connection"):
                store.join(wrong)
        with (
            sqlite.connect() as connection,
            pytest.raises(holdfast.InvalidArgument, match="wanted a psycopg connection"),
        ):
            store.join(connection)
    sqlite.dispose()


def test_the_other_colour_is_refused(url: str) -> None:
    async def main() -> None:
        async with holdfast.open_async(url) as store:
            with (
                psycopg.connect(url) as connection,
                pytest.raises(holdfast.InvalidArgument, match="asyncio code"),
            ):
                await store.join(connection)
            async with await psycopg.AsyncConnection.connect(url) as connection:
                with (
                    holdfast.open(url) as blocking,
                    pytest.raises(holdfast.InvalidArgument, match="blocking code"),
                ):
                    blocking.join(connection)

    asyncio.run(main())


def test_sqlite_says_that_it_cannot(tmp_path: object) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path}/x.db") as store,
        pytest.raises(holdfast.Unsupported, match="takes part in the caller's own transaction"),
    ):
        store.join(object())

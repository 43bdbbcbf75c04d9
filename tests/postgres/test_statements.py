"""Prepared statements: each once per connection, not too many, anew when they were taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.backends.postgres.connection import PgConnection
from holdfast.runtime.blocking import run
from holdfast.testing.servers import CARELESS, PostgresServer

KEPT = 200


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield server.create_database()


@pytest.fixture
def connection(database: str) -> Iterator[PgConnection]:
    with holdfast.open(database) as store:
        pool = store._backend._db._pool  # type: ignore[attr-defined]  # noqa: SLF001
        lease = run(pool.take())
        yield lease.connection
        run(lease.end(None))


def _prepared(connection: PgConnection) -> list[str]:
    rows = run(connection.run("SELECT statement FROM pg_prepared_statements"))
    return [text for (text,) in rows]


def test_statement_is_prepared_once(connection: PgConnection) -> None:
    query = "SELECT %(a)s::text || '%%' || %(b)s::text || %(a)s::text"
    for number in range(3):
        assert run(connection.fetch(query, {"a": "a", "b": str(number)})) == [(f"a%{number}a",)]
    assert _prepared(connection) == ["SELECT $1::text || '%' || $2::text || $1::text"]


def test_statement_is_prepared_for_each_type_it_is_given(connection: PgConnection) -> None:
    for value in (1, 2**40, None, "1", 2):
        expected = None if value is None else int(value)
        assert run(connection.fetch("SELECT %(a)s::bigint", {"a": value})) == [(expected,)]
    assert len(_prepared(connection)) == 3


def test_statement_that_fails_to_prepare_harms_no_other(connection: PgConnection) -> None:
    for _ in range(2):
        with pytest.raises(holdfast.Database, match="nowhere"):
            run(connection.fetch("SELECT 1 FROM nowhere", {}))
    assert run(connection.fetch("SELECT 1", {})) == [(1,)]


def test_so_many_statements_are_kept_and_no_more(connection: PgConnection) -> None:
    for number in [*range(3 * KEPT), *range(10)]:
        assert run(connection.fetch(f"SELECT {number} + %(a)s", {"a": 1})) == [(number + 1,)]
        assert number % 50 or len(_prepared(connection)) <= KEPT


@pytest.mark.parametrize("taking", ["DEALLOCATE ALL", "SELECT 1; deallocate all"])
def test_statements_that_a_caller_took_away_are_prepared_anew(database: str, taking: str) -> None:
    with holdfast.open(database) as store:
        store.cells.set("a", 1)
        with store.transaction() as tx:
            before = tx.cells.get("a")
            tx.execute(taking)
            assert tx.cells.get("a") == before
            tx.cells.set("a", 2)
        assert store.cells.get("a") == 2

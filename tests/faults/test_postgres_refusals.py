"""A server that refuses or does not answer: a typed error in time that keeps the password."""

import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest

from holdfast import (
    AsyncStore,
    InvalidArgument,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour

OpenStore: TypeAlias = Callable[..., AsyncStore]
PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives for these tests
IMPATIENT = {"connect_timeout": 2, "statement_timeout": 0.2, "lock_timeout": 0.2}
# Far above what IMPATIENT allows for one try and its repeat, far below the defaults' sum.
IN_TIME = 30.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that wants a password from the user `guest`."""
    with PostgresServer("18") as server:
        rules = "host all guest all scram-sha-256\nhost all all all trust\n"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'".encode())
            ((path,),) = connection.execute("SHOW hba_file").fetchall()
        Path(path).write_text(rules, encoding="utf-8")
        server.restart()
        yield server


def refusal(open_store: OpenStore, url: str) -> StoreError:
    """The error of opening, checked to be in time and to keep the password."""
    started = time.monotonic()
    with pytest.raises(StoreError) as raised:
        open_store(url, **IMPATIENT)
    assert time.monotonic() - started < IN_TIME
    check_secrecy(raised.value)
    return raised.value


def check_secrecy(error: BaseException | None) -> None:
    """Neither the error nor those behind it, which a traceback shows, hold the password."""
    while error is not None:
        assert PASSWORD not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_wrong_password_is_unauthorized(open_store: OpenStore, guarded: PostgresServer) -> None:
    where = f"127.0.0.1:{guarded.port}/postgres"
    with psycopg.connect(f"postgresql://guest:{PASSWORD}@{where}") as right:
        right.execute("SELECT 1")
    error = refusal(open_store, f"postgresql://guest:{PASSWORD}!@{where}")
    assert type(error) is Unauthorized
    assert not error.retryable
    assert where in str(error)


def test_user_without_the_right_to_create_is_unauthorized(
    open_store: OpenStore, guarded: PostgresServer
) -> None:
    error = refusal(open_store, f"postgresql://guest:{PASSWORD}@127.0.0.1:{guarded.port}/postgres")
    assert type(error) is Unauthorized


def test_missing_database_is_not_found(open_store: OpenStore, guarded: PostgresServer) -> None:
    where = f"127.0.0.1:{guarded.port}/absent"
    error = refusal(open_store, f"postgresql://guest:{PASSWORD}@{where}")
    assert type(error) is NotFound
    assert not error.retryable
    assert where in str(error)


def test_refused_connection_is_unavailable(open_store: OpenStore, proxy: FaultProxy) -> None:
    proxy.refuse()
    where = f"127.0.0.1:{proxy.port}/somewhere"
    error = refusal(open_store, f"postgresql://guest:{PASSWORD}@{where}")
    assert type(error) is Unavailable
    assert error.retryable
    assert where in str(error)


@pytest.mark.parametrize("match", [b"", b"SELECT"], ids=["connecting", "migrating"])
def test_server_that_never_answers_while_opening_times_out(
    open_store: OpenStore, proxy: FaultProxy, match: bytes
) -> None:
    proxy.black_hole_at(match)
    where = f"127.0.0.1:{proxy.port}/postgres"
    error = refusal(open_store, f"postgresql://postgres:{PASSWORD}@{where}")
    assert type(error) in {Timeout, Unavailable}
    assert error.retryable
    assert where in str(error)


def test_server_that_stops_answering_times_out_every_caller_and_works_again(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), **IMPATIENT)
    writes = [partial(store.cells.set, f"cell-{n}", n, op_id=uuid4()) for n in range(8)]
    assert colour.run(store.cells.set("before", 1)) == 1
    proxy.black_hole_at(b"cell-")
    started = time.monotonic()
    reads: list[Coroutine[Any, Any, object]] = [store.cells.get("before"), store.ping()]
    errors = colour.run(colour.together([*(write() for write in writes), *reads]))
    assert time.monotonic() - started < IN_TIME
    for error in errors[: len(writes)]:
        assert isinstance(error, Timeout | Unavailable)
        assert error.retryable
    unsure = [error for error in errors if isinstance(error, StoreError) and error.outcome_unknown]
    assert unsure, "what the hole swallowed may arrive yet"
    # What was held is now delivered, late, and must not count beside its repeat.
    proxy.heal()
    assert [colour.run(write()) for write in writes] == [1] * len(writes)
    assert [colour.run(store.cells.get(f"cell-{n}")) for n in range(8)] == list(range(8))


def test_read_only_server_writes_nothing_and_is_worth_another_try(
    colour: Colour, open_store: OpenStore, database: str
) -> None:
    colour.run(open_store(database).cells.set("cell", 1))
    store = open_store(f"{database}?options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(Unavailable, match="read-only") as raised:
        colour.run(store.cells.set("cell", 2))
    assert raised.value.retryable
    assert not raised.value.outcome_unknown
    assert [cell.version for cell in colour.run(store.cells.getv("cell"))] == [1]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://guest:{PASSWORD}@127.0.0.1:no-port/somewhere",
        f"postgresql://guest:{PASSWORD}@127.0.0.1:1/somewhere?no_such_option=1",
        f"postgresql://guest:{PASSWORD}/x@127.0.0.1:1/somewhere",
        f"postgresql://guest:x/{PASSWORD}@127.0.0.1:1/somewhere",
        f"postgresql://guest:{PASSWORD}%zz@127.0.0.1:1/somewhere",
        f"postgresql://127.0.0.1:1/somewhere?user=guest&password={PASSWORD}&no_such_option=1",
        f"postgresql://127.0.0.1:1/somewhere?user=guest&password=x&{PASSWORD}=1",
        f"postgresql://guest:{PASSWORD}@{'h' * 64}/somewhere",
        f"postgresql://guest:{PASSWORD}@one..two/somewhere",
        f"postgresql://guest:{PASSWORD}@127.0.0.1:1,{'h' * 64}/somewhere",
        f"postgresql://guest:{PASSWORD}@%ff/somewhere",
        f"postgresql://guest:{PASSWORD}\udc80@127.0.0.1:1/somewhere",
        f"postgresql://guest:{PASSWORD}\0@127.0.0.1:1/somewhere",
    ],
    ids=str.__repr__,
)
def test_bad_url_is_refused_without_its_password(open_store: OpenStore, url: str) -> None:
    assert type(refusal(open_store, url)) is InvalidArgument


@pytest.mark.parametrize("password", [f"1?{PASSWORD}=x", f"1?x&{PASSWORD}"])
def test_password_with_an_unescaped_mark_is_read_and_kept(
    open_store: OpenStore, password: str
) -> None:
    error = refusal(open_store, f"postgresql://guest:{password}@127.0.0.1:1/somewhere")
    assert type(error) is Unavailable
    assert "127.0.0.1" in str(error)


def test_unknown_option_is_named(open_store: OpenStore) -> None:
    url = f"postgresql://guest:{PASSWORD}@127.0.0.1:1/somewhere?sslmode=prefer&no_such_option=1"
    error = refusal(open_store, url)
    assert type(error) is InvalidArgument
    assert "unknown option 'no_such_option'" in str(error)
    assert "%XX" not in str(error)


@pytest.mark.parametrize("length", [64, 1000, 20_000], ids=str)
def test_user_longer_than_any_is_a_refusal_of_ours(
    open_store: OpenStore, guarded: PostgresServer, length: int
) -> None:
    where = f"127.0.0.1:{guarded.port}/postgres"
    error = refusal(open_store, f"postgresql://{'u' * length}:{PASSWORD}@{where}")
    assert type(error) in {NotFound, Unauthorized, Unavailable}

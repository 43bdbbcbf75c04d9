"""A store that was lent before is as good as a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import holdfast
from holdfast import AsyncStore, Event, Store
from holdfast.runtime.blocking import run
from holdfast.testing.lending import StoreLender
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.world import backend_of

# A store that is restored elsewhere begins an epoch; changes that are forgotten leave a floor.
UNTOUCHED = {"migrations", "epochs", "record_floors"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield server


@pytest.fixture
def lender(server: PostgresServer) -> Iterator[StoreLender]:
    with StoreLender(server) as lender:
        yield lender


def test_stores_of_one_loan_are_apart(lender: StoreLender) -> None:
    with lender.loan() as fresh_url:
        first, second = fresh_url(), fresh_url()
        with holdfast.open(first) as store, holdfast.open(second) as other:
            store.cells.set("a", 1)
            assert other.cells.get("a") is None


def test_store_that_came_back_is_lent_again_and_holds_what_a_new_one_does(
    lender: StoreLender,
) -> None:
    with lender.loan() as fresh_url:
        url = fresh_url()
        new = everything(url)
        with holdfast.open(url) as store:
            use(store)
        used = everything(url)
        assert {name for name in new if used[name] == new[name]} == UNTOUCHED
    assert everything(url) == new
    with lender.loan() as fresh_url:
        assert fresh_url() == url


def test_what_a_used_store_answers_is_what_a_new_one_answers(lender: StoreLender) -> None:
    answers = []
    urls = set()
    for _ in range(3):
        with lender.loan() as fresh_url:
            urls.add(url := fresh_url())
            with holdfast.open(url) as store:
                answers.append(use(store))
    assert len(urls) == 1
    assert answers == [answers[0]] * 3


def test_store_with_other_tables_is_not_lent_again(lender: StoreLender) -> None:
    with lender.loan() as fresh_url:
        url = fresh_url()
        with holdfast.open(url) as store:
            store.cells.enable_search()
    with lender.loan() as fresh_url:
        assert fresh_url() != url


def test_who_still_holds_a_store_at_the_end_is_told(server: PostgresServer) -> None:
    with StoreLender(server, lock_secs=0.01) as lender, ExitStack() as lent:
        database, _, schema = lent.enter_context(lender.loan())().partition("?schema=")
        with psycopg.connect(database) as holder:
            holder.execute(SQL("LOCK TABLE {}").format(Identifier(schema, "cells")))
            with pytest.raises(psycopg.errors.LockNotAvailable):
                lent.close()


def use(store: Store) -> list[object]:
    """Put something into every table; what the store says to it, without times."""
    moved = store.now() - datetime.now(UTC) > timedelta(minutes=30)
    store.transport.create_group("gone", "a.>")
    store.transport.delete_group("gone")
    store.transport.create_group("g", "a.>")
    store.transport.publish("a.b", 1, message_id="m")
    delivery = store.transport.fetch("g")
    assert delivery is not None
    store.records.create_index("r/", "field")
    store.records.put("r/1", {"field": b"1"})
    versions = [store.cells.set("cell", value) for value in range(3)]
    store.branches.fork("branch")
    store.cells.on("branch").set("cell", "other")
    merged = store.branches.merge("branch")
    appended = store.events.append_event(Event("run", "Noted", "key"))
    store.events.keep_snapshot("run")
    run(backend_of(cast("AsyncStore", store)).move_clock(3_600_000_000))
    return [moved, delivery.number, versions, merged, appended.run_seq, store.events.list_runs()]


def everything(url: str) -> dict[str, list[Any]]:
    """The rows of every table and the positions of every sequence."""
    database, _, schema = url.partition("?schema=")
    with psycopg.connect(database) as connection:
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'S')"
            " AND relnamespace = to_regnamespace(%s)",
            [schema],
        ).fetchall()
        return {
            name: sorted(
                connection.execute(SQL("SELECT * FROM {}").format(Identifier(schema, name))),
                key=str,
            )
            for (name,) in names
        }

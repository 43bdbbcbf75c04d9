"""A fork taken while processes write is a true cut: its past never changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast.backends.sql.queries import load, postgres
from holdfast.testing.fleet import Fleet
from holdfast.testing.servers import PostgresServer

TASKS = Path(__file__).with_name("tasks.py")
WRITERS = 4
CELLS = 5
FORKS = 25
PATIENCE = 30


def test_the_past_of_a_fork_never_changes(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url = new_url()
    orders = [{"url": url, "cells": CELLS, "writer": writer} for writer in range(WRITERS)]
    tasks = [f"{TASKS}:write_pairs"] * WRITERS + [f"{TASKS}:fork_and_read"]
    with holdfast.open(url) as store:
        *_, first_looks = fleet.run(tasks, [*orders, {"url": url, "forks": FORKS}])
        for name, first_look in first_looks.items():
            branch = store.cells.on(name)
            assert {cell: branch.get(cell) for cell in branch.list()} == first_look
            # Both halves of a set_many are in the cut, or none.
            halves = [
                (first_look.get(f"{cell}/left"), first_look.get(f"{cell}/right"))
                for cell in range(CELLS)
            ]
            assert all(left == right for left, right in halves), halves
    assert len(first_looks) == FORKS


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.create_database()


@pytest.mark.parametrize("statement", ["write_live_cell", "write_cell"])
def test_fork_waits_for_a_writer_in_flight(database: str, statement: str) -> None:
    with holdfast.open(database) as store, psycopg.connect(database) as writer:
        store.cells.set("x", "before")
        _write_in_flight(writer, "x", "in flight", statement)
        with ThreadPoolExecutor(1) as pool:
            forked = pool.submit(store.branches.fork, "b")
            _wait_for_a_waiter(database, forked)
            writer.commit()
            forked.result(timeout=PATIENCE)
        assert store.cells.on("b").get("x") == "in flight"


def test_writer_waits_for_a_fork_in_flight_and_comes_after_it(database: str) -> None:
    with holdfast.open(database) as store, psycopg.connect(database) as forking:
        store.cells.set("x", "before")
        forking.execute(
            "SELECT holdfast.fork_branch('default', 'b', 'main', gen_random_uuid(), 100)"
        )
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(store.cells.set, "x", "after")
            _wait_for_a_waiter(database, written)
            forking.commit()
            assert written.result(timeout=PATIENCE) == 2
        assert (store.cells.get("x"), store.cells.on("b").get("x")) == ("after", "before")


def test_fork_point_from_the_sequence_alone_does_change(database: str) -> None:
    """The control: the same race without the lock changes the fork's past."""
    with (
        holdfast.open(database) as store,
        psycopg.connect(database) as writer,
        psycopg.connect(database, autocommit=True) as raw,
    ):
        store.cells.set("x", "before")
        _write_in_flight(writer, "x", "in flight")
        raw.execute(
            "INSERT INTO holdfast.branches"
            " (namespace, name, parent_id, fork_commit, created_at, op_id)"
            " VALUES ('default', 'b', 0, nextval('holdfast.commit_ids'), 0, gen_random_uuid())"
        )
        assert store.cells.on("b").get("x") == "before"
        writer.commit()
        assert store.cells.on("b").get("x") == "in flight"


def test_fork_waits_no_longer_than_lock_timeout(database: str) -> None:
    with (
        holdfast.open(f"{database}?lock_timeout=0.1") as store,
        psycopg.connect(database) as writer,
    ):
        store.cells.set("x", "before")
        _write_in_flight(writer, "x", "in flight")
        with pytest.raises(holdfast.Timeout):
            store.branches.fork("b")
        writer.rollback()
        assert store.branches.list() == []


def test_delete_waits_for_a_merge_that_begins_and_takes_its_note_along(database: str) -> None:
    """Else the merge would end on a branch that is gone, and its cut be kept for ever."""
    with holdfast.open(database) as store, psycopg.connect(database) as raw:
        store.branches.fork("source")
        store.branches.fork("target")
        begin = "SELECT * FROM holdfast.begin_merge('default', 'source', 'target', %s)"
        raw.execute(begin, [uuid4()])
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(store.branches.delete, "target")
            _wait_for_a_waiter(database, done)
            raw.commit()
            assert done.result(timeout=PATIENCE)
        assert raw.execute("SELECT * FROM holdfast.merges").fetchall() == []


def test_merge_into_a_branch_that_is_being_deleted_finds_it_gone(database: str) -> None:
    with holdfast.open(database) as store, psycopg.connect(database) as raw:
        store.branches.fork("source")
        store.branches.fork("target")
        store.cells.on("source").set("x", 1)
        raw.execute("SELECT holdfast.delete_branch('default', 'target', gen_random_uuid())")
        with ThreadPoolExecutor(1) as pool:
            merged = pool.submit(store.branches.merge, "source", "target")
            _wait_for_a_waiter(database, merged)
            raw.commit()
            with pytest.raises(holdfast.NotFound, match="'target'"):
                merged.result(timeout=PATIENCE)
        assert raw.execute("SELECT * FROM holdfast.merges").fetchall() == []


def _write_in_flight(
    writer: psycopg.Connection[Any], name: str, value: str, statement: str = "write_live_cell"
) -> None:
    """Write a cell as the store does, and leave the transaction open."""
    queries = load("holdfast.backends.postgres", "cells.sql", postgres("holdfast"))
    writer.execute(
        queries[statement].encode(),
        {
            "namespace": "default",
            "branch": "main",
            "name": name,
            "expected": "-1",
            "value": f'"{value}"',
            "op_id": uuid4().hex,
            "look_up": False,
            "repeat": False,
            "versions": None,
            "age_us": None,
        },
    )


def _wait_for_a_waiter(database: str, work: Future[Any]) -> None:
    """Until somebody waits for a lock; the work that should is over when it does not."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(database, autocommit=True) as raw:
        while raw.execute(waiting).fetchone() == (0,):
            assert not work.done(), "it waited for nobody"
            assert time.monotonic() < deadline, "it never waited for a lock"

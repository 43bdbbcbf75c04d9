"""A fork taken while processes write is a true cut: its past never changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import holdfast
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


def test_fork_waits_for_a_writer_in_flight(database: str) -> None:
    with holdfast.open(database) as store, psycopg.connect(database) as writer:
        store.cells.set("x", "before")
        _write_in_flight(writer, "x", "in flight")
        forked = threading.Event()

        def fork() -> None:
            store.branches.fork("b")
            forked.set()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(fork)
            _wait_for_a_waiter(database)
            assert not forked.is_set()
            writer.commit()
            done.result(timeout=30)
        assert store.cells.on("b").get("x") == "in flight"


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


def _write_in_flight(writer: psycopg.Connection[tuple[object, ...]], name: str, value: str) -> None:
    """Write a cell as the store does, and leave the transaction open."""
    writer.execute(
        "SELECT holdfast.write_cell('default', 'main', %s, -1, %s, gen_random_uuid(),"
        " false, false, NULL, NULL, NULL)",
        (name, f'"{value}"'),
    )


def _wait_for_a_waiter(database: str) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(database, autocommit=True) as raw:
        while raw.execute(waiting).fetchone() == (0,):
            assert time.monotonic() < deadline, "the fork never waited for the writer's lock"

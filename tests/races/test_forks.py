"""A fork taken while processes write is a true cut: its past never changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
    order = {"url": url, "cells": CELLS, "times": 60}
    orders = [{**order, "writer": writer} for writer in range(WRITERS)]
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
    distinct = {tuple(sorted(look.items())) for look in first_looks.values()}
    assert len(distinct) > FORKS // 5, "void: hardly anybody wrote between the forks"


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


def test_fork_makes_the_same_statements_and_rows_however_many_cells(tmp_path: Path) -> None:
    found = {}
    for cells in (100, 100_000):
        with holdfast.open(f"sqlite:///{tmp_path}/{cells}.db?durability=cache") as store:
            _fill(store, cells)
            writer = store._backend._db._writer.raw  # type: ignore[attr-defined]  # noqa: SLF001
            statements: list[str] = []
            writer.set_exec_trace(lambda _cursor, sql, _params, to=statements: not to.append(sql))
            before = writer.total_changes()
            store.branches.fork("b")
            found[cells] = (statements, writer.total_changes() - before)
            assert store.cells.on("b").get(f"x{cells - 1}") == 0
    assert found[100] == found[100_000]
    assert found[100][1] == 1


def test_fork_touches_the_same_pages_however_many_cells_on_postgres(
    postgres: PostgresServer,
) -> None:
    touched = {}
    for cells in (100, 100_000):
        database = postgres.create_database()
        with holdfast.open(database) as store:
            _fill(store, cells)
        with psycopg.connect(database, autocommit=True) as raw:
            _pages_touched(raw, "warm")  # the first call also loads the catalogue
            touched[cells] = _pages_touched(raw, "b")
    assert touched[100_000] <= touched[100] + 2  # a page that filled up meanwhile
    assert touched[100] < 100


def _pages_touched(raw: psycopg.Connection[tuple[Any, ...]], branch: str) -> int:
    row = raw.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM holdfast.fork_branch("
        f"'default', '{branch}', 'main', gen_random_uuid(), 16)"
    ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _fill(store: holdfast.Store, cells: int) -> None:
    step = 10_000
    for first in range(0, cells, step):
        numbers = range(first, min(first + step, cells))
        store.cells.set_many({f"x{number}": 0 for number in numbers})

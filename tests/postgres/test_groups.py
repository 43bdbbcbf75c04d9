"""Groups on PostgreSQL: who waits for whom, and what is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast.testing.servers import PostgresServer
from tests.faults.kept_operations import move_clock, operations_are_known_for_a_day

PATIENCE = 30.0  # seconds
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


def test_a_group_that_is_deleted_during_a_fetch_leaves_no_delivery(server: PostgresServer) -> None:
    url = server.create_database()
    answers: list[bool] = []
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as raw:
        store.transport.publish("a", 1)
        store.transport.create_group("g", "a", from_start=True)
        deleting = threading.Thread(
            target=lambda: answers.append(store.transport.delete_group("g"))
        )
        with store.transaction(timeout=PATIENCE) as tx:
            assert tx.transport.fetch("g") is not None
            deleting.start()
            _wait_for_a_waiter(raw)
        deleting.join(PATIENCE)
        assert answers == [True]
        assert raw.execute("SELECT count(*) FROM holdfast.deliveries").fetchone() == (0,)


def test_what_became_of_operations_is_kept_for_their_time(server: PostgresServer) -> None:
    url = server.create_database()
    count = "SELECT count(*) FROM holdfast.group_operations"
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as raw:
        operations_are_known_for_a_day(store)
        raw.execute("DELETE FROM holdfast.group_operations")
        for _ in range(5):
            assert store.transport.delete_group("missing") is False
        assert raw.execute(count).fetchone() == (5,)
        move_clock(store, 601)
        assert store.transport.delete_group("missing") is False
        assert raw.execute(count).fetchone() == (1,)


@pytest.mark.parametrize("then", ["deleted", "changed"])
def test_a_twin_that_waited_undoes_nothing(server: PostgresServer, then: str) -> None:
    url = server.create_database()
    op = uuid4()
    answers: list[bool] = []
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as raw:
        twin = threading.Thread(
            target=lambda: answers.append(store.transport.create_group("g", "a", op_id=op))
        )
        with store.transaction(timeout=PATIENCE) as tx:
            assert tx.transport.create_group("g", "a", op_id=op) is True
            twin.start()
            _wait_for_a_waiter(raw)
            if then == "deleted":
                assert tx.transport.delete_group("g") is True
            else:
                assert tx.transport.create_group("g", "b") is False
        twin.join(PATIENCE)
        assert answers == [True]
        assert store.transport.list_groups() == ([] if then == "deleted" else ["g"])
        if then == "changed":
            store.transport.publish("b", 1)
            assert store.transport.status("g").waiting == 1


def test_consumers_that_begin_again_leave_no_trace(server: PostgresServer) -> None:
    url = server.create_database()
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as raw:
        written = "SELECT xmin::text, ctid::text FROM holdfast.groups"
        store.transport.create_group("g", "a")
        before = raw.execute(written).fetchall()
        for _ in range(3):
            with store.transport.consumer("g", "a") as consumer:
                assert consumer.next(0) is None
        assert raw.execute(written).fetchall() == before
        assert raw.execute("SELECT count(*) FROM holdfast.group_operations").fetchone() == (1,)


def _wait_for_a_waiter(raw: psycopg.Connection[tuple[object, ...]]) -> None:
    until = time.monotonic() + PATIENCE
    while raw.execute(WAITING).fetchone() == (0,):
        assert time.monotonic() < until, "nobody waits for the group"
        raw.execute("SELECT pg_sleep(0.01)")

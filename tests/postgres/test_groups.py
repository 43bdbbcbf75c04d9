"""Groups on PostgreSQL: who waits for whom, and what is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast.testing.servers import PostgresServer

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


def test_what_became_of_operations_is_kept_for_a_day(server: PostgresServer) -> None:
    url = server.create_database()
    count = "SELECT count(*) FROM holdfast.group_operations"
    day_later = "UPDATE holdfast.group_operations SET done_at = done_at - 86401 * 1000000::bigint"
    with holdfast.open(url) as store, psycopg.connect(url, autocommit=True) as raw:
        for _ in range(5):
            assert store.transport.delete_group("missing") is False
        assert raw.execute(count).fetchone() == (5,)
        raw.execute(day_later)
        assert store.transport.delete_group("missing") is False
        assert raw.execute(count).fetchone() == (1,)


def _wait_for_a_waiter(raw: psycopg.Connection[tuple[object, ...]]) -> None:
    until = time.monotonic() + PATIENCE
    while raw.execute(WAITING).fetchone() == (0,):
        assert time.monotonic() < until, "nobody waits for the group"
        raw.execute("SELECT pg_sleep(0.01)")

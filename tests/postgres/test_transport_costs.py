"""What a purge costs on PostgreSQL, counted in pages: as much as it removes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.backends.sql.queries import load, postgres
from holdfast.testing.servers import PostgresServer

FEW, MANY = 300, 30_000
OLD = 100
WARM = 10
PURGE = load("holdfast.backends.postgres", "transport.sql", postgres("holdfast"))["purge_messages"]
ADD = """
    INSERT INTO holdfast.messages (
        namespace, feed_xid, commit_id, subject, message_id, published_at, payload
    )
    SELECT
        %(namespace)s, pg_current_xact_id(), nextval('holdfast.commit_ids'), 'a.b',
        gen_random_uuid()::text, holdfast.now_us() - 1000000 * %(age_secs)s::bigint, 'null'
    FROM generate_series(1, %(count)s)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


def _purging(server: PostgresServer, waiting: int, young: int, old: int = OLD) -> int:
    """The pages of a purge that removes the old messages among others."""
    url = server.create_database()
    with holdfast.open(url) as store:
        store.namespace("behind").transport.create_group("g", "a.b")
    with psycopg.connect(url, autocommit=True) as raw:
        for namespace, count, age_secs in (
            ("behind", waiting, 1000),
            ("done", old, 1000),
            ("done", young, 0),
        ):
            raw.execute(ADD, {"namespace": namespace, "count": count, "age_secs": age_secs})
        raw.execute("VACUUM ANALYZE")
        first = _pages(raw, limit=WARM)  # which makes the plans
        assert first > 0
        pages = _pages(raw, limit=MANY)
        row = raw.execute("SELECT count(*) FROM holdfast.messages").fetchone()
        assert row == (waiting + young,)
        return pages


def test_purge_costs_what_it_removes(server: PostgresServer) -> None:
    pages = _purging(server, FEW, FEW)
    # The trees are a level higher.
    assert _purging(server, MANY, FEW) < 1.5 * pages
    assert _purging(server, FEW, MANY) < 1.5 * pages
    assert _purging(server, FEW, FEW, 10 * OLD) > 5 * pages


def _pages(raw: psycopg.Connection[Any], limit: int) -> int:
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {PURGE}"
    row = raw.execute(explain.encode(), {"older_than_us": 500_000_000, "limit": limit}).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

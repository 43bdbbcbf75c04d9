"""What an indexed scan costs on PostgreSQL, counted in pages: it reads only what matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import ScanFilter
from holdfast.backends.sql.queries import load, postgres
from holdfast.facets.names import prefix_end
from holdfast.facets.records_scan import sort_key
from holdfast.testing.servers import PostgresServer

FEW, MANY = 1_000, 30_000
DUE = 100
QUERIES = load("holdfast.backends.postgres", "records.sql", postgres("holdfast"))
FIND = QUERIES["find_records"]
LIST = QUERIES["list_records"]
FILL = """
    SELECT count(holdfast.write_record(
        'default', 'task.' || n, NULL, jsonb_build_object('at', (1000000 + n)::text), NULL, true,
        false, 0, gen_random_uuid(), NULL, NULL
    ))
    FROM generate_series(1, %(records)s) AS n
"""


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[int, str]]:
    """Databases with few and with many records, of which the same number is due."""
    with PostgresServer("18") as server:
        found = {records: server.create_database() for records in (FEW, MANY)}
        for records, url in found.items():
            with holdfast.open(f"{url}?durability=standard") as store:
                store.records.create_index("task.", "at")
                with psycopg.connect(url, autocommit=True) as raw:
                    raw.execute(FILL, {"records": records})
                for number in range(1, DUE + 1):
                    store.records.set_field(f"task.{number}", "at", number)
            with psycopg.connect(url, autocommit=True) as raw:
                raw.execute("VACUUM ANALYZE")
        yield found


def test_an_indexed_scan_among_many_costs_what_it_costs_among_few(
    databases: dict[int, str],
) -> None:
    pages = {}
    for records, url in databases.items():
        with holdfast.open(url) as store:
            found = [
                key for key, _ in store.records.scan("task.", filters=ScanFilter("at", "lt", 1000))
            ]
            assert len(found) == DUE
        with psycopg.connect(url, autocommit=True) as raw:
            row = raw.execute("SELECT id FROM holdfast.record_indexes").fetchone()
            assert row is not None
            params = {
                "namespace": "default",
                "id": row[0],
                "lead": "",
                "low": "n",
                "high": sort_key(b"1000"),
                "first": "task.",
                "end": prefix_end("task."),
                "limit": 10_000,
            }
            _pages(raw, FIND, params)
            pages[records] = _pages(raw, FIND, params)
    # A row here may lie on any page, and the trees are a level higher.
    assert pages[MANY] <= 2 * pages[FEW]


def test_without_an_index_everything_is_read(databases: dict[int, str]) -> None:
    """The control: the same count of a plain page of the scan does grow."""
    params = {
        "namespace": "default",
        "first": "task.",
        "end": prefix_end("task."),
        "limit": MANY,
        "since_epoch": 0,
        "since_xid": 0,
        "since_seq": 0,
    }
    pages = {}
    for records, url in databases.items():
        with psycopg.connect(url, autocommit=True) as raw:
            pages[records] = _pages(raw, LIST, params)
    assert pages[MANY] > 10 * pages[FEW]


def _pages(raw: psycopg.Connection[Any], query: str, params: dict[str, object]) -> int:
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
    row = raw.execute(explain.encode(), params).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

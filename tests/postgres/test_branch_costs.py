"""What branches cost on PostgreSQL, counted: it does not grow with the number of cells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.backends.sql.queries import load, postgres
from holdfast.facets.branches import MAX_LEVELS
from holdfast.testing.servers import PostgresServer

FEW, MANY = 100, 100_000
VERSIONS = 2000
Connection = psycopg.Connection[tuple[Any, ...]]
FORK = "SELECT * FROM holdfast.fork_branch('default', %(name)s, 'main', gen_random_uuid(), 16)"
GET = load("holdfast.backends.postgres", "cells.sql", postgres("holdfast"))["get_branch_cell"]


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[int, str]]:
    """Databases with few and with many cells, and a chain of branches on top."""
    with PostgresServer("18") as server:
        found = {cells: server.create_database() for cells in (FEW, MANY)}
        for cells, url in found.items():
            with holdfast.open(f"{url}?durability=standard") as store:
                for first in range(0, cells, 10_000):
                    numbers = range(first, min(first + 10_000, cells))
                    store.cells.set_many({f"x{number}": 0 for number in numbers})
                for number in range(VERSIONS):
                    store.cells.set("hot", number)
                source = "main"
                for level in range(1, MAX_LEVELS + 1):
                    store.branches.fork(f"b{level}", source=source)
                    source = f"b{level}"
            with psycopg.connect(url, autocommit=True) as raw:
                raw.execute("VACUUM ANALYZE")  # or a read also cleans up behind the writes
        yield found


def test_fork_of_many_cells_costs_what_a_fork_of_few_costs(databases: dict[int, str]) -> None:
    pages, records = {}, {}
    for cells, url in databases.items():
        with _connected(url) as raw:
            _explained(raw, FORK, name="warm")  # the first call also loads the catalogue
            plan = _explained(raw, FORK, name="fork")
        pages[cells] = _pages(plan)
        records[cells] = plan["WAL Records"]
    assert pages[MANY] <= pages[FEW] + 2  # a page that filled up meanwhile
    assert pages[FEW] < 100
    assert 0 < records[MANY] <= records[FEW] + 2


@pytest.mark.parametrize("name", ["x7", "hot"])
@pytest.mark.parametrize("cells", [FEW, MANY])
def test_read_costs_the_same_few_pages_for_each_level(
    databases: dict[int, str], cells: int, name: str
) -> None:
    with _connected(databases[cells]) as raw:
        pages = [
            _pages(_explained(raw, GET, namespace="default", branch=f"b{level}", name=name))
            for level in (1, *range(1, MAX_LEVELS + 1))
        ]
    # The branch, and from the root to a leaf of the versions: five pages for 100,000 cells.
    # Without the first, which also loads the catalogue.
    assert max(after - before for before, after in pairwise(pages[1:])) <= 5, pages
    assert pages[1] <= 20, pages


def _connected(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True)


def _explained(raw: Connection, query: str, **params: object) -> dict[str, int]:
    options = "ANALYZE, BUFFERS, WAL, FORMAT JSON"
    row = raw.execute(f"EXPLAIN ({options}) {query}", params).fetchone()
    assert row is not None
    plan: dict[str, int] = row[0][0]["Plan"]
    return plan


def _pages(plan: dict[str, int]) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

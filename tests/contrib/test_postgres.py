"""The eventsourcing library's own test cases, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.servers import CARELESS, PostgresServer
from tests.contrib.cases import *  # noqa: F403


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield server


@pytest.fixture
def store_url(server: PostgresServer) -> str:
    return server.fresh_store()

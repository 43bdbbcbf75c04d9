"""The conformance suite on the newest PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.world import Engine

colours = ["blocking", "asyncio"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield Engine("PostgreSQL 18", CAPABILITIES, server.fresh_store)


@pytest.fixture
def engine(postgres: Engine) -> Engine:
    return postgres

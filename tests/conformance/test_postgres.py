"""The conformance suite on the newest PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.lending import StoreLender
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.world import Engine

colours = ["blocking", "asyncio"]


@pytest.fixture(scope="module")
def lender() -> Iterator[StoreLender]:
    with PostgresServer("18", settings=CARELESS) as server, StoreLender(server) as lender:
        yield lender


@pytest.fixture
def engine(lender: StoreLender) -> Iterator[Engine]:
    with lender.loan() as fresh_url:
        yield Engine("PostgreSQL 18", CAPABILITIES, fresh_url)

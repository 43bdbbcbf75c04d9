"""The conformance suite on the oldest PostgreSQL that we support."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.world import Engine

colours = ["uvloop"]  # one will do: what differs from the newest server runs there


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    with PostgresServer("16", settings=CARELESS) as server:
        yield Engine("PostgreSQL 16", CAPABILITIES, server.fresh_store)


@pytest.fixture
def engine(postgres: Engine) -> Engine:
    return postgres

"""The conformance suite on real PostgreSQL servers, the newest and the oldest we support."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.conformance.branches import *  # noqa: F403
from holdfast.testing.conformance.branches_merge import *  # noqa: F403
from holdfast.testing.conformance.branches_retention import *  # noqa: F403
from holdfast.testing.conformance.cells import *  # noqa: F403
from holdfast.testing.conformance.cells_history import *  # noqa: F403
from holdfast.testing.conformance.search import *  # noqa: F403
from holdfast.testing.conformance.store import *  # noqa: F403
from holdfast.testing.conformance.transactions import *  # noqa: F403
from holdfast.testing.conformance.values import *  # noqa: F403
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Engine


@pytest.fixture(scope="module", params=["18", "16"])
def postgres(request: pytest.FixtureRequest) -> Iterator[Engine]:
    numbers = itertools.count()
    with PostgresServer(request.param) as server:
        database = server.create_database()
        # A schema of its own makes a store as fresh as a database would, ten times faster.
        yield Engine(
            f"PostgreSQL {request.param}",
            CAPABILITIES,
            lambda: f"{database}?schema=s{next(numbers)}",
        )


@pytest.fixture
def engine(postgres: Engine) -> Engine:
    return postgres

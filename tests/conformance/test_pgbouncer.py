"""The conformance suite through a real PgBouncer in transaction mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.bouncer import PgBouncer, need_pgbouncer, pgbouncer_version
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

need_pgbouncer()
# From 1.21 on it can carry prepared statements. The store makes none, and must not mind.
PREPARED = [0, 100] if pgbouncer_version() >= (1, 21) else [None]


@pytest.fixture(scope="module", params=PREPARED, ids=lambda most: f"prepared={most}")
def pgbouncer(request: pytest.FixtureRequest) -> Iterator[Engine]:
    most: int | None = request.param
    settings = {} if most is None else {"max_prepared_statements": str(most)}
    numbers = itertools.count()
    with PostgresServer("18") as server, PgBouncer(server.port, settings=settings) as bouncer:
        database = bouncer.through(server.create_database())
        yield Engine(
            "PostgreSQL 18 behind PgBouncer",
            CAPABILITIES,
            lambda: f"{database}?schema=s{next(numbers)}",
        )


@pytest.fixture
def engine(pgbouncer: Engine) -> Engine:
    return pgbouncer

"""The conformance suite through a real PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.bouncer import PgBouncer, need_pgbouncer, pgbouncer_version
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.lending import StoreLender
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.world import Engine

need_pgbouncer()
# From 1.21 on it can carry prepared statements. The store makes none, and must not mind.
PREPARED = [0, 100] if pgbouncer_version() >= (1, 21) else [None]

colours = ["blocking", "asyncio"]


@pytest.fixture(scope="module", params=PREPARED, ids=lambda most: f"prepared={most}")
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[StoreLender, PgBouncer]]:
    most: int | None = request.param
    settings = {} if most is None else {"max_prepared_statements": str(most)}
    with (
        PostgresServer("18", settings=CARELESS) as server,
        StoreLender(server) as lender,
        PgBouncer(server.port, settings=settings) as bouncer,
    ):
        yield lender, bouncer


@pytest.fixture
def engine(behind: tuple[StoreLender, PgBouncer]) -> Iterator[Engine]:
    lender, bouncer = behind
    with lender.loan() as fresh_url:
        yield Engine(
            "PostgreSQL 18 behind PgBouncer", CAPABILITIES, lambda: bouncer.through(fresh_url())
        )

"""The conformance suite on the oldest PostgreSQL that we support."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.backends.postgres.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Engine

colours = ["blocking"]  # the client is the same as with the newest server; the functions run here


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    numbers = itertools.count()
    with PostgresServer("16") as server:
        database = server.create_database()
        # A schema of its own makes a store as fresh as a database would, ten times faster.
        yield Engine(
            "PostgreSQL 16",
            CAPABILITIES,
            lambda: f"{database}?schema=s{next(numbers)}",
        )


@pytest.fixture
def engine(postgres: Engine) -> Engine:
    return postgres

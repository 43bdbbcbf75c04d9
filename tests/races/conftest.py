from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.testing.fleet import Fleet
from holdfast.testing.nats import NatsServer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer

NewUrl: TypeAlias = Callable[[], str]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet(10) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(
        "18", settings={"max_connections": "200", "deadlock_timeout": "20ms"}
    ) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> NewUrl:
    """Gives the URL of a database that nobody has opened yet."""
    if engine == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_database
    if engine == "valkey":
        valkey: ValkeyServer = request.getfixturevalue("valkey")
        return valkey.fresh_url
    if engine == "nats":
        nats: NatsServer = request.getfixturevalue("nats")
        return nats.fresh_url
    numbers = iter(range(10_000))
    return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"

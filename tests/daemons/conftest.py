from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.nats import NatsServer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer
from tests.daemons.processes import end_all


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    return postgres.create_database()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that nobody has opened yet."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres", "valkey", "nats"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same on every engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    server: ValkeyServer | NatsServer = request.getfixturevalue(request.param)
    return server.fresh_url()


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    end_all()

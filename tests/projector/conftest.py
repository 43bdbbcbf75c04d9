from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer
from tests.daemons.processes import end_all


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that nobody has opened yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_database()
    other: ValkeyServer = request.getfixturevalue("valkey")
    return other.fresh_url()


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    end_all()

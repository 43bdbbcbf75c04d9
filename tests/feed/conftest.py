from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.testing.servers import PostgresServer

NewUrl: TypeAlias = Callable[[], str]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer("18", settings={"max_connections": "200"}) as server:
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
    numbers = iter(range(10_000))
    return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from holdfast import AsyncStore, StoreConfig
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import BlockingColour, Colour, LoopColour


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.fixture(scope="session")
def database(server: PostgresServer) -> str:
    """The URL of a database for all tests, not through the proxy."""
    return server.create_database()


@pytest.fixture
def namespace() -> str:
    """A namespace for one test."""
    return str(uuid4())


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture(params=[BlockingColour, LoopColour], ids=["blocking", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    colour: Colour = request.param()
    yield colour
    colour.close()


@pytest.fixture
def open_store(colour: Colour, namespace: str) -> Iterator[Callable[..., AsyncStore]]:
    """Opens stores of the colour, `open_store(url, lock_timeout=1)`, and closes them.

    With `listen_url=database` the connection for wake-ups goes around the proxy: it speaks when it
    likes, and would meet a cut that is meant for a call.
    """
    opened: list[AsyncStore] = []

    def open_one(url: str, **settings: object) -> AsyncStore:
        config = StoreConfig(**settings)  # type: ignore[arg-type]
        opened.append(colour.run(colour.open(url, namespace, config)))
        return opened[-1]

    yield open_one
    for store in opened:
        colour.run(store.close())

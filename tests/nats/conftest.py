"""What the tests of NATS share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Store
from holdfast.testing.nats import NatsServer
from holdfast.testing.ports import ADDRESS
from holdfast.testing.proxy import FaultProxy
from tests.faults.conftest import colour

__all__ = ["colour", "proxy", "server", "store"]


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture
def proxy(server: NatsServer) -> Iterator[FaultProxy]:
    with FaultProxy(ADDRESS, server.port, answered=bool) as proxy:
        yield proxy


@pytest.fixture
def store(server: NatsServer, proxy: FaultProxy) -> Iterator[Store]:
    """A store that reaches the server through the proxy."""
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        yield store

"""What the tests of NATS share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.nats import NatsServer
from tests.faults.conftest import colour

__all__ = ["colour", "server"]


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server

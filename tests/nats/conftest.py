"""What the tests of NATS share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.nats import NatsServer


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server

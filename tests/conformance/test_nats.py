"""The conformance suite on NATS JetStream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.nats.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.nats import NatsServer
from holdfast.testing.world import Engine

colours = ["blocking", "asyncio"]


@pytest.fixture(scope="module")
def nats() -> Iterator[Engine]:
    with NatsServer() as server:
        yield Engine("NATS", CAPABILITIES, server.fresh_url)


@pytest.fixture
def engine(nats: Engine) -> Engine:
    return nats

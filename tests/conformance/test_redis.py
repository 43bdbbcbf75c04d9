"""The conformance suite on Valkey; see test_redis_8.py for Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.redis.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Engine

colours = ["blocking", "asyncio"]


@pytest.fixture(scope="module")
def valkey() -> Iterator[Engine]:
    with ValkeyServer() as server:
        yield Engine("Valkey", CAPABILITIES, server.fresh_url)


@pytest.fixture
def engine(valkey: Engine) -> Engine:
    return valkey

"""The conformance suite on Redis itself: Valkey does not speak for it unasked."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from holdfast.backends.redis.backend import CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.valkey import RedisServer
from holdfast.testing.world import Engine

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info >= (3, 14),
    reason="there is no package of Redis for this system or Python",
)

colours = ["asyncio"]


@pytest.fixture(scope="module")
def redis() -> Iterator[Engine]:
    with RedisServer() as server:
        yield Engine("Redis", CAPABILITIES, server.fresh_url)


@pytest.fixture
def engine(redis: Engine) -> Engine:
    return redis

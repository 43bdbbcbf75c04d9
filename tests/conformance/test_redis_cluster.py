"""The conformance suite on a cluster of one node: every script keeps to its hash slot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.backends.redis.backend import CLUSTER_CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Engine

colours = ["asyncio"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Engine]:
    with ValkeyServer(cluster=True) as server:
        yield Engine("Valkey, clustered", CLUSTER_CAPABILITIES, server.fresh_url)


@pytest.fixture
def engine(cluster: Engine) -> Engine:
    return cluster

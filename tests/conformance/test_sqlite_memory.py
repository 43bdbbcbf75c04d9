"""The conformance suite on SQLite in memory."""

from __future__ import annotations

import pytest

from holdfast.backends.sqlite.backend import MEMORY_CAPABILITIES
from holdfast.testing.conformance.suite import *  # noqa: F403
from holdfast.testing.world import Engine

colours = ["blocking", "asyncio"]


@pytest.fixture
def engine() -> Engine:
    return Engine("SQLite in memory", MEMORY_CAPABILITIES, lambda: "sqlite://:memory:")

"""The conformance suite on SQLite in memory."""

from __future__ import annotations

import pytest

from holdfast.backends.sqlite.backend import MEMORY_CAPABILITIES
from holdfast.testing.conformance.branches import *  # noqa: F403
from holdfast.testing.conformance.branches_merge import *  # noqa: F403
from holdfast.testing.conformance.branches_retention import *  # noqa: F403
from holdfast.testing.conformance.cells import *  # noqa: F403
from holdfast.testing.conformance.cells_history import *  # noqa: F403
from holdfast.testing.conformance.search import *  # noqa: F403
from holdfast.testing.conformance.store import *  # noqa: F403
from holdfast.testing.conformance.transactions import *  # noqa: F403
from holdfast.testing.conformance.values import *  # noqa: F403
from holdfast.testing.world import Engine


@pytest.fixture
def engine() -> Engine:
    return Engine("SQLite in memory", MEMORY_CAPABILITIES, lambda: "sqlite://:memory:")

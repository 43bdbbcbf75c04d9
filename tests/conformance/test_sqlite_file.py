"""The conformance suite on an SQLite file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.backends.sqlite.backend import FILE_CAPABILITIES
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
def engine(tmp_path: Path) -> Engine:
    numbers = itertools.count()
    return Engine(
        "SQLite file", FILE_CAPABILITIES, lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
    )

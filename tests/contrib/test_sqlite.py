"""The eventsourcing library's own test cases, on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contrib.cases import *  # noqa: F403


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"

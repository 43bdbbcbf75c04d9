"""A process that is killed while it builds the search index: the next one finishes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidState
from holdfast.testing.servers import PostgresServer

CELLS = 1100
BUILDER = """
import os, signal, sys
import holdfast

def die(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

holdfast.open(sys.argv[1]).cells.enable_search(progress=die)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/x.db"
        return
    with PostgresServer("18") as server:
        yield server.create_database()


def test_index_is_finished_after_its_builder_was_killed(url: str) -> None:
    with holdfast.open(url) as store:
        store.cells.set_many({f"x{at}": "word" for at in range(CELLS)})
        for _ in range(2):
            killed = subprocess.run([sys.executable, "-c", BUILDER, url], check=False)
            assert killed.returncode == -signal.SIGKILL
            with pytest.raises(InvalidState, match="not complete"):
                store.cells.search("word")
            store.cells.set("x7", "other")
        calls: list[int] = []
        store.cells.enable_search(progress=lambda done, _: calls.append(done))
        assert calls[0] > CELLS // 20, "what the killed ones did was done again"
        assert len(store.cells.search("word x1*", limit=1000)) == 211
        assert [hit.name for hit in store.cells.search("other")] == ["x7"]
        assert store.cells.search("word x7") == []

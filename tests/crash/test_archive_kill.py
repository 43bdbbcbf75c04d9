"""A process that is killed while it archives a run leaves it in the store or in the archive."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Event
from holdfast.testing.nats import NatsServer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer

EVENTS = 600
MOST_STEPS = 20
# Forks for each order: imports take longer than all the rest. The child dies instead of the Nth
# step that leaves a trace, on the disk or in the store.
ARCHIVER = """
import os, pathlib, signal, sys
import holdfast, holdfast.backends.sqlite.backend, holdfast.backends.postgres.backend
import holdfast.backends.nats.backend, holdfast.backends.redis.backend
from holdfast.backends.nats.stream import Stream

def archive(url, folder, left, how):
    def dying(step):
        def wrapped(*args, **options):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args, **options)
        return wrapped

    with holdfast.open(url) as store:
        os.fsync = dying(os.fsync)
        pathlib.Path.replace = dying(pathlib.Path.replace)
        events = store.events._events
        events.delete = dying(events.delete)
        # On NATS that is several steps, of which each can be the last.
        for name in ("publish", "publish_all", "remove", "purge"):
            setattr(Stream, name, dying(getattr(Stream, name)))
        if how == "hasty":
            whole = pathlib.Path(folder, "whole")
            store.events.export_runs(whole, ["r"])
            store.events.delete_run("r")
            os.fsync(0)
            whole.rename(whole.with_suffix(".jsonl.gz"))
        else:
            store.events.archive_run("r", folder)

for line in sys.stdin:
    url, folder, step, how = line.split()
    child = os.fork()
    if child == 0:
        archive(url, folder, int(step), how)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Archivers:
    """Archivers that die."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ARCHIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed_at(self, url: str, folder: Path, step: int, how: str = "right") -> bool:
        """Archive a new run and die at that step; False when it was done before."""
        folder.mkdir()
        with holdfast.open(url) as store:
            store.events.append_events([Event("r", "Noted", f"{n}") for n in range(EVENTS)])
            store.events.append_event(Event("r", "RunCompleted", "end"))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{url} {folder} {step} {how}\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in {0, signal.SIGKILL}
        return status != 0

    def close(self) -> None:
        with self._process:  # which closes its pipes and waits
            pass


@pytest.fixture
def archivers() -> Iterator[Archivers]:
    archivers = Archivers()
    yield archivers
    archivers.close()


@pytest.fixture(params=["sqlite", "postgres", "valkey", "nats"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    numbers = iter(range(1000))
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db?durability=standard"
    elif request.param == "postgres":
        with PostgresServer("18") as server:
            database = server.create_database()
            yield lambda: f"{database}?schema=s{next(numbers)}"
    elif request.param == "valkey":
        with ValkeyServer() as server:
            yield server.fresh_url
    else:
        with NatsServer() as server:
            yield server.fresh_url


def keys_in_store(store: holdfast.Store) -> list[str]:
    return [event.idempotency_key for event in store.events.fetch_events("r", limit=10_000)]


def keys_in_archive(folder: Path) -> list[str]:
    """What a restore gives; what is not finished has another name."""
    with holdfast.open("sqlite://:memory:") as store:
        for file in folder.glob("*.jsonl.gz"):
            store.events.import_runs(file)
        return keys_in_store(store)


def places(url: str, folder: Path) -> set[str]:
    """Where the whole run is; nowhere is there a part of it."""
    whole = [*(f"{number}" for number in range(EVENTS)), "end"]
    with holdfast.open(url) as store:
        found = {"store": keys_in_store(store), "archive": keys_in_archive(folder)}
    for place, keys in found.items():
        assert keys in ([], whole), f"a part of the run is in the {place}"
    return {place for place, keys in found.items() if keys}


def test_a_killed_archiver_loses_nothing_and_the_next_one_finishes(
    archivers: Archivers, new_url: Callable[[], str], tmp_path: Path
) -> None:
    seen = set[tuple[str, ...]]()
    for step in range(1, MOST_STEPS):
        url, folder = new_url(), tmp_path / f"archive{step}"
        if not archivers.killed_at(url, folder, step):
            assert places(url, folder) == {"archive"}
            break
        where = places(url, folder)
        assert where, f"killed at step {step}, and the run is nowhere"
        seen.add(tuple(sorted(where)))
        with holdfast.open(url) as store:
            if "store" in where:
                store.events.archive_run("r", folder)
        assert places(url, folder) == {"archive"}
    else:
        pytest.fail(f"void: the archiver took more than {MOST_STEPS} steps")
    assert seen == {("store",), ("archive", "store"), ("archive",)}


def test_control_an_archiver_that_deletes_first_is_found(
    archivers: Archivers, tmp_path: Path
) -> None:
    lost = 0
    for step in range(1, MOST_STEPS):
        url, folder = f"sqlite:///{tmp_path}/{step}.db", tmp_path / f"archive{step}"
        if not archivers.killed_at(url, folder, step, "hasty"):
            break
        lost += not places(url, folder)
        if lost:
            return
    pytest.fail("the run was always somewhere")

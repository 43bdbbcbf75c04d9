"""What the processes of a race do; each function is a task of `holdfast.testing.fleet`."""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import holdfast
from holdfast.sync.cells import Cells

_PATIENCE = 60


def increment(gate: Callable[[], None], *, url: str, name: str, times: int, cas: bool) -> int:
    """Add one, `times` times, and return how often another process was faster.

    Without `cas` it reads and sets: the control, which loses additions.
    """
    beaten = 0
    with holdfast.open(url) as store:
        gate()
        for _ in range(times):
            while True:
                cell = store.cells.get_versioned(name)
                assert cell is not None
                if not cas:
                    store.cells.set(name, cell.value + 1)
                    break
                if store.cells.cas(name, cell.version, cell.value + 1) is not None:
                    break
                beaten += 1
    return beaten


def create(
    gate: Callable[[], None], *, url: str, racer: int, threads: int, rounds: int
) -> list[list[str]]:
    """Who of this process won each round: all threads of all processes create the same cell."""
    start = threading.Barrier(threads + 1)
    with holdfast.open(url) as store, ThreadPoolExecutor(threads) as pool:

        def race(name: str, me: str) -> str | None:
            start.wait()
            version = store.cells.cas(name, None, me)
            assert version in {None, 1}
            return me if version else None

        won = []
        for round_ in range(rounds):
            racers = [
                pool.submit(race, f"round{round_}", f"{racer}.{thread}")
                for thread in range(threads)
            ]
            gate()
            start.wait()
            answers = [one.result() for one in racers]
            won.append([me for me in answers if me is not None])
    return won


def open_first(gate: Callable[[], None], *, urls: list[str], racer: int) -> list[int]:
    """Open databases that do not exist yet, together with others, and write to each."""
    versions = []
    for url in urls:
        gate()
        with holdfast.open(url) as store:
            versions.append(store.cells.set(f"racer{racer}", racer))
    return versions


def transfer(
    gate: Callable[[], None], *, url: str, seed: str, accounts: int, times: int, together: bool
) -> int:
    """Move one unit between two accounts, `times` times; returns how many attempts that took.

    Without `together` the two writes are two commits: the control, which others can see half done.
    """
    rng = random.Random(seed)
    attempts = 0
    with holdfast.open(url) as store:

        def move(cells: Cells) -> None:
            nonlocal attempts
            attempts += 1
            # In any order: on PostgreSQL two of them can wait for each other in a circle.
            for name, change in zip(names, (-1, 1), strict=True):
                cell = cells.get_versioned(name)
                assert cell is not None
                if cells.cas(name, cell.version, cell.value + change) is None:
                    raise holdfast.Conflict(f"{name} was changed", retryable=True)

        gate()
        for _ in range(times):
            names = [f"account{number}" for number in rng.sample(range(accounts), 2)]
            if together:
                store.transact(lambda tx: move(tx.cells), timeout=60, attempts=1000)
            else:
                with contextlib.suppress(holdfast.Conflict):
                    move(store.cells)
    return attempts


def write_pairs(gate: Callable[[], None], *, url: str, cells: int, writer: int) -> int:
    """Write the two halves of some cells, always the same to both in one commit, until told."""
    written = 0
    with holdfast.open(url) as store:
        gate()
        while not store.namespace("control").cells.get("enough"):
            value = f"{writer}.{written}"
            cell = (writer + written) % cells
            store.cells.set_many({f"{cell}/left": value, f"{cell}/right": value})
            written += 1
    return written


def fork_and_read(gate: Callable[[], None], *, url: str, forks: int) -> dict[str, dict[str, str]]:
    """Fork again and again, and tell what each branch held at the first look."""
    looks: dict[str, dict[str, str]] = {}
    last: dict[str, str] = {}
    with holdfast.open(url) as store:
        gate()
        deadline = time.monotonic() + _PATIENCE
        try:
            while len(looks) < forks:
                assert time.monotonic() < deadline, f"nobody wrote after {len(looks)} forks"
                if _all_cells(store.cells) == last:
                    continue
                name = f"fork{len(looks)}"
                store.branches.fork(name)
                last = looks[name] = _all_cells(store.cells.on(name))
        finally:
            store.namespace("control").cells.set("enough", value=True)
    return looks


def _all_cells(cells: Cells) -> dict[str, str]:
    return {name: cells.get(name) for name in cells.list()}

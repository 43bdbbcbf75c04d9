"""How long a change takes to its watcher: in the process, from another one, on each engine.

Each value carries the time at which its write was called, and how long the write before it took.
The clock is the machine's monotonic one, which all processes share. Writes are spaced at
random, so the watcher is idle when one comes.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from rich.progress import Progress
from rich.table import Table

import holdfast
from holdfast import CellChange
from holdfast.sync.watch import Watch
from holdfast.testing.bouncer import PgBouncer, find_pgbouncer
from holdfast.testing.servers import PostgresServer

TITLE: Final = "watch: how long a change takes to its watcher"
_CELL: Final = "watched"
_SPACING: Final = (0.005, 0.03)
_WARM_UP: Final = 4.5  # seconds: writers have found the listener by then, and it trusts them
_FIRST_SETTLE: Final = 0.05

Times = list[tuple[float, float]]
"""Milliseconds until a change was told, and of the write before it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One line of the table."""

    engine: str
    name: str
    watch: "Callable[[str, int], Times]"
    goal_ms: float | None = None
    pooled: bool = False  # through PgBouncer
    listens: bool = False  # at the server itself, by listen_url


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds: of the writes, and from the call of a write until its change was told."""

    way: Way
    set_p50: float
    told_p50: float
    told_p99: float
    changes: int

    def as_json(self) -> dict[str, object]:
        """What the table shows."""
        return {
            "engine": self.way.engine,
            "way": self.way.name,
            "changes": self.changes,
            "set_ms_p50": self.set_p50,
            "told_ms_p50": self.told_p50,
            "told_ms_p99": self.told_p99,
            "goal_ms": self.way.goal_ms,
        }


def ways() -> list[Way]:
    """All that is measured."""
    return [
        Way("sqlite", "a thread of the process", _from_thread, goal_ms=2),
        Way("sqlite", "a task of the loop", _from_task, goal_ms=2),
        Way("sqlite", "another process", _from_process, goal_ms=10),
        Way("postgres", "a thread of the process", _from_thread, goal_ms=2),
        Way("postgres", "a task of the loop", _from_task, goal_ms=2),
        Way("postgres", "another process", _from_process, goal_ms=10),
        Way("postgres", "another process, PgBouncer, polling", _from_process, pooled=True),
        Way(
            "postgres",
            "another process, PgBouncer, listen_url",
            _from_process,
            goal_ms=10,
            pooled=True,
            listens=True,
        ),
    ]


def measure(way: Way, url: str, changes: int) -> Figures:
    """Watch so many changes."""
    times = way.watch(url, changes)
    told = [told for told, _ in times]
    return Figures(
        way,
        set_p50=median(took for _, took in times),
        told_p50=median(told),
        told_p99=quantiles(told, n=100)[98],
        changes=len(told),
    )


def table(figures: list[Figures]) -> Table:
    """The figures, for people."""
    grid = Table(title=TITLE, title_justify="left", title_style="bold")
    for name in ("engine", "the writer is"):
        grid.add_column(name)
    for name in ("set p50", "told p50", "told p99", "goal", ""):
        grid.add_column(name, justify="right")
    for one in figures:
        goal = one.way.goal_ms
        verdict = "" if goal is None else ("met" if one.told_p50 <= goal else "MISSED")
        grid.add_row(
            one.way.engine,
            one.way.name,
            *(f"{value:.2f} ms" for value in (one.set_p50, one.told_p50, one.told_p99)),
            "" if goal is None else f"p50 ≤ {goal:g} ms",
            verdict,
        )
    return grid


@contextlib.contextmanager
def databases(folder: Path, chosen: list[Way]) -> Iterator[Callable[[Way], str]]:
    """Makes fresh databases, and starts what is needed for that."""
    with contextlib.ExitStack() as stack:
        server = bouncer = None
        if any(way.engine == "postgres" for way in chosen):
            server = stack.enter_context(PostgresServer("18"))
            if any(way.pooled for way in chosen):
                bouncer = stack.enter_context(PgBouncer(server.port))
        numbers = iter(range(1000))

        def fresh(way: Way) -> str:
            if server is None or way.engine == "sqlite":
                return f"sqlite:///{folder}/watch{next(numbers)}.db"
            url = server.create_database()
            if bouncer is None or not way.pooled:
                return url
            return bouncer.through(url) + (f"?listen_url={url}" if way.listens else "")

        yield fresh


def run(engines: list[str] | None, changes: int, tell: Callable[[str], None]) -> list[Figures]:
    """Measure every way there is on this machine."""
    chosen = [way for way in ways() if not engines or way.engine in engines]
    if find_pgbouncer() is None:
        chosen = [way for way in chosen if not way.pooled]
        tell("no pgbouncer on this machine: not measured through it")
    with (
        tempfile.TemporaryDirectory() as folder,
        databases(Path(folder), chosen) as fresh,
        Progress(transient=True) as progress,
    ):
        tracked = progress.track(chosen, description="watching")
        return [measure(way, fresh(way), changes) for way in tracked]


def _from_thread(url: str, changes: int) -> Times:
    with holdfast.open(url) as store:
        watch = store.cells.watch(_CELL)
        watch.next()
        writer = threading.Thread(target=_write, args=(store, changes, _FIRST_SETTLE))
        writer.start()
        times = _told(watch, changes)
        writer.join()
    return times


def _from_process(url: str, changes: int) -> Times:
    with holdfast.open(url) as store:
        watch = store.cells.watch(_CELL)
        watch.next()
        with subprocess.Popen([sys.executable, "-m", "bench.watch", url, str(changes)]) as writer:
            times = _told(watch, changes)
            if writer.wait() != 0:
                raise RuntimeError("the writing process failed")
    return times


def _from_task(url: str, changes: int) -> Times:
    async def main() -> Times:
        async with holdfast.open_async(url) as store:
            watch = store.cells.watch(_CELL)
            await watch.next()

            async def write() -> None:
                took = 0.0
                for _ in range(changes):
                    await asyncio.sleep(random.uniform(*_SPACING))
                    began = time.monotonic()
                    await store.cells.set(_CELL, [began, took])
                    took = time.monotonic() - began

            writer = asyncio.create_task(write())
            times = []
            for _ in range(changes):
                change = await watch.next()
                times.append(_took(change))
            await writer
            return times

    return asyncio.run(main())


def _write(store: holdfast.Store, changes: int, settle: float) -> None:
    took = 0.0
    time.sleep(settle)
    for _ in range(changes):
        time.sleep(random.uniform(*_SPACING))
        began = time.monotonic()
        store.cells.set(_CELL, [began, took])
        took = time.monotonic() - began


def _told(watch: Watch[CellChange], changes: int) -> Times:
    return [_took(watch.next()) for _ in range(changes)]


def _took(change: object) -> tuple[float, float]:
    if not isinstance(change, holdfast.CellChange) or change.cell is None:
        raise TypeError(f"wanted a change, got {change!r}")
    began, before = change.cell.value
    return (time.monotonic() - began) * 1000, before * 1000


def _write_in_process(url: str, changes: int) -> None:
    with holdfast.open(url) as store:
        # On another cell, so that whoever listens is found before anything is measured.
        store.cells.set("warm-up", 0)
        _write(store, changes, _WARM_UP if url.startswith("postgres") else _FIRST_SETTLE)


if __name__ == "__main__":
    _write_in_process(sys.argv[1], int(sys.argv[2]))

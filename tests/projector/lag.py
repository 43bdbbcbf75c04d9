"""How far kept views are behind while 500 events come each second: `make lag` prints a table.

It fails when the largest lag is above a second, and is void, which is a failure too, when fewer
events were appended than promised.

Seen from outside: every 50 ms, for how long the oldest event that is in no kept snapshot has been
acknowledged. A projector runs as a process of its own; another appends to 50 runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import holdfast
from holdfast.facets.events import RUN_VIEW
from holdfast.testing.nats import NatsServer
from holdfast.testing.servers import PostgresServer
from holdfast.testing.valkey import ValkeyServer
from tests.daemons.processes import command, totals
from tests.projector.views import event

RATE = int(os.environ.get("HOLDFAST_LAG_RATE", "500"))
SECS = float(os.environ.get("HOLDFAST_LAG_SECS", "20"))
RUNS = [f"run-{number}" for number in range(50)]
LIMIT = 1.0  # seconds
LEAST = 0.95  # of the events that were promised: a slower stream says nothing about the lag
_SAMPLE = 0.05

Appended = dict[str, list[float]]  # of each run, when its events were acknowledged


async def _append(store: holdfast.AsyncStore, appended: Appended) -> None:
    """Append at an even pace; what one beat has missed the next one makes good."""
    begun, sent = time.monotonic(), 0

    async def one(number: int) -> None:
        run_id = RUNS[number % len(RUNS)]
        await store.events.append_event(event(run_id, 1 + number // len(RUNS)))
        appended[run_id].append(time.monotonic())

    while (passed := time.monotonic() - begun) < SECS:
        due = int(passed * RATE)
        await asyncio.gather(*map(one, range(sent, due)))
        sent = due
        await asyncio.sleep(0.01)


async def _lag(store: holdfast.AsyncStore, appended: Appended) -> float:
    lag = 0.0
    for run_id in RUNS:
        known = list(appended[run_id])
        state = await store._backend.events.state(("default", run_id), RUN_VIEW)  # noqa: SLF001
        kept = 0 if state is None or state.snapshot is None else state.snapshot.last_seq
        if kept < len(known):
            lag = max(lag, time.monotonic() - known[kept])
    return lag


class Measured(NamedTuple):
    """The lags that were seen, in order of their size, and the events that were appended."""

    lags: list[float]
    events: int

    @property
    def figures(self) -> tuple[float, float, float]:
        """Half of the lags are below the first, 99 of 100 below the second, none above the last."""
        p50, p99 = (self.lags[int(len(self.lags) * share)] for share in (0.5, 0.99))
        return p50, p99, self.lags[-1]

    @property
    def faults(self) -> list[str]:
        """What is not as promised."""
        found = []
        if self.events < LEAST * RATE * SECS:
            found.append(f"void: {self.events} events of {RATE * SECS:.0f} were appended")
        if not self.lags:
            found.append("void: nobody looked")
        elif self.lags[-1] > LIMIT:
            found.append(f"the largest lag is {self.lags[-1]:.2f} s, above {LIMIT:g} s")
        return found


async def _measure(url: str) -> Measured:
    lags: list[float] = []
    async with holdfast.open_async(url) as store, holdfast.open_async(url) as watcher:
        for run_id in RUNS:  # and wait until the projector is at work
            await store.events.append_event(event(run_id, 0))
        appended: Appended = {run_id: [time.monotonic()] for run_id in RUNS}
        while await _lag(watcher, appended):
            await watcher.pause(_SAMPLE)
        appending = asyncio.create_task(_append(store, appended))
        while not appending.done():
            lags.append(await _lag(watcher, appended))
            await watcher.pause(_SAMPLE)
        await appending
    return Measured(sorted(lags), sum(map(len, appended.values())) - len(RUNS))


@contextmanager
def _engines() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        yield {
            "SQLite": f"sqlite:///{folder}/lag.db",
            "PostgreSQL": stack.enter_context(PostgresServer("18")).create_database(),
            "Valkey": stack.enter_context(ValkeyServer()).fresh_url(),
            "NATS": stack.enter_context(NatsServer()).fresh_url(),
        }


def main() -> int:
    """Measure on every engine; 1 if one is too far behind, or had less to do than promised."""
    code = 0
    say = sys.stdout.write
    say(f"{RATE} events/s for {SECS:g} s; lag in ms\n")
    say("engine        p50   p99  most  appended  folded\n")
    with _engines() as urls:
        for engine, url in urls.items():
            holdfast.open(url).close()  # a projector makes no store
            projector = command("project", url, "--json")
            measured = asyncio.run(_measure(url))
            projector.send_signal(signal.SIGTERM)
            done = totals(projector)
            told = " ".join(f"{lag * 1000:5.0f}" for lag in measured.figures)
            say(f"{engine:11} {told}  {measured.events:8}  {done['events']:6}\n")
            for fault in measured.faults:
                code = 1
                say(f"{engine}: {fault}\n")
            sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())

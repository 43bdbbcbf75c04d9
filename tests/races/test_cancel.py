"""Callers that give up, at any moment: the others neither hang nor hear anything wrong."""

import asyncio
import contextlib
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.testing.fleet import Fleet

SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
ROUNDS = 150
INTERRUPTS = int(os.environ.get("HOLDFAST_INTERRUPTS", "0"))
CALLERS = 12
PATIENCE_SECS = 60

ASYNC_STORES = {
    "sqlite-inline": ("sqlite", ""),
    "sqlite-thread": ("sqlite", "?commit=thread"),
    "sqlite-contended": ("sqlite", ""),
    "postgres": ("postgres", "?pool_size=2"),
}


@pytest.fixture(params=ASYNC_STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(kind: str) -> str:
    return ASYNC_STORES[kind][0]


class Caller:
    """Writes its own three cells as one, and knows what they must hold after each round."""

    def __init__(self, number: int) -> None:
        self.names = [f"caller{number}/{part}" for part in "abc"]
        self.version = 0
        self.task: asyncio.Task[dict[str, int]]

    def start(self, store: holdfast.AsyncStore, round_: int) -> None:
        values = dict.fromkeys(self.names, round_)
        self.task = asyncio.create_task(store.cells.set_many(values))

    async def settle(self, store: holdfast.AsyncStore, round_: int) -> str:
        """What became of the round's write: done, given up, or given up though it was written."""
        cells = await asyncio.gather(*map(store.cells.get_versioned, self.names))
        found = {(cell.version, cell.value) if cell else (0, None) for cell in cells}
        assert len(found) == 1, f"half of a write: {cells}"
        (version, value) = found.pop()
        outcome = "done"
        if self.task.cancelled():
            outcome = "given up" if version == self.version else "written"
            assert version in {self.version, self.version + 1}
            assert version == self.version or value == round_
        elif isinstance(self.task.exception(), holdfast.StoreClosed):
            outcome = "refused"
            assert version == self.version
        else:
            assert self.task.result() == dict.fromkeys(self.names, self.version + 1)
            assert (version, value) == (self.version + 1, round_)
        self.version = version
        return outcome


async def give_up(rng: random.Random, caller: Caller) -> None:
    """Cancel a caller: before it began, after some turns of the loop, or after some time."""
    match rng.randrange(3):
        case 0:
            pass
        case 1:
            for _ in range(rng.randrange(1, 5)):
                await asyncio.sleep(0)
        case _:
            await asyncio.sleep(rng.uniform(0, 0.002))  # a moment inside a commit
    caller.task.cancel()


async def call_and_give_up(
    store: holdfast.AsyncStore, rng: random.Random, callers: list[Caller], round_: int
) -> None:
    """Let all callers write, and more than half of them give up."""
    giving_up = []
    for caller in rng.sample(callers, len(callers)):
        caller.start(store, round_)
        if rng.random() < 0.6:
            giving_up.append(give_up(rng, caller))
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    await asyncio.gather(*giving_up)


@contextlib.contextmanager
def contention(path: str) -> Iterator[None]:
    """Somebody else holds the write lock most of the time: flushes wait for it."""
    over = threading.Event()

    def hold() -> None:
        connection = apsw.Connection(path)
        connection.set_busy_timeout(PATIENCE_SECS * 1000)
        while not over.is_set():
            connection.execute("BEGIN IMMEDIATE")
            over.wait(0.001)
            connection.execute("COMMIT")
            over.wait(0.0005)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        try:
            yield
        finally:
            over.set()
        holder.result()


async def play(url: str, rng: random.Random) -> dict[str, int]:
    seen = {"done": 0, "given up": 0, "written": 0}
    callers = [Caller(number) for number in range(CALLERS)]
    async with holdfast.open_async(url) as store:
        for round_ in range(ROUNDS):
            await call_and_give_up(store, rng, callers, round_)
            await asyncio.wait([caller.task for caller in callers])
            # Writes are made in the order they were asked for: after this one all are settled.
            await store.cells.set("barrier", round_)
            for outcome in await asyncio.gather(*(one.settle(store, round_) for one in callers)):
                seen[outcome] += 1
        await call_and_give_up(store, rng, callers, ROUNDS)
    # Closing finished what was in flight; nobody is left waiting.
    async with holdfast.open_async(url) as store:
        await asyncio.wait([caller.task for caller in callers])
        await asyncio.gather(*(caller.settle(store, ROUNDS) for caller in callers))
    return seen


def test_cancelled_async_writers_disturb_nobody(kind: str, new_url: Callable[[], str]) -> None:
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    url = new_url() + ASYNC_STORES[kind][1]
    rng = random.Random(f"{SEED}/{kind}")
    with contextlib.ExitStack() as beside:
        if kind == "sqlite-contended":
            with holdfast.open(url) as store:
                store.ping()
            beside.enter_context(contention(url.removeprefix("sqlite:///")))
        seen = asyncio.run(asyncio.wait_for(play(url, rng), PATIENCE_SECS))
    assert seen["done"] > ROUNDS, f"void: {seen}"
    assert seen["given up"] + seen["written"] > ROUNDS, f"void: {seen}"
    if kind != "sqlite-inline":
        # Inline and alone, a flush gives the loop no turn: nobody can give up inside one.
        assert seen["written"] > 0, f"void: nobody gave up during a flush, {seen}"


def test_cancelled_readers_give_their_connections_back(
    kind: str, new_url: Callable[[], str]
) -> None:
    async def read(url: str, rng: random.Random) -> int:
        cancelled = 0
        async with holdfast.open_async(url) as store:
            await store.cells.set("cell", "value")
            for _ in range(ROUNDS):
                reads = [
                    asyncio.create_task(call)
                    for _ in range(4)
                    for call in (store.cells.getv("cell"), store.cells.get("cell"))
                ]
                for task in rng.sample(reads, 4):
                    await asyncio.sleep(rng.uniform(0, 0.0005))
                    task.cancel()
                await asyncio.wait(reads)
                cancelled += sum(task.cancelled() for task in reads)
                answers = [task.result() for task in reads if not task.cancelled()]
                assert all(one == "value" or one[0].value == "value" for one in answers)
            assert await store.cells.get("cell") == "value"
        return cancelled

    url = new_url() + ASYNC_STORES[kind][1]
    rng = random.Random(f"{SEED}/{kind}")
    cancelled = asyncio.run(asyncio.wait_for(read(url, rng), PATIENCE_SECS))
    assert cancelled > 0 or kind != "postgres", "void: every read was done before its cancellation"


@pytest.mark.parametrize("how", ["signal", "thread"])
@pytest.mark.parametrize("kind", ["sqlite-inline", "postgres"], indirect=True)
def test_an_interrupted_thread_disturbs_nobody(
    kind: str, new_url: Callable[[], str], how: str
) -> None:
    task = Path(__file__).with_name("interrupt.py")
    # Without waiting for the disk most of the time passes in our own lines: that is where an
    # interrupt can do harm.
    url = new_url() + "?durability=cache"
    rounds = INTERRUPTS or (400 if kind == "sqlite-inline" else 150)
    patience = PATIENCE_SECS + rounds // 5
    order = {"url": url, "seed": SEED, "how": how, "rounds": rounds, "patience": patience}
    with Fleet(1, timeout=2 * patience) as fleet:
        (seen,) = fleet.run(f"{task}:interrupt", [order])
    sys.stderr.write(f"HOLDFAST_SEED={SEED}: {seen}\n")
    assert seen["written"] > 0, f"void: {seen}"
    assert seen["not written"] > 0, f"void: {seen}"
    assert seen["others"] > rounds, f"void: {seen}"

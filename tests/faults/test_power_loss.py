"""Power fails at a random change of the disk, again and again, in seeded workloads.

A chain starts with an empty disk and lives through several power cuts. Each life opens
what the last one left, so the cuts also hit migration, recovery and checkpoints.

HOLDFAST_SEED repeats a run; HOLDFAST_POWER_TRIALS sets how often the power fails.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from random import Random, SystemRandom

import pytest

import holdfast
from holdfast.testing.disk import Fault, check_integrity
from holdfast.testing.ledger import RUN, Call, CellState, Ledger, State, Verb, read_state
from holdfast.testing.power import PowerLossDisk
from holdfast.testing.world import BlockingColour

DATABASE = "/disk/power.db"
WAL = f"{DATABASE}-wal"
NAMES = tuple("abcdef")
VALUE_BYTES = (8, 8, 100, 2000, 6000, 15000)
LIVES = 6
TRIALS = int(os.environ.get("HOLDFAST_POWER_TRIALS", "1200"))
CONTROL_TRIALS = 300
SEED = int(os.environ.get("HOLDFAST_SEED") or SystemRandom().randrange(2**32))
REPORT_SECS = 5
COLOUR = BlockingColour()  # below the leaf both colours are one; this one needs no loop

Image = dict[str, bytes]


class Life:
    """One store on one disk, from opening to the power cut."""

    def __init__(self, rng: Random, image: Image, state: State, durability: str) -> None:
        self.rng = rng
        self.fresh = not image
        self.disk = PowerLossDisk("power-loss", image)
        # The small numbers are cuts in migration and recovery.
        self.disk.cut_power_at(rng.randint(1, rng.choice((12, 60, 400, 400))))
        self.ledger = Ledger(state)
        self.history = [state]
        self.opened = False
        self._url = url(self.disk, durability, checkpoint_pages=rng.choice((4, 20, 100)))

    async def run(self) -> None:
        """Write until the power goes or enough is written."""
        try:
            async with opened(self._url) as store:
                self.opened = True
                for call in calls(self.rng, self.ledger, self.rng.randint(5, 60)):
                    await self._make(store, call)
        except holdfast.StoreError:
            if self.disk.powered and self.disk.fault is None:
                raise

    async def _make(self, store: holdfast.AsyncStore, call: Call) -> None:
        try:
            answer = await call.make(store)
        except holdfast.StoreError as error:
            if not self.disk.powered:
                self.ledger.doubt(call)  # in flight: nobody was told, either way
                raise
            assert self.disk.fault is not None
            if error.outcome_unknown:
                self.ledger.doubt(call)
        else:
            self.ledger.acknowledge(call, answer)
            self.history.append(self.ledger.possible[0])

    def where_it_ended(self) -> str:
        """What the power cut interrupted."""
        if self.disk.powered:
            return "rest"
        if not self.opened:
            return "migration" if self.fresh else "opening"
        if self.disk.unsynced(DATABASE):
            return "checkpoint"
        return "commit" if self.disk.unsynced(WAL) else "between"


# The state that the next life of the chain begins with, None to end the chain.
Judge = Callable[[Life, Image], Coroutine[None, None, State | None]]


def url(disk: PowerLossDisk, durability: str, *, checkpoint_pages: int) -> str:
    options = f"durability={durability}&checkpoint_pages={checkpoint_pages}"
    return f"sqlite:///{DATABASE}?vfs={disk.name}&locking=exclusive&{options}"


def calls(rng: Random, ledger: Ledger, count: int) -> Iterator[Call]:
    """Random writes; three in four swaps name the right version."""
    verbs: tuple[Verb, ...] = ("init", "set", "cas", "delete", "set_many", "append", "append")
    for _ in range(count):
        verb, name = rng.choice(verbs), rng.choice(NAMES)
        if verb == "append":
            if rng.random() < 0.1:
                yield Call("delete_run", (f"{RUN}{name}",))
            else:
                values = [value(rng) for _ in range(rng.randint(1, 4))]
                yield Call(verb, (f"{RUN}{name}", values))
        elif verb == "delete":
            yield Call(verb, (name,))
        elif verb == "set_many":
            names = rng.sample(NAMES, rng.randint(2, len(NAMES)))
            yield Call(verb, ({name: value(rng) for name in names},))
        elif verb == "cas":
            live = ledger.possible[0].get(name, CellState()).live
            expected = rng.choice((live, live, live, live + 1)) or None
            yield Call(verb, (name, expected, value(rng)))
        else:
            yield Call(verb, (name, value(rng)))


def value(rng: Random) -> str:
    return rng.randbytes(rng.choice(VALUE_BYTES) // 2).hex()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[holdfast.AsyncStore]:
    store = await COLOUR.open(url, "default", None)
    try:
        yield store
    finally:
        await store.close()


async def reopen(image: Image) -> State:
    """What the store finds after the power cut; the file must be sound."""
    disk = PowerLossDisk("power-back", image)
    async with opened(url(disk, "always", checkpoint_pages=20)) as store:
        state = await read_state(store, NAMES)
    check_integrity(disk, DATABASE)
    return state


class Trials:
    """Runs chains of lives and counts where they ended."""

    def __init__(
        self, durability: str, capsys: pytest.CaptureFixture[str], *, failing_syncs: bool = False
    ) -> None:
        self.durability = durability
        self.failing_syncs = failing_syncs
        self.ended: Counter[str] = Counter()
        self.acknowledged = 0
        self._capsys = capsys
        self._began = self._reported = time.monotonic()

    def run(self, trials: int, judge: Judge) -> None:
        """Let the judge see every life and what is left of it."""
        for chain in range(trials // LIVES):
            rng = Random(f"{SEED}/{self.durability}/{chain}")
            try:
                COLOUR.run(self._run_chain(rng, judge))
            except Exception as exc:
                exc.add_note(f"HOLDFAST_SEED={SEED}, durability={self.durability}, {chain=}")
                raise
            if time.monotonic() - self._reported > REPORT_SECS:
                self.report()
        self.report()

    def report(self) -> None:
        """Tell how far the run is, on the terminal even under pytest."""
        self._reported = time.monotonic()
        trials = sum(self.ended.values())
        rate = trials / (self._reported - self._began)
        ended = ", ".join(f"{count} in {where}" for where, count in sorted(self.ended.items()))
        title = f"{self.durability}{', failing syncs' if self.failing_syncs else ''}"
        with self._capsys.disabled():
            sys.stderr.write(
                f"\npower loss, {title}: {trials} cuts ({ended}), "
                f"{self.acknowledged} writes acknowledged, {rate:.0f}/s, seed {SEED} "
            )

    async def _run_chain(self, rng: Random, judge: Judge) -> None:
        image: Image = {}
        state: State | None = {}
        for _ in range(LIVES):
            if state is None:
                return
            life = Life(rng, image, state, self.durability)
            if self.failing_syncs:
                life.disk.fault = Fault("sync", rng.randint(1, 30), rng.choice(("EIO", "ENOSPC")))
            await life.run()
            image = life.disk.crash(rng)
            state = await judge(life, image)
            self.ended[life.where_it_ended()] += 1
            self.acknowledged += len(life.history) - 1


async def nothing_lost(life: Life, image: Image) -> State:
    state = await reopen(image)
    life.ledger.observe(state)
    return state


def assert_cuts_hit_everything(ended: Counter[str]) -> None:
    least = sum(ended.values()) // 100
    assert {where for where, count in ended.items() if count > least} >= {
        "migration",
        "opening",
        "commit",
        "checkpoint",
    }, ended


def test_always_loses_no_acknowledged_write(capsys: pytest.CaptureFixture[str]) -> None:
    trials = Trials("always", capsys)
    trials.run(TRIALS, nothing_lost)
    assert_cuts_hit_everything(trials.ended)
    assert trials.acknowledged > TRIALS


def test_failed_sync_before_the_cut_costs_no_acknowledged_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trials = Trials("always", capsys, failing_syncs=True)
    trials.run(TRIALS // 4, nothing_lost)
    assert_cuts_hit_everything(trials.ended)


def test_standard_loses_only_the_newest_writes(capsys: pytest.CaptureFixture[str]) -> None:
    lost = 0

    async def judge(life: Life, image: Image) -> State:
        nonlocal lost
        state = await reopen(image)
        assert life.ledger.allows(state) or any(Ledger(old).allows(state) for old in life.history)
        lost += not life.ledger.allows(state)
        return state

    trials = Trials("standard", capsys)
    trials.run(CONTROL_TRIALS, judge)
    assert_cuts_hit_everything(trials.ended)
    # The control: the same harness does see lost writes.
    assert lost > CONTROL_TRIALS // 20


def test_cache_loses_writes_and_damages_files(capsys: pytest.CaptureFixture[str]) -> None:
    found: Counter[str] = Counter()

    async def judge(life: Life, image: Image) -> None:
        try:
            found["lost"] += not life.ledger.allows(await reopen(image))
        except (holdfast.StoreError, AssertionError):
            found["damaged"] += 1

    trials = Trials("cache", capsys)
    # Every life is its chain's only one: there is no going on with a damaged file.
    trials.run(CONTROL_TRIALS * LIVES, judge)
    # The control: the same harness does see lost writes and damaged files.
    assert min(found["lost"], found["damaged"]) > CONTROL_TRIALS // 20, found

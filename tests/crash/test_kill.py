"""A writer killed with SIGKILL, again and again on one database, loses nothing it acknowledged.

HOLDFAST_KILLS is how many for SQLite, a tenth of it for PostgreSQL; HOLDFAST_SEED repeats the
choice of moments.
"""

import contextlib
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.servers import PostgresServer

KILLS = int(os.environ.get("HOLDFAST_KILLS", "0"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
KILLS_PER_DATABASE = 50
ROLES = 27  # of worker.py
SILENCE_SECS = 60


class Zygote:
    """The process that forks writers and checkers, and what they say."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._heard = b""

    def order(self, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def line(self, timeout: float = SILENCE_SECS) -> list[str] | None:
        """The next line in words; None when none came in time."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, f"the zygote died, exit {self.process.wait()}"
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode().split(" ", 3)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@dataclass
class Run:
    """One database that many writers in turn are killed on."""

    zygote: Zygote
    url: str
    colour: str
    ack_first: bool = False
    done: list[int] = field(default_factory=lambda: [0] * ROLES)
    begun: list[int] = field(default_factory=lambda: [0] * ROLES)
    acked: list[int] = field(default_factory=lambda: [0] * ROLES)

    def hear(self, timeout: float = SILENCE_SECS) -> str | None:
        words = self.zygote.line(timeout)
        match words:
            case ["begin", role, k]:
                self.begun[int(role)] = int(k)
            case ["ack", role, k]:
                self.acked[int(role)] = int(k)
            case ["retry" | "dead", *_] | None:
                pass
            case _:
                pytest.fail(" ".join(words))
        return words[0] if words else None

    def start(self) -> None:
        self.begun, self.acked = list(self.done), list(self.done)
        order = {"url": self.url, "done": self.done, "run": self.url}
        self.zygote.order(write={**order, "colour": self.colour, "ack_first": self.ack_first})

    def hear_acks(self, number: int) -> None:
        while number:
            said = self.hear()
            assert said, f"the writer said nothing for {SILENCE_SECS} s"
            number -= said == "ack"

    def kill(self, *, after: float = 0) -> bool:
        """Kill the writer; True when it had writes in flight."""
        deadline = time.monotonic() + after
        while (left := deadline - time.monotonic()) > 0:
            self.hear(left)
        self.zygote.order(kill=True)
        while self.hear() != "dead":
            pass
        return self.begun != self.acked

    def check(self) -> int:
        """Compare the store with what was acknowledged; returns how many more writes it holds."""
        self.zygote.order(check={"url": self.url})
        words = self.zygote.line()
        assert words is not None, f"the checker said nothing for {SILENCE_SECS} s"
        if words[0] != "done":
            pytest.fail(" ".join(words))
        self.done = json.loads(" ".join(words[1:]))
        for role, (acked, done, begun) in enumerate(
            zip(self.acked, self.done, self.begun, strict=True)
        ):
            assert acked <= done, f"role {role}: write {acked} was acknowledged and is lost"
            assert done <= begun, f"role {role}: holds write {done}, begun are only {begun}"
        assert self.zygote.line() is not None
        return sum(self.done) - sum(self.acked)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_killed_writer_loses_no_acknowledged_write_on_sqlite(
    colour: str, zygote: Zygote, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kills = KILLS // 2 or 100
    rng = random.Random(f"{SEED}/{colour}")
    hits = surplus = 0
    for number, start in enumerate(range(0, kills, KILLS_PER_DATABASE)):
        run = Run(zygote, f"sqlite:///{tmp_path}/{number}.db", colour)
        todo = min(KILLS_PER_DATABASE, kills - start)
        with contextlib.ExitStack() as beside:
            if number % 2:
                # Somebody else has the database open: nobody recovers the log at the next open.
                beside.enter_context(holdfast.open(run.url)).ping()
            more = kill_often(run, rng, todo)
        hits, surplus = hits + more[0], surplus + more[1]
        progress(capfd, f"sqlite {colour}: {start + todo} of {kills} kills, {hits} in flight")
    verify_activity(kills, hits, surplus)


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_killed_writer_loses_no_acknowledged_write_on_postgres(
    colour: str, zygote: Zygote, postgres: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    kills = KILLS // 25 or 25
    rng = random.Random(f"{SEED}/{colour}")
    hits = surplus = 0
    for start in range(0, kills, KILLS_PER_DATABASE):
        run = Run(zygote, postgres.create_database(), colour)
        todo = min(KILLS_PER_DATABASE, kills - start)
        more = kill_often(run, rng, todo)
        hits, surplus = hits + more[0], surplus + more[1]
        progress(capfd, f"postgres {colour}: {start + todo} of {kills} kills, {hits} in flight")
    verify_activity(kills, hits, surplus)


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_killed_server_loses_no_acknowledged_write_and_doubles_none(
    colour: str, zygote: Zygote, postgres: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """The writer lives on, repeats what failed under the same op_id, and is then killed too."""
    kills = KILLS // 100 or 4
    rng = random.Random(f"{SEED}/{colour}/server")
    hits = surplus = 0
    run = Run(zygote, postgres.create_database(), colour)
    for number in range(kills):
        if number % KILLS_PER_DATABASE == KILLS_PER_DATABASE - 1:
            run = Run(zygote, postgres.create_database(), colour)
        run.start()
        run.hear_acks(rng.randrange(1, 200))
        postgres.kill()
        while run.hear(0) is not None:
            pass
        hits += run.begun != run.acked
        reached = list(run.acked)
        postgres.start()
        while not all(now > then for now, then in zip(run.acked, reached, strict=True)):
            run.hear_acks(1)
        run.kill()
        surplus += run.check()
        progress(
            capfd, f"postgres {colour}: {number + 1} of {kills} server kills, {hits} in flight"
        )
    verify_activity(kills, hits, surplus)


def test_a_writer_that_acknowledges_too_early_is_found(zygote: Zygote, tmp_path: Path) -> None:
    run = Run(zygote, f"sqlite:///{tmp_path}/control.db", "blocking", ack_first=True)
    with pytest.raises(AssertionError, match="was acknowledged and is lost"):
        kill_often(run, random.Random(SEED), 50)


def kill_often(run: Run, rng: random.Random, kills: int) -> tuple[int, int]:
    """How many kills met a write in flight, and how many such writes turned out committed."""
    hits = surplus = 0
    for _ in range(kills):
        run.start()
        if rng.random() < 0.1:
            hits += run.kill(after=rng.uniform(0, 0.02))  # often still opening
        else:
            run.hear_acks(rng.randrange(1, 100))
            hits += run.kill(after=rng.uniform(0, 0.002))
        surplus += run.check()
    return hits, surplus


def verify_activity(kills: int, hits: int, surplus: int) -> None:
    sys.stderr.write(f"HOLDFAST_SEED={SEED}: {kills} kills, {hits} in flight, {surplus} extra\n")
    assert hits >= kills / 2, f"void: only {hits} of {kills} kills met a write in flight"


def progress(capfd: pytest.CaptureFixture[str], line: str) -> None:
    if KILLS:
        with capfd.disabled():
            sys.stderr.write(f"\r{line} ")
            sys.stderr.flush()

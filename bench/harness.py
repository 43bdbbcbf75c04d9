"""Runs scenarios: rounds over the contenders, each in a new process and a fresh database.

The order rotates from round to round, so that nobody always runs behind the same neighbour.
A contender that fails or cannot be had does not stop the others.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.child import Task
from bench.counters import Counters
from bench.disk import sync_rate
from bench.environments import NoEnvironment, interpreter
from bench.meter import Sources
from bench.preload import Shim
from bench.results import Outcome, Row
from bench.rows import fill
from bench.scenario import Contender, Engine, Scenario
from bench.servers import Server

_ROOT: Final = Path(__file__).parent.parent
_SECS_BEYOND: Final = 120.0
_DISK_SECS: Final = 0.2
# Enough for a dozen checkpoints: their syncs are part of what an operation costs.
_COUNTED_OPS: Final = 3000


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often: `ops` operations per run, or as many as fit into `seconds`."""

    rounds: int
    seconds: float
    ops: int | None
    folder: Path
    shim: Shim | None


@dataclass(frozen=True, slots=True)
class Harness:
    """Runs one scenario after another; `tell` hears what is running, and how many runs ended."""

    settings: Settings
    servers: Mapping[Engine, Server]
    tell: Callable[[str, int], None]

    def runs_of(self, scenario: Scenario) -> int:
        """How many runs the scenario takes."""
        return len(scenario.contenders) * self._rounds(scenario)

    def run(self, scenario: Scenario) -> Outcome:
        """The figures of all rounds, with the disk's own rate before and after."""
        rows = {c.label: Row(c) for c in scenario.contenders}
        outcome = Outcome(scenario, rows, syncs_before=self._disk_rate())
        with self._filled(scenario) as filled:
            for number in range(self._rounds(scenario)):
                turn = number % len(scenario.contenders)
                for contender in scenario.contenders[turn:] + scenario.contenders[:turn]:
                    self.tell(f"{scenario.engine} {scenario.name}: {contender.label}", 0)
                    place = filled.get(contender.work.rows)
                    self._run_once(scenario, rows[contender.label], place, counting=number == 0)
                    self.tell("", 1)
        outcome.syncs_after = self._disk_rate()
        return outcome

    @contextmanager
    def _filled(self, scenario: Scenario) -> Iterator[dict[int, str]]:
        """By how many records they hold, the databases that all rounds of the scenario share."""
        sizes = sorted({contender.work.rows for contender in scenario.contenders} - {0})
        with ExitStack() as stack:
            server = self.servers.get(scenario.engine)
            if not sizes:
                places = {}
            elif server is None:
                folder = tempfile.TemporaryDirectory(dir=self.settings.folder)
                path = stack.enter_context(folder)
                places = {size: f"{path}/{size}" for size in sizes}
            else:
                urls = server.fresh_databases([str(size) for size in sizes])
                stack.callback(server.drop_databases, list(urls.values()))
                places = {size: urls[str(size)] for size in sizes}
            for size, place in places.items():
                fill(place, size, self.tell)
            yield places

    def _rounds(self, scenario: Scenario) -> int:
        return 1 if scenario.counts_only else self.settings.rounds

    def _disk_rate(self) -> float | None:
        shim = self.settings.shim
        if shim is not None and shim.fixed_us is not None:
            return None
        return sync_rate(self.settings.folder, min(_DISK_SECS, self.settings.seconds))

    def _run_once(self, scenario: Scenario, row: Row, place: str | None, *, counting: bool) -> None:
        if row.unavailable or row.failed:
            return
        try:
            python = interpreter(row.contender.environment)
        except NoEnvironment as reason:
            row.unavailable = str(reason)
            return
        folder = Path(tempfile.mkdtemp(dir=self.settings.folder))
        try:
            answer = self._in_database(
                scenario, row.contender, python, folder, place, counting=counting
            )
        except ContenderFailed as failure:
            row.failed = str(failure)
            return
        finally:
            shutil.rmtree(folder)
        row.timed.append(answer["timed"])
        row.counted = answer.get("counted", row.counted)

    def _in_database(
        self,
        scenario: Scenario,
        contender: Contender,
        python: Path,
        folder: Path,
        filled: str | None,
        *,
        counting: bool,
    ) -> dict[str, Any]:
        shim = self.settings.shim
        own = None if shim is None else Counters.create(folder / "own.counters")
        environment = {} if shim is None or own is None else shim.environment(own)
        server = self.servers.get(scenario.engine)
        names = ["timed", *(["counted"] if counting else [])]
        if counting and server is not None and server.counts_when_closed:
            names.append("idle")
        if filled is not None:
            places = dict.fromkeys(names, filled)
        elif server is None:
            places = {name: str(folder / name) for name in names}
        else:
            places = server.fresh_databases(names)
        if server is None:
            sources = count_sources = Sources(own_counters=None if own is None else str(own.path))
        else:
            sources = server.sources(own, counting=False)
            count_sources = server.sources(own, counting=True)
        task = Task(
            program=contender.program,
            work=contender.work,
            options=contender.options,
            apsw=scenario.engine == "sqlite" and contender.environment == "own",
            where=places["timed"],
            sources=sources,
            ops=self.settings.ops or (_COUNTED_OPS if scenario.counts_only else None),
            seconds=self.settings.seconds,
            count_where=_relayed(places.get("counted"), server),
            idle_where=_relayed(places.get("idle"), server),
            count_sources=count_sources,
        )
        try:
            return _run_child(python, task, environment)
        finally:
            if server is not None and filled is None:
                server.drop_databases(list(places.values()))


class ContenderFailed(RuntimeError):
    """A contender's process ended badly; the message is the last line it wrote."""


def _relayed(place: str | None, server: Server | None) -> str | None:
    return place if place is None or server is None else server.through_relay(place)


def _run_child(python: Path, task: Task, variables: dict[str, str]) -> dict[str, Any]:
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    seconds = _SECS_BEYOND + 20 * task.seconds
    try:
        result = subprocess.run(
            [str(python), "-m", "bench.child", task.to_json()],
            env={**os.environ, **variables, "PYTHONPATH": path},
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as expired:
        raise ContenderFailed(f"no answer after {seconds:g} s") from expired
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise ContenderFailed(lines[-1])
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer

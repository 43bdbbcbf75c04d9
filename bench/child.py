"""The process of one contender: it opens, warms up, runs under the meter, checks, closes.

`python -m bench.child TASK` with the task as JSON; the answer is one line of JSON on
standard output. Standard library only, because it also runs in other environments.
"""

import asyncio
import dataclasses
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bench.callers import run_async, run_blocking, run_starved
from bench.meter import Meter, Sources, cost
from bench.scenario import Work
from bench.tally import Tally

# A warm-up of this part of the timed stretch also tells how many operations fill it.
_WARM_UP: Final = 0.15


@dataclass(frozen=True, slots=True)
class Task:
    """What the child is told: the program, its work, where its database is, how long to run."""

    program: str
    work: Work
    options: dict[str, str]
    # Whether the program opens its database with apsw, so that we can hook into it.
    apsw: bool
    where: str
    sources: Sources
    ops: int | None = None
    seconds: float = 1.0
    # A second, untimed run that counts statements, in this other database.
    count_where: str | None = None
    # A third one, only opened and closed: what that costs is taken off the server's own counts.
    idle_where: str | None = None
    count_sources: Sources = field(default_factory=Sources)

    def to_json(self) -> str:
        """The command-line argument that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """The task that `to_json` wrote."""
        raw = json.loads(text)
        raw["work"] = Work(**raw["work"])
        raw["sources"] = Sources(**raw["sources"])
        raw["count_sources"] = Sources(**raw["count_sources"])
        return cls(**raw)


class Session:
    """An open program and its callers, in either colour, driven by blocking calls."""

    def __init__(self, task: Task, where: str, tally: Tally | None) -> None:
        module = importlib.import_module(f"bench.contenders.{task.program}")
        self._work: Final = task.work
        self._seconds: Final = task.seconds
        self._runner = asyncio.Runner(loop_factory=_loop_factory(task.options))
        self._program: Final[Any] = module.Program(where, task.work, task.options, tally)
        self._await(self._program.open())
        self._steps = [self._await(self._program.caller(n)) for n in range(task.work.callers)]
        self._done = 0

    def run(self, operations: int) -> int:
        """Run so many operations, but one per caller at least; return how many.

        Beside a task that burns the CPU, as many as there is time for.
        """
        # Numbers start at 1: 0 is what a cell is born with.
        first = self._done + 1
        if self._work.burn_ms:
            return self._run_starved(first)
        done = max(operations, self._work.callers)
        numbers = range(first, first + done)
        if self._program.colour == "async":
            self._runner.run(run_async(self._steps, numbers))
        else:
            run_blocking(self._steps, numbers)
        self._done += done
        return done

    def _run_starved(self, first: int) -> int:
        work = run_starved(self._steps, self._seconds, first, burn_ms=self._work.burn_ms)
        done = self._runner.run(work)
        self._done += done
        return done

    def close(self) -> dict[str, float]:
        """Check that every write arrived, close, and return what the program has to add."""
        notes = self._await(self._program.verify(self._done))
        self._await(self._program.close())
        self._runner.close()
        return dict(notes or {})

    def _await(self, result: Any) -> Any:  # noqa: ANN401 - whatever the program returns
        return self._runner.run(result) if asyncio.iscoroutine(result) else result


def timed(task: Task) -> dict[str, float]:
    """The cost of the timed stretch, with `ops`: how many operations it was."""
    session = Session(task, task.where, None)
    operations = _warm_up(session, task)
    meter = Meter(task.sources)
    before = meter.read()
    done = session.run(operations)
    figures = cost(before, meter.read())
    return {"ops": done, **figures, **session.close()}


def counted(task: Task, operations: int) -> dict[str, float]:
    """Counts of a shorter, untimed run in a database of its own."""
    assert task.count_where is not None
    where, idle = task.count_where, task.idle_where
    # Warm enough that each connection of a pool has prepared its statement.
    warm = min(operations, 100)
    if idle is None:
        return _count_run(task, where, warm, operations)
    from bench.wal_syncs import syncs_of

    figures: dict[str, float] = {}

    def run() -> None:
        figures.update(_count_run(task, where, warm, operations))

    around = syncs_of(task.where, idle, lambda: _count_run(task, idle, warm, 0))
    return {**figures, "syncs": syncs_of(task.where, where, run) - around}


def _count_run(task: Task, where: str, warm: int, operations: int) -> dict[str, float]:
    tally = Tally()
    options = _watch_apsw(task, tally) if task.apsw else task.options
    session = Session(dataclasses.replace(task, options=options), where, tally)
    session.run(warm)
    meter = Meter(task.count_sources)
    before, tally_before = meter.read(), tally.read()
    done = session.run(operations) if operations else 0
    figures = {**cost(tally_before, tally.read()), **cost(before, meter.read())}
    session.close()
    return {"ops": done, **figures}


def main() -> None:
    """Do the task given as the only argument and print its figures."""
    task = Task.from_json(sys.argv[1])
    answer = {"timed": timed(task)}
    if task.count_where is not None:
        # Enough for the third digit, few enough to be short.
        operations = min(int(answer["timed"]["ops"]), max(500, task.work.callers * 10))
        answer["counted"] = counted(task, operations)
    print(json.dumps(answer))


def _warm_up(session: Session, task: Task) -> int:
    """Run until warm, and return how many operations to time."""
    if task.ops is not None:
        session.run(1)
        return task.ops
    operations, elapsed = 1, 0.0
    while elapsed < task.seconds * _WARM_UP:
        operations *= 4
        begin = time.perf_counter()
        operations = session.run(operations)
        elapsed = time.perf_counter() - begin
    return max(1, int(operations / elapsed * task.seconds))


def _watch_apsw(task: Task, tally: Tally) -> dict[str, str]:
    """The options with which the program's SQLite connections are counted."""
    from bench.sqlite_hooks import count_statements, count_syncs

    count_statements(tally)
    if task.sources.own_counters is not None:
        return task.options
    return {**task.options, "vfs": count_syncs(tally)}


def _loop_factory(options: dict[str, str]) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if options.get("loop") != "uvloop":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    main()

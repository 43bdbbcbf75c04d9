"""Real processes that run the same task at the same moment.

A task is a function `task(gate, **args)` that returns a JSON value. `gate()` is a barrier
over all processes of the run: each call waits until every process has come to its own. The
processes stay alive from run to run, so that a race can be repeated hundreds of times without
paying for an interpreter each time; none of them is forked, so no open store is inherited.

    with Fleet(8) as fleet:
        won = fleet.run("tests/races/tasks.py:create", [{"url": url}] * 8)
"""

import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

# Released racers wait for one instant of the clock that all processes share: the wake-ups
# of their pipes lie further apart than the races they should run.
_START_NS = 1_000_000


class TaskFailed(AssertionError):
    """A task raised, died or fell silent; the message holds what it said last."""


class Fleet:
    """Processes that run tasks together; a context manager that ends them."""

    def __init__(self, size: int, *, timeout: float = 120) -> None:
        self.timeout = timeout
        self._size = size
        self._members: list[_Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, task: str | Sequence[str], each: Sequence[dict[str, Any]]) -> list[Any]:
        """The results of `module:function` or `path.py:function`, one process per item of `each`.

        `task` is one for all, or one per process. When a process fails, all are ended and
        TaskFailed carries its traceback; the next run starts new ones.
        """
        while len(self._members) < self._size:
            self._members.append(_Member())
        members = self._members[: len(each)]
        if len(members) < len(each):
            raise ValueError(f"{len(each)} tasks for a fleet of {self._size}")
        try:
            tasks = [task] * len(each) if isinstance(task, str) else task
            for member, name, args in zip(members, tasks, each, strict=True):
                member.send({"task": name, "args": args})
            while True:
                heard = [member.receive(self.timeout) for member in members]
                if all("result" in message for message in heard):
                    return [message["result"] for message in heard]
                if not all("ready" in message for message in heard):
                    raise TaskFailed(  # noqa: TRY301  the handler below ends the processes
                        f"some wait at the gate, some are done: {heard}"
                    )
                start = time.monotonic_ns() + _START_NS
                for member in members:
                    member.send({"start": start})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        while self._members:
            self._members.pop().end()


class _Member:
    """One process and the two pipes to it, a JSON value per line."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.testing.fleet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._heard = b""

    def send(self, message: dict[str, Any]) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._heard[-65536:]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TaskFailed(f"process {self.process.pid} said nothing for {timeout} s")
            more = os.read(stdout.fileno(), 65536)
            if not more:
                raise TaskFailed(f"process {self.process.pid} died, exit {self.process.wait()}")
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise TaskFailed(message["error"])
        return message

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def _find(task: str) -> Callable[..., Any]:
    where, _, name = task.rpartition(":")
    if where.endswith(".py"):
        found: Callable[..., Any] = runpy.run_path(where)[name]
    else:
        found = getattr(importlib.import_module(where), name)
    return found


def main() -> None:
    """Serve tasks from standard input until it closes."""
    # What a task prints must not mix with the answers: it goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def gate() -> None:
        answer({"ready": True})
        start = json.loads(sys.stdin.readline())["start"]
        while time.monotonic_ns() < start:
            pass

    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer({"result": _find(order["task"])(gate, **order["args"])})
        except Exception:  # noqa: BLE001  the parent raises it, whatever it is
            answer({"error": traceback.format_exc()})


if __name__ == "__main__":
    main()

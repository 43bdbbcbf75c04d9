"""The workers as their parent sees them: processes that are started, heard, killed, ended.

Every worker is a fresh interpreter in a process group of its own: it inherits no open store,
and Ctrl-C reaches the parent alone, which then ends each worker by its own process.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from holdfast.demo.worker import HALT, Report, State, Task

_LAST_WORDS = 20  # lines


class Member:
    """One worker process, with the last it said."""

    def __init__(self, task: Task, heard: queue.SimpleQueue[Heard]) -> None:
        self.worker = task.worker
        self.report = Report(State.STARTING)
        self.running = True
        self._heard = heard
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.demo.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # the lines that are no reports are its last words
            process_group=0,
        )
        self.pid = self._process.pid
        self._tell(msgspec.json.encode(task) + b"\n")
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def halt(self) -> None:
        """Ask it to stand still in the middle of an order; it reports HALTED when it does."""
        self._tell(HALT)

    def stop(self) -> None:
        """Ask it to finish its open order and leave."""
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                stdin.close()

    def kill(self) -> None:
        """End it with SIGKILL; when this returns it is gone."""
        self._process.kill()
        self._process.wait()
        self.note(msgspec.structs.replace(self.report, state=State.KILLED))

    def note(self, report: Report) -> None:
        """Keep what it said last; after the end of a process nothing is added."""
        if self.running:
            self.report = report
            self.running = report.state not in {State.DONE, State.FAILED, State.KILLED}

    def free(self) -> None:
        """Make sure that the process is gone, and give its pipes back."""
        self.kill()
        self._listener.join()
        self.stop()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _tell(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has left: the listener reports that
                stdin.write(line)
                stdin.flush()

    def _listen(self) -> None:
        words: list[str] = []
        last = State.STARTING
        for line in self._process.stdout or ():
            try:
                report = msgspec.json.decode(line, type=Report)
            except msgspec.DecodeError:
                words = [*words, line.decode(errors="replace").rstrip()][-_LAST_WORDS:]
                continue
            last = report.state
            self._heard.put(Heard(self, report))
        if last not in {State.DONE, State.FAILED}:
            error = "\n".join(words) or f"exit code {self._process.wait()}"
            self._heard.put(Heard(self, Report(State.FAILED, error=error)))


class Heard(NamedTuple):
    """A report, and whose it is. A worker that leaves without a word is reported as FAILED."""

    member: Member
    report: Report


class Crew:
    """All workers of a run, those that are gone included; a context manager that ends them."""

    def __init__(self, url: str, namespace: str, *, share: int) -> None:
        self.members: list[Member] = []
        # Simple: a Ctrl-C inside a Queue can leave it locked for everybody.
        self.heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._url = url
        self._namespace = namespace
        self._share = share

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.free()

    def start(self, worker: int) -> Member:
        """A new process for this worker number; it takes up the journal that is there."""
        task = Task(self._url, self._namespace, worker, self._share)
        member = Member(task, self.heard)
        self.members.append(member)
        return member

    def stop(self) -> None:
        """Ask all to finish their open orders and leave."""
        for member in self.members:
            member.stop()

    @property
    def orders(self) -> int:
        """How many orders the workers say they have closed."""
        return sum(member.report.orders for member in self.members)

    @property
    def lost_races(self) -> int:
        """How many compare-and-swaps came too late and were tried again."""
        return sum(member.report.lost_races for member in self.members)

"""What one stretch of work cost: time, CPU here and on the server, syncs, statements.

A meter is read before and after; the difference is the cost. Time spent spinning in the
shim stands for a disk's work, so it is taken off the CPU time.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.counters import Counters, Slot

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from; what is None is not measured."""

    own_counters: str | None = None
    server_counters: str | None = None
    relay_counters: str | None = None
    postmaster_pid: int | None = None


class Meter:
    """Reads the counts of this process and of the server that works for it."""

    def __init__(self, sources: Sources) -> None:
        self._own: Final = _counters(sources.own_counters)
        self._server: Final = _counters(sources.server_counters)
        self._relay: Final = _counters(sources.relay_counters)
        self._postmaster: Final = sources.postmaster_pid

    def read(self) -> dict[str, float]:
        """The figures now; those that have no source are not there."""
        figures: dict[str, float] = {
            "seconds": time.perf_counter(),
            "cpu_seconds": time.process_time() - _spun(self._own),
        }
        syncs = [file.read(Slot.SYNCS) for file in (self._own, self._server) if file is not None]
        if syncs:
            figures["syncs"] = sum(syncs)
        if self._postmaster is not None:
            figures["server_cpu_seconds"] = _family_cpu(self._postmaster) - _spun(self._server)
        if self._relay is not None:
            figures["statements"] = self._relay.read(Slot.STATEMENTS)
            figures["transactions"] = self._relay.read(Slot.TRANSACTIONS)
        return figures


def cost(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was used between two readings."""
    return {name: after[name] - before[name] for name in after}


def _counters(path: str | None) -> Counters | None:
    return None if path is None else Counters(Path(path))


def _spun(counters: Counters | None) -> float:
    return 0.0 if counters is None else counters.read(Slot.SPUN_NS) / 1e9


def _family_cpu(parent: int) -> float:
    """CPU seconds of a process, its living children and those it has waited for."""
    seconds = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The command's name, in parentheses, may hold spaces: count from behind it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if folder.name == str(parent):
                seconds += _cpu(folder, fields) + _ticks(fields[13:15])
            elif fields[1] == str(parent):
                seconds += _cpu(folder, fields)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked; its parent has its time now
    return seconds


def _cpu(folder: Path, fields: list[str]) -> float:
    """CPU seconds of one process, in nanoseconds where the kernel tells them."""
    # A process's own file there tells of its first thread only.
    fine = list(folder.glob("task/*/schedstat"))
    if not fine:
        return _ticks(fields[11:13])
    return sum(int(thread.read_text().split()[0]) for thread in fine) / 1e9


def _ticks(numbers: list[str]) -> float:
    return sum(map(int, numbers)) / _TICKS_PER_SECOND

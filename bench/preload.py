"""The preloaded library that counts a process's syncs and can fix their length.

It is built from shim/fdatasync.c when a C compiler is present. Without one the benchmark
goes on: syncs are then counted by slower means, and their length is the disk's.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.counters import Counters

_SOURCE: Final = Path(__file__).parent / "shim" / "fdatasync.c"


class NoShim(RuntimeError):
    """The shim cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Shim:
    """A built library, and the length in microseconds that it gives to each sync, if any."""

    library: Path
    fixed_us: int | None

    def environment(self, counters: Counters) -> dict[str, str]:
        """The variables that put a new process under the shim, counting into `counters`."""
        variables = {"LD_PRELOAD": str(self.library), "BENCH_COUNTERS": str(counters.path)}
        if self.fixed_us is not None:
            variables["BENCH_SYNC_US"] = str(self.fixed_us)
        return variables


def build(folder: Path, fixed_us: int | None) -> Shim:
    """The shim, compiled into `folder`, which every user must be able to enter."""
    if sys.platform != "linux":
        raise NoShim(f"preloading is written for Linux, this is {sys.platform}")
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
    if not compiler:
        raise NoShim("no C compiler (cc, gcc, clang) found")
    library = folder / "fdatasync.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if result.returncode != 0:
        raise NoShim(f"{compiler} failed: {result.stderr.strip()}")
    library.chmod(0o755)
    return Shim(library, fixed_us)

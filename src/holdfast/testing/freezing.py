"""Processes that hang: stopped by the kernel in the middle of whatever they do."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

_PAUSE_SECS: Final = 0.001
_WAIT_SECS: Final = 10.0


def freeze(pid: int) -> None:
    """Stop the process until it gets SIGCONT; return when every thread of it stands still.

    The signal alone is not enough: a server of many threads has answered after it was sent.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _WAIT_SECS
    while sys.platform == "linux" and not all(
        map(_stands_still, Path(f"/proc/{pid}/task").iterdir())
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stop")
        time.sleep(_PAUSE_SECS)


def _stands_still(task: Path) -> bool:
    try:
        stat = (task / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended
    return stat.rpartition(")")[2].split()[0] in {"T", "t"}

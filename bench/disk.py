"""The disk's own speed: how many small writes it makes durable per second, one after another.

Printed beside every scenario, because it is the ceiling of every durable write with one
caller, and because it moves by itself. It is measured before and after.
"""

import os
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Final

_PAGE: Final = 4096
_PAGES: Final = 256  # 1 MiB, written around and around: the file's size stays out of it
# Above this a "sync" does not reach a disk (tmpfs, or a drive that lies): say so.
IN_MEMORY_RATE: Final = 50_000.0


def sync_rate(folder: Path, seconds: float) -> float:
    """Writes of one page with fdatasync, per second."""
    with tempfile.TemporaryFile(dir=folder) as file:
        fd = file.fileno()
        os.pwrite(fd, bytes(_PAGE * _PAGES), 0)
        os.fdatasync(fd)
        begin = time.perf_counter()
        for done in count(1):
            os.pwrite(fd, os.urandom(16) * (_PAGE // 16), (done % _PAGES) * _PAGE)
            os.fdatasync(fd)
            elapsed = time.perf_counter() - begin
            if elapsed >= seconds:
                return done / elapsed
    raise AssertionError("count() never ends")

"""A line on the terminal that tells how far the work is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_EVERY = 0.1  # seconds between two looks
_WIDTH = 24


class ProgressLine:
    """Shows a count, with a bar when it is known how much there is; only on a terminal."""

    def __init__(self, verb: str, part: Callable[[], float] | None = None) -> None:
        self._verb = verb
        self._part = part
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began
        self._shown = False

    def show(self, count: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if not self._terminal or now < self._next:
            return
        self._next = now + _EVERY
        self._shown = True
        rate = count / max(now - self._began, _EVERY)
        sys.stderr.write(f"\r\033[K{self._bar()}{self._verb} {count:,}, {rate:,.0f}/s")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:  # the terminal is as it was, for what is said next
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _bar(self) -> str:
        if self._part is None:
            return ""
        part = min(self._part(), 1.0)
        done = int(part * _WIDTH)
        return f"[{'#' * done}{'.' * (_WIDTH - done)}] {part:4.0%} "

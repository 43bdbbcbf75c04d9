# GENERATED from holdfast/aio/retry.py by tools/generate_sync.py: change that file instead.
"""Work that is tried again when it meets a Conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import Conflict, InvalidArgument, InvalidState
from holdfast.facets.backend import Engine
from holdfast.facets.retry import pauses
from holdfast.runtime.blocking import run

T = TypeVar("T")


def repeated(attempt: Callable[[], T], attempts: int, on: Engine) -> T:
    """The attempt's result, of the first one that meets no retryable Conflict."""
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise InvalidArgument(f"attempts: wanted a whole number from 1 up, found {attempts!r}")
    for pause in pauses(attempts):
        try:
            return attempt()
        except Conflict as conflict:
            if not conflict.retryable or pause is None:
                raise
        run(on.pause(pause))
    raise InvalidState("there is no attempt left")

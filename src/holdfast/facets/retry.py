"""How long to wait before trying again after a conflict."""

from __future__ import annotations

import random
from collections.abc import Iterator

_FIRST = 0.002
_LONGEST = 0.25


def pauses(attempts: int) -> Iterator[float | None]:
    """The pause after each attempt, in seconds, None after the last.

    Random, from nothing up to a bound that doubles: those who met once shall not meet again.
    """
    bound = _FIRST
    for _ in range(attempts - 1):
        yield random.uniform(0, bound)  # noqa: S311 - spreads contenders
        bound = min(bound * 2, _LONGEST)
    yield None

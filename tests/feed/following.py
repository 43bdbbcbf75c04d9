"""What a test asks of a watch."""

from holdfast import CAUGHT_UP, CellChange
from holdfast.sync.watch import Watch

PATIENCE = 30.0
"""Seconds until a change that does not come is a failure."""


def told(watch: Watch[CellChange], count: int) -> list[tuple[str, object]]:
    """Names and values of the next changes; None for a deleted cell."""
    changes = [watch.next(timeout=PATIENCE) for _ in range(count)]
    found = [change for change in changes if isinstance(change, CellChange)]
    assert len(found) == count, changes
    return [(change.name, change.cell and change.cell.value) for change in found]


def caught_up(watch: Watch[CellChange]) -> Watch[CellChange]:
    """The watch, whose marker comes next."""
    assert watch.next(timeout=PATIENCE) is CAUGHT_UP
    return watch

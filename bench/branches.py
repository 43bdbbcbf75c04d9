"""What the contenders of branches share: which cells a merge changes, and the check of forks."""

from collections.abc import Iterable
from typing import Final

from bench.scenario import Work, value

TRIAL: Final = "trial"


def changed_cells(work: Work, number: int) -> dict[str, object]:
    """What is written on the branch before the merge of that number."""
    return dict.fromkeys(work.other_cells()[: work.changes], value(number))


def check_forks(branches: Iterable[str], done: int) -> None:
    """Raise unless exactly the forks that were counted are there."""
    found = sum(name.startswith("fork-") for name in branches)
    assert found == done, f"{found} branches were made, {done} forks were counted"

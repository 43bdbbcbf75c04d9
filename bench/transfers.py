"""What the contenders of transfers share: who gives to whom, what is there first, the check."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from bench.scenario import Work

if TYPE_CHECKING:
    from holdfast import Cell

Way = Literal["one cell", "two loops", "session"]

ALL: Final = "accounts"
"""The cell that holds all accounts, where one does."""

ATTEMPTS: Final = 1000
"""Enough for every transfer to be made in the end."""

_FIRST: Final = 1000


def pair(names: list[str], number: int) -> tuple[str, str]:
    """The two accounts of the transfer of that number; its amount is 1."""
    source = number * 7919 % len(names)
    distance = 1 + number * 104_729 // 64 % (len(names) - 1)
    return names[source], names[(source + distance) % len(names)]


def first_cells(work: Work, way: Way) -> dict[str, object]:
    """The cells before the first transfer."""
    accounts: dict[str, object] = dict.fromkeys(work.all_cells(), _FIRST)
    return {ALL: accounts} if way == "one cell" else accounts


def moved(accounts: dict[str, int], source: str, target: str) -> dict[str, int]:
    """All accounts after the transfer."""
    return {**accounts, source: accounts[source] - 1, target: accounts[target] + 1}


def check(way: Way, cells: "Iterable[Cell | None]", *, tried: int, done: int) -> dict[str, float]:
    """Raise unless nothing was lost and each transfer was made once; the share accepted."""
    balances: list[int] = []
    written = 0
    for cell in cells:
        assert cell is not None
        balances += cell.value.values() if way == "one cell" else [cell.value]
        written += cell.version - 1
    assert sum(balances) == _FIRST * len(balances), f"{sum(balances)} is left in all accounts"
    # A version for the cell that holds all, or one for each of the two.
    versions = done if way == "one cell" else 2 * done
    assert written == versions, f"{written} versions were written, {versions} were counted"
    return {"accepted": (versions if way == "two loops" else done) / tried}

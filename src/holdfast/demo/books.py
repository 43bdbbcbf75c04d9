"""The books: what the store holds when all workers have left, and whether it adds up.

The check reads only the store, except for `issued`: how many orders the workers told their
parent they had closed. So the same number comes from four places that know nothing of each
other: the workers' pipes, their journals, the order counter, and the items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast import Cell
from holdfast.demo.orders import COUNTER, ITEMS, item_cell
from holdfast.sync.cells import Cells


class Books(NamedTuple):
    """Everything the run left in the store; histories are newest first, as `getv` gives them."""

    issued: int
    counter: Sequence[Cell]
    items: dict[str, Sequence[Cell]]
    journals: dict[str, Sequence[Cell]]

    @property
    def counted(self) -> int:
        """Orders, by the counter."""
        return int(self.counter[0].value)

    @property
    def sold(self) -> int:
        """Units sold, by the items."""
        return sum(history[0].value["sold"] for history in self.items.values())

    @property
    def gone(self) -> int:
        """Units that have left the stock: what there was in version 1, less what there is."""
        return sum(
            history[-1].value["stock"] - history[0].value["stock"]
            for history in self.items.values()
        )

    @property
    def tallied(self) -> int:
        """Orders, by the workers' journals."""
        return sum(sum(history[0].value["sold"].values()) for history in self.journals.values())

    @property
    def versions(self) -> int:
        """How many versions of cells the run has written."""
        return sum(len(history) for _, history in self.histories())

    def histories(self) -> Iterator[tuple[str, Sequence[Cell]]]:
        """Every cell's name and history."""
        yield COUNTER, self.counter
        yield from ((item_cell(item), history) for item, history in self.items.items())
        yield from self.journals.items()


def read_books(cells: Cells, *, issued: int) -> Books:
    """The books as the store holds them now."""
    return Books(
        issued=issued,
        counter=cells.getv(COUNTER),
        items={item: cells.getv(item_cell(item)) for item in ITEMS},
        journals={name: cells.getv(name) for name in cells.list("worker/")},
    )


def faults(books: Books) -> list[str]:
    """What does not add up, in words; empty when everything is right."""
    return [*_sums(books), *_journals(books), *_steps(books)]


def _sums(books: Books) -> Iterator[str]:
    sums = {
        "counted": books.counted,
        "sold": books.sold,
        "gone from stock": books.gone,
        "in the workers' journals": books.tallied,
    }
    for what, found in sums.items():
        if found != books.issued:
            yield f"{books.issued} orders were issued, but {found} are {what}"


def _journals(books: Books) -> Iterator[str]:
    values = {name: history[0].value for name, history in books.journals.items()}
    for name, value in values.items():
        if value["open"] is not None:
            yield f"{name}: order {value['open']['id']} was begun and never finished"
    for item, history in books.items.items():
        sold, tallied = history[0].value["sold"], sum(v["sold"][item] for v in values.values())
        if sold != tallied:
            yield f"{item_cell(item)}: {sold} sold, but the journals know of {tallied}"


def _steps(books: Books) -> Iterator[str]:
    """Every version is one above the last, and changes its cell by exactly one order."""
    for name, history in books.histories():
        versions = [cell.version for cell in reversed(history)]
        if versions != list(range(1, len(history) + 1)):
            yield f"{name}: its versions have a gap"
    yield from _wrong_versions(COUNTER, books.counter, [cell.version - 1 for cell in books.counter])
    for item, history in books.items.items():
        start = history[-1].value["stock"]
        wanted = [
            {"stock": start - (cell.version - 1), "sold": cell.version - 1} for cell in history
        ]
        yield from _wrong_versions(item_cell(item), history, wanted)


def _wrong_versions(name: str, history: Sequence[Cell], wanted: Sequence[Any]) -> Iterator[str]:
    for cell, value in zip(reversed(history), reversed(wanted), strict=True):
        if cell.value != value:
            yield f"{name}: version {cell.version} is {cell.value}, wanted {value}"
            return  # all later ones are wrong for the same reason

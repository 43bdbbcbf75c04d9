"""Taking an order: three writes, each of which can be repeated without doing it twice.

    item/pears   {"stock": 1483, "sold": 17}     all workers change it, by compare-and-swap
    orders       96                              all workers change it, by compare-and-swap
    worker/2     {"sold": {"pears": 9, …},       only worker 2 writes it: its tally, and
                  "open": {"id": "2-0017",       the order it is working on
                           "item": "pears"}}

An order is written to these cells from top to bottom, and a worker can be killed between any
two of the writes. Why the sums are right all the same:

1. A compare-and-swap loses no change: who comes second gets None, reads again, tries again.
2. Stock and sold are one cell, so a unit is never in both places, nor in neither.
3. An order is on disk as `open` before anything is done for it. Whoever takes the worker's
   place finds it there and repeats it from the start.
4. Every write for an order carries an op_id made from the order's id. What was done before
   the crash is known to the store: it answers with the first answer and changes nothing.

So each write happens exactly once, and an order once begun is always finished. In between, a
reader may see a unit sold that is not counted yet.

`set_many` would write item and counter in one commit, but it compares nothing: two workers who
read the same numbers would both write, and one sale would be lost. A lock around it would need
someone to break it when its holder is killed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, ParamSpec, TypeVar

import holdfast
from holdfast.sync.cells import Cells

ITEMS = ("apples", "pears", "plums", "quinces")
COUNTER = "orders"
_OP_IDS = uuid.UUID("6f0d2f3e-8f5c-4d0a-9a44-0c9f2b7f5a11")
_ATTEMPTS = 3

P = ParamSpec("P")
T = TypeVar("T")


class Order(NamedTuple):
    """One unit of an item, for one customer."""

    id: str
    item: str

    @property
    def op_id(self) -> uuid.UUID:
        """The same id whoever works on the order, so that its writes happen once."""
        return uuid.uuid5(_OP_IDS, self.id)


class Written(NamedTuple):
    """A write that is on disk: by this call, or `before` it by one with the same op_id."""

    cell: str
    before: bool
    lost_races: int


def open_shop(cells: Cells, *, stock: int) -> None:
    """Create the shared cells: every item in stock, nothing sold."""
    for item in ITEMS:
        cells.init(item_cell(item), {"stock": stock, "sold": 0})
    cells.init(COUNTER, 0)


def fill(cells: Cells, order: Order) -> Iterator[Written]:
    """Take the order's unit out of stock, then count the order; yields after each write."""
    yield change(cells, item_cell(order.item), _sell_one, op_id=order.op_id)
    yield change(cells, COUNTER, lambda count: count + 1, op_id=order.op_id)


def change(
    cells: Cells, name: str, update: Callable[[Any], object], *, op_id: uuid.UUID
) -> Written:
    """Replace the cell's value by `update(value)`, once for this op_id, losing nobody's change."""
    lost_races = 0
    while True:
        cell = _patiently(cells.get_versioned, name)
        if cell is None:
            raise LookupError(f"there is no cell {name!r}")
        version = _patiently(cells.cas, name, cell.version, update(cell.value), op_id=op_id)
        if version is not None:
            # A version that is not the next one is the answer of an earlier call.
            return Written(name, before=version != cell.version + 1, lost_races=lost_races)
        lost_races += 1


class Journal:
    """One worker's tally and open order, in a cell that only this worker writes.

    A worker may sell its share of each item: nothing can sell out under an open order.
    """

    def __init__(self, cells: Cells, worker: int, *, share: int) -> None:
        self._cells = cells
        self._worker = worker
        self._share = share
        self.sold = dict.fromkeys(ITEMS, 0)
        # init keeps what exists: a replacement finds the journal of the worker that was killed.
        _patiently(cells.init, worker_cell(worker), self._value(self.next_order()))
        found = _patiently(cells.get, worker_cell(worker))
        self.sold = found["sold"]
        self.open = Order(**found["open"]) if found["open"] else None

    def next_order(self) -> Order | None:
        """The next customer's wish, or None when this worker has sold its share."""
        left = [item for item in ITEMS if self.sold[item] < self._share]
        number = sum(self.sold.values()) + 1
        if not left:
            return None
        return Order(f"{self._worker}-{number:04}", random.choice(left))  # noqa: S311  no secret

    def close(self, order: Order, *, last: bool) -> None:
        """Put the order into the tally and, in the same write, open the next one."""
        self.sold[order.item] += 1
        self.open = None if last else self.next_order()
        # Nobody else writes this cell: there is no race to lose, and `set` will do.
        _patiently(
            self._cells.set, worker_cell(self._worker), self._value(self.open), op_id=order.op_id
        )

    def _value(self, order: Order | None) -> dict[str, object]:
        return {"sold": self.sold, "open": order._asdict() if order else None}


def item_cell(item: str) -> str:
    """The name of the cell with an item's stock and sales."""
    return f"item/{item}"


def worker_cell(worker: int) -> str:
    """The name of the cell with a worker's journal."""
    return f"worker/{worker}"


def _sell_one(value: dict[str, int]) -> dict[str, int]:
    return {"stock": value["stock"] - 1, "sold": value["sold"] + 1}


def _patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The call's answer. After a timeout or a lost connection it is made again, under its op_id."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return call(*args, **kwargs)
        except holdfast.StoreError as exc:
            if not exc.retryable:
                raise
    return call(*args, **kwargs)

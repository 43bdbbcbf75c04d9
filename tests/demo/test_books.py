"""An order cut at any point counts once, and the check finds whatever does not."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.demo.books import faults, read_books
from holdfast.demo.orders import COUNTER, Journal, Order, change, fill, item_cell, open_shop

STOCK = 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(f"sqlite:///{tmp_path}/shop.db") as store:
        open_shop(store.cells, stock=STOCK)
        yield store


def sell(store: holdfast.Store, worker: int, orders: int) -> str:
    """Take orders as a worker does, and return the item of the last one."""
    journal = Journal(store.cells, worker, share=STOCK // 2)
    items = []
    for number in range(1, orders + 1):
        order = journal.open
        assert order is not None
        assert all(not written.before for written in fill(store.cells, order))
        journal.close(order, last=number == orders)
        items.append(order.item)
    return items[-1]


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_an_order_cut_after_any_write_is_finished_once(store: holdfast.Store, writes: int) -> None:
    killed = Journal(store.cells, 1, share=STOCK)
    order = killed.open
    assert order is not None
    steps = fill(store.cells, order)
    for _ in range(writes):
        next(steps)

    replacement = Journal(store.cells, 1, share=STOCK)
    assert replacement.open == order
    before = [written.before for written in fill(store.cells, order)]
    replacement.close(order, last=True)

    assert before == [writes > 0, writes > 1]
    assert faults(read_books(store.cells, issued=1)) == []


def test_right_books_have_no_fault(store: holdfast.Store) -> None:
    sell(store, 1, 12)
    sell(store, 2, 7)
    books = read_books(store.cells, issued=19)
    assert (books.counted, books.sold, books.gone, books.tallied) == (19, 19, 19, 19)
    assert faults(books) == []


def test_a_worker_stops_when_its_share_is_sold(store: holdfast.Store) -> None:
    journal = Journal(store.cells, 1, share=2)
    taken = 0
    while (order := journal.open) is not None:
        list(fill(store.cells, order))
        journal.close(order, last=False)
        taken += 1
    assert taken == 8
    assert faults(read_books(store.cells, issued=8)) == []


def test_an_order_repeated_under_another_op_id_is_found(store: holdfast.Store) -> None:
    item = sell(store, 1, 3)
    list(fill(store.cells, Order("the same order by another id", item)))
    sold = store.cells.get(item_cell(item))["sold"]
    assert faults(read_books(store.cells, issued=3)) == [
        "3 orders were issued, but 4 are counted",
        "3 orders were issued, but 4 are sold",
        "3 orders were issued, but 4 are gone from stock",
        f"item/{item}: {sold} sold, but the journals know of {sold - 1}",
    ]


def test_a_lost_update_is_found(store: holdfast.Store) -> None:
    sell(store, 1, 3)
    store.cells.set(COUNTER, 3)  # what get and set make of two workers who both read 2
    assert faults(read_books(store.cells, issued=4)) == [
        "4 orders were issued, but 3 are counted",
        "4 orders were issued, but 3 are sold",
        "4 orders were issued, but 3 are gone from stock",
        "4 orders were issued, but 3 are in the workers' journals",
        "orders: version 5 is 3, wanted 4",
    ]


def test_two_faults_that_cancel_out_are_found(store: holdfast.Store) -> None:
    sell(store, 1, 3)
    change(store.cells, COUNTER, lambda count: count + 2, op_id=uuid.uuid4())
    change(store.cells, COUNTER, lambda count: count - 2, op_id=uuid.uuid4())
    assert faults(read_books(store.cells, issued=3)) == ["orders: version 5 is 5, wanted 4"]


def test_a_unit_that_vanished_is_found(store: holdfast.Store) -> None:
    name = item_cell(sell(store, 1, 3))
    value = store.cells.get(name)
    lost = value | {"stock": value["stock"] - 1}
    version = store.cells.set(name, lost)
    wanted = {"stock": STOCK - version + 1, "sold": version - 1}
    assert faults(read_books(store.cells, issued=3)) == [
        "3 orders were issued, but 4 are gone from stock",
        f"{name}: version {version} is {lost}, wanted {wanted}",
    ]


def test_an_order_left_open_is_found(store: holdfast.Store) -> None:
    sell(store, 1, 3)
    Journal(store.cells, 2, share=STOCK)
    assert faults(read_books(store.cells, issued=3)) == [
        "worker/2: order 2-0001 was begun and never finished"
    ]


def test_a_gap_in_a_history_is_found(store: holdfast.Store) -> None:
    sell(store, 1, 3)
    books = read_books(store.cells, issued=3)
    cut = books._replace(counter=[*books.counter[:2], *books.counter[3:]])
    assert faults(cut) == ["orders: its versions have a gap"]

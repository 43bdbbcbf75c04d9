"""What branches cost on SQLite, counted: it does not grow with the number of cells."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import holdfast
from holdfast.facets.branches import MAX_LEVELS
from tests.sqlite.spent import Spent

FEW, MANY = 100, 100_000


def _open(folder: Path, cells: int) -> holdfast.Store:
    store = holdfast.open(f"sqlite:///{folder}/{cells}.db?durability=cache")
    for first in range(0, cells, 10_000):
        numbers = range(first, min(first + 10_000, cells))
        store.cells.set_many({f"x{number}": 0 for number in numbers})
    return store


def test_fork_of_many_cells_costs_what_a_fork_of_few_costs(tmp_path: Path, spent: Spent) -> None:
    found = {}
    for cells in (FEW, MANY):
        with _open(tmp_path, cells) as store:
            store.branches.fork("warm")
            spent.take()
            store.branches.fork("b")
            found[cells] = spent.take()
            assert store.cells.on("b").get(f"x{cells - 1}") == 0
    assert found[FEW] == found[MANY]
    statements, steps = found[FEW]
    assert len(statements) < 10
    assert 0 < steps < 500


def test_read_costs_the_same_few_steps_for_each_level(tmp_path: Path, spent: Spent) -> None:
    found = {}
    for cells in (FEW, MANY):
        with _open(tmp_path, cells) as store:
            found[cells] = [_steps_of_get(store, "main", spent)]
            source = "main"
            for level in range(1, MAX_LEVELS + 1):
                store.branches.fork(f"b{level}", source=source)
                source = f"b{level}"
                found[cells].append(_steps_of_get(store, source, spent))
    assert found[FEW] == found[MANY]
    steps = found[FEW]
    assert steps[0] < 40
    (each,) = {after - before for before, after in pairwise(steps[1:])}
    assert 0 < each < 80
    assert steps[1] < 4 * each


def test_merge_of_a_small_branch_costs_the_same_however_large_main_is(
    tmp_path: Path, spent: Spent
) -> None:
    found = {}
    for cells in (FEW, MANY):
        with _open(tmp_path, cells) as store:
            store.branches.fork("b")
            store.cells.on("b").set_many({f"x{number}": 1 for number in range(50)})
            spent.take()
            assert len(store.branches.merge("b").merged) == 50
            found[cells] = spent.take()
    assert found[FEW] == found[MANY]


def _steps_of_get(store: holdfast.Store, branch: str, spent: Spent) -> int:
    cells = store.cells.on(branch)
    assert cells.get("x7") == 0  # prepared, and the reader is open
    spent.take()
    assert cells.get("x7") == 0
    statements, steps = spent.take()
    assert len(statements) == 1
    return steps

"""Transactions interrupted at every single step: nobody waits for ever, and no half is left."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import holdfast
from tests.faults.interrupts import Signal, interrupt_everywhere, modules

# A coroutine that was made, and never begun because the interrupt came first. And an interrupt
# that hits a finalizer goes no further.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in.*__del__"),
]
TRANSACTION = modules("backends/sqlite/transaction", "backends/sqlite/turn")


def test_interrupted_transaction_lets_others_write(tmp_path: Path) -> None:
    numbers = itertools.count()
    # Whoever waits for what was never given back is told so after these, or hangs.
    url = f"sqlite:///{tmp_path}/x.db?busy_timeout=5"
    with holdfast.open(url) as store:

        def both() -> None:
            number = next(numbers)
            with store.transaction(timeout=60) as tx:
                tx.cells.set("a", number)
                tx.cells.set("b", number)

        def check() -> None:
            assert store.cells.get("a") == store.cells.get("b")
            store.cells.set("c", next(numbers))

        assert interrupt_everywhere(TRANSACTION, both, check, kind=Signal) > 50

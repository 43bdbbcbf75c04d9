"""Every write and sync of a script of forks, merges and deletes fails once, and for good."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast import AsyncStore
from holdfast.testing.disk import Operation
from holdfast.testing.world import Colour
from tests.faults.scripts import Script, sweep

CELLS = dict.fromkeys("abcd", "x" * 2000)


async def _fork(store: AsyncStore, name: str, op: UUID, source: str = "main") -> str:
    # A fork's commit and time are its own.
    return (await store.branches.fork(name, source=source, op_id=op)).name


async def _everything(store: AsyncStore) -> dict[str, object]:
    """Every version of every cell on every branch."""
    found: dict[str, object] = {}
    for branch in ["main", *(branch.name for branch in await store.branches.list())]:
        cells = store.cells.on(branch)
        for name in await cells.list():
            versions = [(cell.version, cell.value) for cell in await cells.getv(name)]
            found[f"{branch}/{name}"] = versions
    return found


SCRIPT = Script(
    (
        lambda store, op: store.cells.set_many(CELLS, op_id=op),
        lambda store, op: _fork(store, "b", op),
        lambda store, op: store.cells.on("b").set_many({"a": 1, "e": 1}, op_id=op),
        lambda store, op: store.cells.on("b").delete("c", op_id=op),
        lambda store, op: store.branches.merge("b", op_id=op),
        lambda store, op: _fork(store, "c", op, "b"),
        lambda store, op: store.cells.on("b").set("a", "y" * 5000, op_id=op),
        lambda store, op: store.branches.merge("b", "c", op_id=op),
        lambda store, op: store.branches.delete("b", op_id=op),
        lambda store, op: _fork(store, "b", op, "c"),
        lambda store, op: store.cells.set("d", 2, op_id=op),
        lambda store, op: store.branches.merge("main", "b", strategy="source_wins", op_id=op),
        lambda store, op: store.branches.delete("c", op_id=op),
        lambda store, op: store.branches.delete("b", op_id=op),
        lambda store, op: _fork(store, "b", op),
    ),
    _everything,
)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_call_repeated_after_a_fault_has_one_effect(
    colour: Colour, operation: Operation, *, persistent: bool
) -> None:
    sweep(colour, SCRIPT, operation, persistent=persistent)

"""Every write and sync of a script of forks, merges and deletes fails once, and for good.

A call that failed is made again under its operation id. In the end the store holds what
it holds without the fault: each call had one effect. So does what is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

import pytest

import holdfast
from holdfast import AsyncStore
from holdfast.testing.disk import Fault, FaultyDisk, Operation, check_integrity
from holdfast.testing.world import BlockingColour, Colour

DATABASE = "/disk/branches.db"
CELLS = dict.fromkeys("abcd", "x" * 2000)
# How many calls a lasting fault may fail before it is mended.
PATIENCE = 3

Call = Callable[[AsyncStore, UUID], Coroutine[Any, Any, object]]
SCRIPT: tuple[Call, ...] = (
    lambda store, op: store.cells.set_many(CELLS, op_id=op),
    lambda store, op: store.branches.fork("b", op_id=op),
    lambda store, op: store.cells.on("b").set_many({"a": 1, "e": 1}, op_id=op),
    lambda store, op: store.cells.on("b").delete("c", op_id=op),
    lambda store, op: store.branches.merge("b", op_id=op),
    lambda store, op: store.branches.fork("c", source="b", op_id=op),
    lambda store, op: store.cells.on("b").set("a", "y" * 5000, op_id=op),
    lambda store, op: store.branches.merge("b", "c", op_id=op),
    lambda store, op: store.branches.delete("b", op_id=op),
    lambda store, op: store.branches.fork("b", source="c", op_id=op),
    lambda store, op: store.cells.set("d", 2, op_id=op),
    lambda store, op: store.branches.merge("main", "b", strategy="source_wins", op_id=op),
    lambda store, op: store.branches.delete("c", op_id=op),
    lambda store, op: store.branches.delete("b", op_id=op),
    lambda store, op: store.branches.fork("b", op_id=op),
)


def url(disk: FaultyDisk) -> str:
    return f"sqlite:///{DATABASE}?vfs={disk.name}&locking=exclusive&checkpoint_pages=8"


async def _everything(store: AsyncStore) -> dict[str, object]:
    """Every version of every cell on every branch."""
    found: dict[str, object] = {}
    for branch in ["main", *(branch.name for branch in await store.branches.list())]:
        cells = store.cells.on(branch)
        for name in await cells.list():
            versions = [(cell.version, cell.value) for cell in await cells.getv(name)]
            found[f"{branch}/{name}"] = versions
    return found


async def _run(colour: Colour, disk: FaultyDisk) -> list[object]:
    """What the calls answered, and what the store and then the disk held in the end."""
    fault = disk.fault
    disk.fault = None
    store = await colour.open(url(disk), "default", None)
    answers: list[object] = []
    errors = 0
    disk.fault = fault
    disk.operations.clear()
    try:
        for number, call in enumerate(SCRIPT, 1):
            while len(answers) < number:
                try:
                    answer = await call(store, UUID(int=number))
                except holdfast.StoreError:
                    assert disk.fault is not None, "an error on a sound disk"
                    errors += 1
                    if not disk.fault.persistent or errors == PATIENCE:
                        disk.fault = None
                else:
                    # A fork's commit and time are its own.
                    answers.append(answer.name if isinstance(answer, holdfast.Branch) else answer)
        disk.fault = None
        answers.append(await _everything(store))
    finally:
        await store.close()
    after = FaultyDisk("io-branches-after", disk.image())
    store = await colour.open(url(after), "default", None)
    try:
        answers.append(await _everything(store))
    finally:
        await store.close()
    check_integrity(after, DATABASE)
    return answers


def _faults(
    sound: FaultyDisk, operation: Operation, *, persistent: bool, step: int
) -> Iterator[Fault]:
    assert sound.operations[operation] >= len(SCRIPT)
    for nth in range(1, sound.operations[operation] + 1, step):
        yield Fault(operation, nth, "EIO" if nth % 2 else "ENOSPC", persistent)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_call_repeated_after_a_fault_has_one_effect(
    colour: Colour, operation: Operation, *, persistent: bool
) -> None:
    sound = FaultyDisk("io-branches")
    wanted = colour.run(_run(colour, sound))
    struck = 0
    # Blocking meets a failure of every operation, async of every third.
    step = 1 if isinstance(colour, BlockingColour) else 3
    for fault in _faults(sound, operation, persistent=persistent, step=step):
        disk = FaultyDisk("io-branches")
        disk.fault = fault
        assert colour.run(_run(colour, disk)) == wanted, fault
        struck += disk.operations[fault.operation] >= fault.nth
    assert struck >= len(SCRIPT) // step

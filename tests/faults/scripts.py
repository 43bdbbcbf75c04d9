"""Scripts of calls on a disk that fails: a call that failed is made again, and has one effect.

A call is made under its number until it is answered. The answers, what the store holds in the
end, and what is then on the disk must be the same as without the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

import holdfast
from holdfast import AsyncStore
from holdfast.testing.disk import Failure, Fault, FaultyDisk, Operation, check_integrity
from holdfast.testing.world import BlockingColour, Colour

DATABASE = "/disk/script.db"
# How many calls a lasting fault may fail before it is mended.
PATIENCE = 3

Call = Callable[[AsyncStore, UUID], Coroutine[Any, Any, object]]
"""A call under an operation id: what it answers is the same each time."""


class Script(NamedTuple):
    """Calls, and what there is to read when they are done."""

    calls: tuple[Call, ...]
    everything: Callable[[AsyncStore], Coroutine[Any, Any, object]]


def url(disk: FaultyDisk) -> str:
    """A store on the disk, with checkpoints now and then."""
    return f"sqlite:///{DATABASE}?vfs={disk.name}&locking=exclusive&checkpoint_pages=8"


def sweep(
    colour: Colour,
    script: Script,
    operation: Operation,
    *,
    persistent: bool,
    failures: tuple[Failure, ...] = ("EIO", "ENOSPC"),
) -> None:
    """Run the script with a fault at every operation of that kind, under asyncio every third."""
    image = colour.run(_new_store(colour))
    sound = FaultyDisk("io-script", image)
    wanted = colour.run(_run(colour, script, sound))
    struck = 0
    step = 1 if isinstance(colour, BlockingColour) else 3
    for nth in range(1, sound.operations[operation] + 1, step):
        disk = FaultyDisk("io-script", image)
        disk.fault = fault = Fault(operation, nth, failures[nth % len(failures)], persistent)
        assert colour.run(_run(colour, script, disk)) == wanted, fault
        struck += disk.operations[operation] >= nth
    assert struck >= len(script.calls) // step


async def _new_store(colour: Colour) -> dict[str, bytes]:
    """What the disk holds when a store was made."""
    disk = FaultyDisk("io-script")
    await (await colour.open(url(disk), "default", None)).close()
    return disk.image()


async def _run(colour: Colour, script: Script, disk: FaultyDisk) -> list[object]:
    """What the calls answered, and what the store and then the disk held in the end."""
    fault = disk.fault
    disk.fault = None
    store = await colour.open(url(disk), "default", None)
    answers: list[object] = []
    errors = 0
    disk.fault = fault
    disk.operations.clear()
    try:
        for number, call in enumerate(script.calls, 1):
            while len(answers) < number:
                try:
                    answers.append(await call(store, UUID(int=number)))
                except holdfast.StoreError:
                    assert disk.fault is not None, "an error on a sound disk"
                    errors += 1
                    if not disk.fault.persistent or errors == PATIENCE:
                        disk.fault = None
        disk.fault = None
        answers.append(await script.everything(store))
    finally:
        await store.close()
    after = FaultyDisk("io-script-after", disk.image())
    store = await colour.open(url(after), "default", None)
    try:
        answers.append(await script.everything(store))
    finally:
        await store.close()
    check_integrity(after, DATABASE)
    return answers

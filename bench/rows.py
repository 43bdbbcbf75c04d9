"""A store with very many records, of which a hundred are due, and an index that finds them.

The others are claimed with time left, pending or done, so neither of the two indexed fields
finds the due ones alone.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import holdfast
from bench.contenders.holdfast_cells import store_url
from holdfast import ScanFilter

DUE: Final = 100
NOW: Final = 1_767_225_600_000
PREFIX: Final = "tasks."
FILTERS: Final = (ScanFilter("state", "eq", "claimed"), ScanFilter("timeout_at", "lt", NOW))

_AT_ONCE: Final = 1000
_OTHER_STATES: Final = ("claimed", "pending", "completed", "failed")


def fill(place: str, rows: int, tell: Callable[[str, int], None]) -> None:
    """Put the records into the store at that place; `tell` hears how far it is."""
    # Nobody measures this, so nothing need be synced.
    asyncio.run(_fill(store_url(place, {"durability": "cache"}), rows, tell))


async def _fill(url: str, rows: int, tell: Callable[[str, int], None]) -> None:
    async with holdfast.open_async(url) as store:
        await store.records.create_index(PREFIX, "state", "timeout_at")
        for first in range(0, rows, _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for number in range(first, min(first + _AT_ONCE, rows)):
                    key = f"{PREFIX}{number:08}"
                    group.create_task(store.records.put(key, _row(number, rows)))
            tell(f"filling: {first:,} of {rows:,} records", 0)


def _row(number: int, rows: int) -> dict[str, str | int]:
    spacing = max(1, rows // DUE)
    if number % spacing == 0 and number // spacing < DUE:
        return {"state": "claimed", "timeout_at": NOW - 1 - number, "step": number}
    state = _OTHER_STATES[number % len(_OTHER_STATES)]
    timeout_at = NOW + number if state == "claimed" else NOW - number
    return {"state": state, "timeout_at": timeout_at, "step": number}

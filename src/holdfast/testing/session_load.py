"""Run a seeded random load of sessions on a few hot cells and record what each one saw.

`record` is a task of a `Fleet`: each process opens the store, waits at the gate, and lets its
callers (threads or asyncio tasks) make their attempts; `history` puts the records of all
processes together for `isolation.History`. With a `fault` the sessions break one rule.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from holdfast import AsyncStore, Cell, Conflict
from holdfast.aio.cells import AsyncCells
from holdfast.testing.isolation import NEVER, Attempt, State
from holdfast.testing.world import BlockingColour, Colour, LoopColour

Gate: TypeAlias = Callable[[], None]
Row: TypeAlias = dict[str, Any]

ACCOUNTS = [f"account{number}" for number in range(4)]
DOCTORS = ["doctor0", "doctor1"]
FLAGS = ["flag0", "flag1"]
SEATS = "seat/"
SEATS_AT_MOST = 4


class Client:
    """A session that keeps the rules; a fault is a subclass that breaks one."""

    def __init__(self, cells: AsyncCells) -> None:
        self.cells = cells
        self.session = cells.session()

    async def get_versioned(self, cell: str) -> Cell | None:
        """See AsyncCells."""
        return await self.session.get_versioned(cell)

    async def getv(self, cell: str, limit: int) -> list[Cell]:
        """See AsyncCells."""
        return await self.session.getv(cell, limit)

    async def list(self, prefix: str) -> list[str]:
        """See AsyncCells."""
        return await self.session.list(prefix)

    async def set(self, cell: str, value: object) -> int:
        """See AsyncCells."""
        return await self.session.set(cell, value)

    async def delete(self, cell: str) -> None:
        """See AsyncCells."""
        await self.session.delete(cell)

    async def commit(self) -> None:
        """See AsyncCellsSession."""
        await self.session.commit()

    async def rollback(self) -> None:
        """See AsyncCellsSession."""
        await self.session.rollback()


class ReadsWithoutASnapshot(Client):
    """Each read sees its own moment."""

    async def get_versioned(self, cell: str) -> Cell | None:
        """Read past the session."""
        return await self.cells.get_versioned(cell)

    async def getv(self, cell: str, limit: int) -> list[Cell]:
        """Read past the session."""
        return await self.cells.getv(cell, limit)


class WritesAtOnce(Client):
    """Others see what is not committed."""

    async def set(self, cell: str, value: object) -> int:
        """Write past the session."""
        return await self.cells.set(cell, value)


class Unvalidated(Client):
    """Writes whatever has happened since it read."""

    def __init__(self, cells: AsyncCells) -> None:
        super().__init__(cells)
        self._values: dict[str, object] = {}

    async def set(self, cell: str, value: object) -> int:
        """Keep it for the end."""
        self._values[cell] = value
        return await self.session.set(cell, value)

    async def commit(self) -> None:
        """Write without a look."""
        await self.session.rollback()
        await self.cells.set_many(self._values)


class ValidatesOnlyWrites(Client):
    """Forgets what it only read."""

    def __init__(self, cells: AsyncCells) -> None:
        super().__init__(cells)
        self._writer = cells.session()

    async def set(self, cell: str, value: object) -> int:
        """Write in a second session, which has read no other cell."""
        first = await self.session.get_versioned(cell)
        second = await self._writer.get_versioned(cell)
        if (first and first.version) != (second and second.version):
            raise Conflict(f"{cell} was changed", retryable=True)
        return await self._writer.set(cell, value)

    async def delete(self, cell: str) -> None:
        """Delete in the second session."""
        await self._writer.delete(cell)

    async def commit(self) -> None:
        """Commit the second session."""
        await self.session.rollback()
        await self._writer.commit()

    async def rollback(self) -> None:
        """Roll both back."""
        await self.session.rollback()
        await self._writer.rollback()


class ForgetsLists(Client):
    """Does not remember what it listed."""

    async def list(self, prefix: str) -> list[str]:
        """List past the session."""
        return await self.cells.list(prefix)


FAULTS: dict[str, type[Client]] = {
    "none": Client,
    "torn read": ReadsWithoutASnapshot,
    "dirty read": WritesAtOnce,
    "lost update": Unvalidated,
    "write skew": ValidatesOnlyWrites,
    "phantom": ForgetsLists,
}


class Caller:
    """One attempt: does something, and keeps what it saw."""

    def __init__(self, name: str, client: Client, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self._client = client
        self._reads: dict[str, State] = {}
        self._tags: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._writes: dict[str, State] = {}
        self._made: dict[str, str] = {}
        self._sets = 0

    async def see(self, cell: str) -> int | None:
        """The amount in the cell, None if it is not there."""
        found = await self._client.get_versioned(cell)
        if found is None:
            older = await self._client.getv(cell, 1)
            self._reads[cell] = State(older[0].version, there=False) if older else NEVER
            return None
        self._reads[cell] = State(found.version, there=True)
        self._tags[cell] = found.value["tag"]
        return int(found.value["amount"])

    async def list(self, prefix: str) -> list[str]:
        """The names."""
        self._lists[prefix] = await self._client.list(prefix)
        return self._lists[prefix]

    async def set(self, cell: str, amount: int) -> None:
        """Put an amount into a cell that was seen."""
        self._sets += 1
        self._made[cell] = f"{self.name}#{self._sets}"
        version = await self._client.set(cell, {"tag": self._made[cell], "amount": amount})
        self._writes[cell] = State(version, there=True)

    async def delete(self, cell: str) -> None:
        """Delete a cell that was seen and is there."""
        await self._client.delete(cell)
        self._writes[cell] = State(self._reads[cell].version, there=False)

    async def ended(self) -> Row:
        """The record, once the session has ended in whatever way."""
        try:
            await _TASKS[self.rng.choice(_MIX)](self)
            if self.rng.random() < 0.1:
                outcome = "rolled back"
                await self._client.rollback()
            else:
                outcome = "committed"
                await self._client.commit()
        except Conflict as conflict:
            if not conflict.retryable:
                raise
            outcome = "conflict"
            await self._client.rollback()
        return {
            "name": self.name,
            "outcome": outcome,
            "reads": self._reads,
            "tags": self._tags,
            "lists": self._lists,
            "writes": self._writes,
            "made": self._made,
        }


async def _transfer(caller: Caller) -> None:
    source, target = caller.rng.sample(ACCOUNTS, 2)
    amounts = [await caller.see(cell) or 0 for cell in (source, target)]
    await caller.set(source, amounts[0] - 1)
    if caller.rng.random() < 0.3:
        await caller.set(target, amounts[1] + 5)  # a change of mind, which nobody may see
    await caller.set(target, amounts[1] + 1)


async def _go_off_call(caller: Caller) -> None:
    """Reads both, writes one: the two rules that sessions break together."""
    here, there = caller.rng.sample(DOCTORS, 2)
    await caller.see(here)
    await caller.set(here, 0 if await caller.see(there) else 1)


async def _take_a_seat(caller: Caller) -> None:
    taken = await caller.list(SEATS)
    if len(taken) >= SEATS_AT_MOST:
        leaving = caller.rng.choice(taken)
        if await caller.see(leaving) is None:  # only where lists see another moment
            return
        await caller.delete(leaving)
    mine = f"{SEATS}{caller.name}"
    await caller.see(mine)
    await caller.set(mine, 1)


async def _toggle(caller: Caller) -> None:
    flag, account = caller.rng.choice(FLAGS), caller.rng.choice(ACCOUNTS)
    up = await caller.see(flag)
    amount = await caller.see(account) or 0
    if up is None:
        await caller.set(flag, 1)
    else:
        await caller.delete(flag)
        await caller.set(account, amount)


async def _look_around(caller: Caller) -> None:
    cells = [*ACCOUNTS, *DOCTORS, *FLAGS]
    caller.rng.shuffle(cells)
    for cell in cells:
        await caller.see(cell)
    await caller.list(SEATS)


_TASKS: dict[str, Callable[[Caller], Awaitable[None]]] = {
    "transfer": _transfer,
    "go off call": _go_off_call,
    "take a seat": _take_a_seat,
    "toggle": _toggle,
    "look around": _look_around,
}
_MIX = [*_TASKS, "look around"]


def record(
    gate: Gate, *, url: str, process: int, callers: int, attempts: int, seed: str, colour: str,
    fault: str,
) -> list[Row]:  # fmt: skip
    """What the attempts of one process saw and did, as rows for `history`."""
    colours: dict[str, Callable[[], Colour]] = {"blocking": BlockingColour, "async": LoopColour}
    chosen = colours[colour]()

    async def work(store: AsyncStore, caller: int) -> list[Row]:
        rng = random.Random(f"{seed}/{caller}")
        return [
            await Caller(f"{process}.{caller}.{number}", FAULTS[fault](store.cells), rng).ended()
            for number in range(attempts)
        ]

    async def main() -> list[Row]:
        store = await chosen.open(url, "default", None)
        gate()
        rows: list[Row] = []
        for found in await chosen.together([work(store, caller) for caller in range(callers)]):
            if isinstance(found, BaseException):
                raise found
            rows += found
        await store.close()
        return rows

    try:
        return chosen.run(main())
    finally:
        chosen.close()


def history(records: Iterable[list[Row]], kept: Iterable[Sequence[Cell]]) -> list[Attempt]:
    """The attempts of all processes; `kept` is what the store has of each cell."""
    ids = {cell.value["tag"]: cell.commit_id for cells in kept for cell in cells}
    return [
        Attempt(
            row["name"],
            row["outcome"],
            {cell: State(*state) for cell, state in row["reads"].items()},
            row["tags"],
            row["lists"],
            {cell: State(*state) for cell, state in row["writes"].items()},
            row["made"],
            max((ids.get(tag, 0) for tag in row["made"].values()), default=0),
        )
        for rows in records
        for row in rows
    ]

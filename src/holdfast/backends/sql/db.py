"""The line between a facet's SQL and an engine's connections.

A facet hands its hot operations over as a `Batch`: a list of items in, one
answer per item out, in order. The engine decides what shares a transaction.
A refusal is a value; an exception from a batch means that its transaction is
gone with everything in it. `settle` then keeps the damage small: each caller's
unit runs alone, under its operation id, so one poison item harms no neighbour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.errors import StoreError, Unavailable
from holdfast.runtime import Unit
from holdfast.runtime.contract import error_for

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Item_contra = TypeVar("Item_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

Row = tuple[Any, ...]


class Connection(Protocol):
    """One connection of either engine and colour."""

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """Run one statement and return its rows."""


class Batch(Protocol[Item_contra, Answer_co]):
    """One hot operation, many items at a time."""

    async def apply(
        self, on: Connection, items: Sequence[Item_contra], *, repeat: bool
    ) -> Sequence[Answer_co]:
        """One answer per item, in order.

        `repeat`: an earlier try may have committed, so operation ids must be looked up.
        """


class Db(Protocol):
    """An engine's connections, as facets see them."""

    async def write(self, batch: Batch[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """The answers, once they are durable. The items commit together or not at all."""

    async def read(self, batch: Batch[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """The answers, from committed data."""

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """The rows of one reading statement."""


class NotBegun(Exception):
    """No unit was touched: the writer was busy for too long, or no connection was to be had."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Attempt(Protocol):
    """Runs units in one transaction; on success each unit has its answers."""

    def __call__(self, units: list[Unit], *, repeat: bool) -> Awaitable[None]:
        """Raise StoreError when all of it is undone or its outcome is unknown."""


async def settle(units: list[Unit], attempt: Attempt, *, repeat: bool = False) -> None:
    """Give every unit its outcome, whatever happens to the others."""
    try:
        await attempt(units, repeat=repeat)
    except NotBegun as exc:
        _fail(units, exc.error)
    except Unavailable as lost:
        await _once_more(units, attempt, lost)
    except StoreError as error:
        if len(units) == 1:
            units[0].fail(error)
            return
        for unit in units:
            await settle([unit], attempt, repeat=True)


async def _once_more(units: list[Unit], attempt: Attempt, lost: Unavailable) -> None:
    """Repeat after a lost connection; where that fails too, nobody can tell what happened."""
    try:
        await attempt(units, repeat=True)
    except (NotBegun, Unavailable) as exc:
        error = exc.error if isinstance(exc, NotBegun) else exc
        error.outcome_unknown = lost.outcome_unknown or error.outcome_unknown
        _fail(units, error)
    except StoreError as error:
        if len(units) == 1:
            units[0].fail(error)
            return
        for unit in units:
            await settle([unit], attempt, repeat=True)


def _fail(units: list[Unit], error: StoreError) -> None:
    for unit, own in zip(units, error_for(error, len(units)), strict=True):
        unit.fail(own)


async def apply_grouped(units: list[Unit], on: Connection, *, repeat: bool) -> list[list[Any]]:
    """The units' answers; units of the same batch are applied as one list of items."""
    groups: dict[int, list[int]] = {}
    for at, unit in enumerate(units):
        groups.setdefault(id(unit.batch), []).append(at)
    answers: list[list[Any]] = [[] for _ in units]
    for members in groups.values():
        items = [item for at in members for item in units[at].items]
        flat = iter(await units[members[0]].batch.apply(on, items, repeat=repeat))
        for at in members:
            answers[at] = [next(flat) for _ in units[at].items]
    return answers

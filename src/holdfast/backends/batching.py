"""Batches: what a facet hands to an engine, and what the engine owes to each caller.

A facet hands its hot operations over as a `Batch`: a list of items in, one
answer per item out, in order. The engine decides what shares a transaction.
A refusal is a value; an exception from a batch means that its transaction is
gone with everything in it. `settle` then keeps the damage small: each caller's
unit runs alone, under its operation id, so one poison item harms no neighbour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

from holdfast.errors import StoreError, Timeout, Unavailable
from holdfast.runtime import Unit
from holdfast.runtime.contract import error_for

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Item_contra = TypeVar("Item_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)


class Batch(Protocol[Item_contra, Answer_co]):
    """One hot operation, many items at a time."""

    def apply(
        self,
        on: Any,  # noqa: ANN401 - each engine's batches know their own connection
        items: Sequence[Item_contra],
        *,
        repeat: bool,
    ) -> Sequence[Answer_co] | Awaitable[Sequence[Answer_co]]:
        """One answer per item, in order: at once where the engine is in this process.

        `on` is the engine's own connection, inside a transaction when the batch writes.
        `repeat`: an earlier try may have committed, so operation ids must be looked up.
        """


def at_once(answers: T | Awaitable[T]) -> T:
    """What a batch of an engine in this process answers."""
    return cast("T", answers)


def to_await(answers: T | Awaitable[T]) -> Awaitable[T]:
    """What a batch of a server answers."""
    return cast("Awaitable[T]", answers)


class NotBegun(Exception):
    """No unit was touched: the writer was busy for too long, or no connection was to be had."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Attempt(Protocol):
    """Runs units in one transaction; on success each unit has its answers."""

    def __call__(self, units: list[Unit], *, repeat: bool, patient: bool) -> Awaitable[None]:
        """Raise StoreError when all of it is undone or its outcome is unknown.

        Not `patient`: the units have waited for locks already, and shall not again.
        """


async def settle(
    units: list[Unit],
    attempt: Attempt,
    *,
    failed: StoreError | NotBegun | None = None,
    repeat: bool = False,
    may_repeat: bool = True,
    patient: bool = True,
) -> None:
    """Give every unit its outcome, whatever happens to the others.

    A lost answer is asked for once more, under the same operation ids. Any other error
    undid everything, so each unit runs alone. `repeat`: an earlier try may have
    committed, so operation ids must be looked up, and no error can say "not done".
    `failed`: the first try has been made, and ended so.
    """
    if failed is None:
        try:
            await attempt(units, repeat=repeat, patient=patient)
        except (NotBegun, StoreError) as exc:
            failed = exc
        else:
            return
    begun = not isinstance(failed, NotBegun)
    error = failed.error if isinstance(failed, NotBegun) else failed
    # Asked before an older doubt is added.
    lost, silent = begun and _lost(error), isinstance(error, Timeout) and error.outcome_unknown
    error.outcome_unknown |= repeat
    doubted = error.outcome_unknown
    if lost and may_repeat:
        await settle(units, attempt, repeat=doubted, may_repeat=False)
    elif begun and not lost and not silent and len(units) > 1:
        # Who waited for a lock in vain has waited enough: one locked row must not hold up
        # everybody who comes after, once for each unit.
        patient = not isinstance(error, Timeout)
        for unit in units:
            await settle([unit], attempt, repeat=doubted, patient=patient)
    else:
        _fail(units, error)


def _lost(error: StoreError) -> bool:
    """True when it is the answer that is missing: the connection went, or a commit failed.

    Not after a timeout: waiting as long once more helps nobody, least of all unit by unit.
    """
    if isinstance(error, Timeout):
        return False
    return error.outcome_unknown or isinstance(error, Unavailable)


def _fail(units: list[Unit], error: StoreError) -> None:
    for unit, own in zip(units, error_for(error, len(units)), strict=True):
        unit.fail(own)


def apply_now(units: list[Unit], on: Any, *, repeat: bool) -> None:  # noqa: ANN401 - handed on
    """The same as `apply_grouped`, of batches that answer at once."""
    for members, items in _grouped(units):
        _hand_out(members[0].batch.apply(on, items, repeat=repeat), members)


async def apply_grouped(
    units: list[Unit],
    on: Any,  # noqa: ANN401 - handed on to the batches
    *,
    repeat: bool,
) -> None:
    """Apply the units, those of the same batch as one list of items.

    What they find becomes their answers only when the transaction has committed.
    """
    if len(units) == 1:
        (alone,) = units
        alone.answers = await alone.batch.apply(on, alone.items, repeat=repeat)
        return
    for members, items in _grouped(units):
        _hand_out(await members[0].batch.apply(on, items, repeat=repeat), members)


def _grouped(units: list[Unit]) -> Iterator[tuple[list[Unit], Sequence[Any]]]:
    """The units of each batch, and all their items."""
    while units:
        batch = units[0].batch
        members = [unit for unit in units if unit.batch is batch]
        yield members, [item for unit in members for item in unit.items]
        if len(members) == len(units):
            return
        units = [unit for unit in units if unit.batch is not batch]


def _hand_out(answers: Sequence[Any], members: list[Unit]) -> None:
    begin = 0
    for unit in members:
        count = len(unit.items)
        # A tuple of one, as nearly always, is made in half the time of a slice.
        unit.answers = (answers[begin],) if count == 1 else answers[begin : begin + count]
        begin += count

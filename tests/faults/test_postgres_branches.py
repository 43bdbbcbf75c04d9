"""Connections cut anywhere in a fork, a merge or a delete: the right answer and one effect.

HOLDFAST_CUTS says how many cuts, HOLDFAST_SEED where they fall.
"""

import os
import random
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from holdfast import AsyncStore, Conflict, MergeResult, Unavailable
from holdfast.testing.proxy import Direction, FaultProxy
from holdfast.testing.world import Colour

CUTS = int(os.environ.get("HOLDFAST_CUTS", "240"))
SEED = int(os.environ.get("HOLDFAST_SEED", random.randrange(2**32)))
DIRECTIONS: tuple[Direction, ...] = ("to_server", "to_client")
# Three operations in two colours and two directions.
SHARE = max(10, CUTS // 12)

OpenStore = Callable[..., AsyncStore]


async def fork(store: AsyncStore, number: int) -> None:
    made = await store.branches.fork(f"fork{number}", source=f"b{number}")
    assert (made.name, made.parent) == (f"fork{number}", f"b{number}")
    listed = [branch for branch in await store.branches.list() if branch.name == made.name]
    assert listed == [made]
    assert await store.cells.on(made.name).get("x") == number


async def merge(store: AsyncStore, number: int) -> None:
    before = await store.cells.getv("x")
    result = await store.branches.merge(f"b{number}", strategy="source_wins")
    history = await store.cells.getv("x")
    assert result == MergeResult(
        merged={"x": history[0].version, "y": history[0].version}, deleted=[]
    )
    assert [cell.value for cell in history] == [number, *(cell.value for cell in before)]


async def delete(store: AsyncStore, number: int) -> None:
    assert await store.branches.delete(f"b{number}")
    assert f"b{number}" not in [branch.name for branch in await store.branches.list()]


@pytest.mark.parametrize("operation", [fork, merge, delete])
def test_one_cut_anywhere_is_mended_by_the_store(
    operation: Callable[[AsyncStore, int], Coroutine[Any, Any, None]],
    colour: Colour,
    open_store: OpenStore,
    proxy: FaultProxy,
    database: str,
) -> None:
    print(f"HOLDFAST_SEED={SEED}")  # noqa: T201 - a failure must tell it
    rng = random.Random(SEED)
    store = open_store(proxy.through(database), listen_url=database)
    numbers = count(1)

    def forked() -> int:
        number = next(numbers)
        colour.run(store.branches.fork(f"b{number}"))
        colour.run(store.cells.on(f"b{number}").set_many({"x": number, "y": number}))
        return number

    def bytes_of_a_call(direction: Direction) -> int:
        number = forked()
        before = proxy.counts
        colour.run(operation(store, number))
        return int(getattr(proxy.counts, direction) - getattr(before, direction))

    for direction in DIRECTIONS:
        cuts = 0
        for turn in range(SHARE):
            bytes_of_a_call(direction)  # the first one after a cut also prepares
            total = bytes_of_a_call(direction)
            number = forked()
            cuts_before = proxy.counts.cuts
            low, high = turn * total // SHARE, (turn + 1) * total // SHARE
            proxy.cut_after(**{direction: rng.randrange(low, high)})
            colour.run(operation(store, number))
            proxy.heal()
            cuts += proxy.counts.cuts - cuts_before
        assert cuts >= SHARE * 3 // 4, f"void: {cuts} of {SHARE} cuts met a call"


def test_control_fork_under_another_id_finds_the_name_taken(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    proxy.cut_before_reply(b"trial", times=2)
    with pytest.raises(Unavailable) as failed:
        colour.run(store.branches.fork("trial"))
    assert failed.value.outcome_unknown
    proxy.heal()
    with pytest.raises(Conflict, match="'trial'"):
        colour.run(store.branches.fork("trial"))

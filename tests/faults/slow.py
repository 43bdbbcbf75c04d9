"""Scenes with a server that takes its time, for each engine with one."""

from __future__ import annotations

from uuid import uuid4

import pytest

import holdfast
from holdfast import Record
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.world import Colour

CALLERS = 10


async def slow_server(colour: Colour, proxy: FaultProxy, url: str) -> None:
    """Everybody is answered rightly, later."""
    store = await colour.open(proxy.through(url), "default", None)
    try:
        proxy.delay(0.02)
        versions = await colour.together(store.cells.set("c", n) for n in range(CALLERS))
        assert sorted(map(str, versions)) == sorted(map(str, range(1, CALLERS + 1)))
        puts = [store.records.put(f"k{n}", {"x": n}) for n in range(CALLERS)]
        assert await colour.together(puts) == [None] * CALLERS
        assert len([key async for key, _ in store.records.scan()]) == CALLERS
        proxy.delay(0)
    finally:
        await store.close()


async def too_slow_server(colour: Colour, proxy: FaultProxy, url: str) -> None:
    """A call that took longer than `call_timeout` is said to be unknown; a repeat settles it."""
    store = await colour.open(proxy.through(url), "default", None)
    try:
        await store.records.put("a", {"n": 0})
        op = uuid4()
        proxy.delay(3)
        with pytest.raises(holdfast.Timeout) as caught:
            await store.records.compare_and_swap("a", "n", 0, 1, op_id=op)
        assert caught.value.retryable
        proxy.delay(0)
        while True:
            try:
                assert await store.records.compare_and_swap("a", "n", 0, 1, op_id=op) is True
                break
            except (holdfast.Timeout, holdfast.Unavailable):
                continue  # what was held back is still in the way
        assert await store.records.get("a") == Record({"n": b"1"})
    finally:
        await store.close()

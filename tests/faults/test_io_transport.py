"""Every write and sync of publishers and consumers fails once, and for good.

What was not acknowledged comes again at once: the groups give no time to answer in.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from holdfast import AsyncStore
from holdfast.testing.disk import Operation
from holdfast.testing.world import Colour
from tests.faults.scripts import Script, sweep

NO_TIME = 1e-6  # seconds
ALL = 1000


async def _group(store: AsyncStore, name: str, subjects: str, most: int = ALL) -> None:
    # Whether it is new is not asked: who makes a group again finds the one of the first try.
    await store.transport.create_group(
        name, subjects, from_start=True, ack_timeout=NO_TIME, max_deliveries=most
    )


def _publish(
    subject: str, payload: str
) -> Callable[[AsyncStore, UUID], Coroutine[Any, Any, object]]:
    return lambda store, op: store.transport.publish(subject, payload, message_id=op)


async def _take(store: AsyncStore, *, done: bool) -> object:
    delivery = await store.transport.fetch("g")
    assert delivery is not None
    assert await (delivery.ack() if done else delivery.nak())
    return delivery.message.payload


async def _die(store: AsyncStore) -> object:
    """Take the message until the group gives it up; how many dead letters there are."""
    while await store.transport.fetch("dead") is not None:
        pass
    return (await store.transport.status("dead")).dead


async def _bury(store: AsyncStore, *, revive: bool) -> list[bool]:
    """What is said of each dead letter: nothing, if an earlier try was not told of what it did."""
    transport = store.transport
    bury = transport.revive if revive else transport.drop_dead
    return [await bury("dead", letter.place) for letter in await transport.dead_letters("dead")]


async def _everything(store: AsyncStore) -> list[object]:
    """How far the group is, and every message of the log."""
    async with store.transport.consumer("all", prefetch=ALL) as consumer:
        messages = await consumer.next_batch(0)
    status = await store.transport.status("g")
    return [
        *((one.message.message_id, one.message.payload) for one in messages),
        (status.waiting, status.delivered, status.dead),
    ]


SCRIPT = Script(
    (
        lambda store, _: _group(store, "all", ">"),
        lambda store, _: _group(store, "g", "a.*"),
        _publish("a.1", "first"),
        _publish("b", "x" * 5000),
        _publish("a.2", "y" * 5000),
        lambda store, _: _take(store, done=True),
        _publish("a.3", "third"),
        lambda store, _: _take(store, done=False),
        lambda store, _: _take(store, done=True),
        lambda store, _: store.transport.purge(),
        _publish("a.4", "left"),
        lambda store, _: _take(store, done=True),
        lambda store, _: _group(store, "dead", "b", most=2),
        lambda store, _: _die(store),
        lambda store, _: _bury(store, revive=True),
        lambda store, _: _die(store),
        lambda store, _: _bury(store, revive=False),
        lambda store, _: store.transport.status("dead"),
        lambda store, _: store.transport.delete_group("dead"),
        lambda store, _: store.transport.list_groups(),
    ),
    _everything,
)


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_every_message_is_kept_once_and_done_once(
    colour: Colour, operation: Operation, *, persistent: bool
) -> None:
    sweep(colour, SCRIPT, operation, persistent=persistent)

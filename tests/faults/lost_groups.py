"""Calls on groups and dead letters whose answers are lost, for each engine with a server."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import AsyncStore

PATIENCE = 30


def _nothing() -> None:
    pass


async def lost_group_answers(store: AsyncStore, cut: Callable[[], None]) -> None:
    """Each call tells what it did, though the answer of its first try is lost by `cut`."""
    transport = store.transport
    cuts: tuple[Callable[[], None], ...] = (_nothing, cut)  # so that the server knows all of it
    for lose in cuts:
        assert await transport.create_group("kept", ">", max_deliveries=1) is (lose is not cut)
        lose()
        assert await transport.create_group("kept", ">", max_deliveries=1) is False
        lose()
        assert await transport.create_group("g", ">") is True
        lose()
        assert await transport.delete_group("g") is True
        assert await transport.list_groups() == ["kept"]
        async with transport.consumer("kept") as consumer:
            for payload in ("first", "second"):
                await transport.publish("subject", payload)
                delivery = await consumer.next(PATIENCE)
                assert delivery is not None
                assert await delivery.nak()
            assert await consumer.next(0) is None
        first, second = await transport.dead_letters("kept")
        lose()
        assert await transport.revive("kept", first.place) is True
        lose()
        assert await transport.drop_dead("kept", second.place) is True
        assert await transport.dead_letters("kept") == []
        again = await transport.fetch("kept")
        assert again is not None
        assert again.message.payload == "first"
        assert await again.ack()
        assert await transport.delete_group("g") is False

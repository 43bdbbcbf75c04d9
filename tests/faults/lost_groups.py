"""Calls on groups and dead letters whose answers are lost, for each engine with a server."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast import AsyncStore, NotFound, Store
from holdfast.aio.transport import AsyncTransport
from holdfast.sync.transport import Transport

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


async def lost_answers_about_nothing(store: AsyncStore, cut: Callable[[], None]) -> None:
    """What was not there is told to be so, though the answer of the first try is lost."""
    transport = store.transport
    letter = await _dead_letter(transport)
    assert await transport.drop_dead("g", letter) is True
    for lose in (_nothing, cut):  # so that the server knows all of it
        lose()
        assert await transport.delete_group("missing") is False
        lose()
        assert await transport.revive("g", letter) is False
        lose()
        assert await transport.drop_dead("g", letter) is False
        lose()
        with pytest.raises(NotFound):
            await transport.revive("missing", letter)


class Meanwhile:
    """What somebody else does once the server has answered, and before anybody is told."""

    def __init__(self, answered: Callable[[bytes], bool]) -> None:
        self._answered = answered
        self.work: Callable[[], object] | None = None

    def __call__(self, answer: bytes) -> bool:
        """See `answered` of FaultProxy: it is asked for the answer that will be lost."""
        whole = self._answered(answer)
        if whole and self.work is not None:
            work, self.work = self.work, None
            thread = threading.Thread(target=work)  # not the proxy's, which has a loop
            thread.start()
            thread.join()
        return whole


async def lost_answers_before_another(
    store: AsyncStore, other: Store, meanwhile: Meanwhile, cut: Callable[[], None]
) -> None:
    """A repeat ends nothing that came after its first try, and tells what that did."""
    transport = store.transport

    def lose(work: Callable[[], object]) -> None:
        meanwhile.work = work
        cut()

    def make_anew() -> None:
        other.transport.create_group("g", ">", from_start=True, max_deliveries=1)

    await transport.create_group("g", ">")
    await transport.delete_group("g")  # the server knows the call now
    await transport.create_group("g", ">")
    lose(make_anew)
    assert await transport.delete_group("g") is True
    assert await transport.list_groups() == ["g"]
    await transport.delete_group("g")

    letter = await _dead_letter(transport)
    assert await transport.revive("g", letter) is True
    _die(other.transport)
    lose(lambda: _die(other.transport))
    assert await transport.revive("g", letter) is True
    assert [one.place for one in await transport.dead_letters("g")] == [letter]

    def die_anew() -> None:
        other.transport.delete_group("g")
        make_anew()
        _die(other.transport)

    lose(die_anew)
    assert await transport.drop_dead("g", letter) is True
    assert [one.place for one in await transport.dead_letters("g")] == [letter]
    assert meanwhile.work is None, "void: no answer was lost"


async def _dead_letter(transport: AsyncTransport) -> str:
    """The place of the only dead letter of a new group `g`."""
    await transport.create_group("g", ">", max_deliveries=1)
    await transport.publish("subject", "poison")
    async with transport.consumer("g") as consumer:
        delivery = await consumer.next(PATIENCE)
        assert delivery is not None
        assert await delivery.nak()
        assert await consumer.next(0) is None
    (letter,) = await transport.dead_letters("g")
    return letter.place


def _die(transport: Transport) -> None:
    """Take the one message of the group once more, in vain."""
    with transport.consumer("g") as consumer:
        delivery = consumer.next(PATIENCE)
        assert delivery is not None
        assert delivery.nak()
        assert consumer.next(0) is None

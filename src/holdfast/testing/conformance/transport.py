"""Specs for the transport: publish, groups, answers, redelivery, dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Capability, InvalidArgument, InvalidState, Message, NotFound, StoreConfig
from holdfast.aio.transport import AsyncConsumer, AsyncDelivery
from holdfast.testing.plugin import needs
from holdfast.testing.world import World

TRANSPORT = needs(Capability.TRANSPORT)
CLOCK = needs(Capability.TRANSPORT, Capability.MOVABLE_CLOCK)
_MOMENT = 0.1  # seconds
SOON = 10.0  # seconds until a message must have come


async def _next(consumer: AsyncConsumer) -> AsyncDelivery:
    delivery = await consumer.next(SOON)
    assert delivery is not None, "no message came"
    return delivery


async def _payloads(consumer: AsyncConsumer) -> list[Any]:
    """What there is now, acknowledged."""
    found = []
    # PostgreSQL holds messages back while any older transaction of the server is open.
    while (delivery := await consumer.next(_MOMENT)) is not None:
        found.append(delivery.message.payload)
        assert await delivery.ack()
    return found


@TRANSPORT
async def test_a_message_comes_in_its_envelope(world: World) -> None:
    transport = world.store.transport
    async with transport.consumer("g", "a.b") as consumer:
        before = await world.store.now()
        payload = {"n": 1, "raw": b"\xff", "text": "grün", "none": None}
        message_id = await transport.publish("a.b", payload, trace_id="t-1")
        delivery = await _next(consumer)
        after = await world.store.now()
        message = delivery.message
        assert message == Message(message_id, "a.b", message.timestamp, "t-1", payload)
        slack = 0.01
        assert (
            before.timestamp() - slack <= message.timestamp.timestamp() <= after.timestamp() + slack
        )
        assert delivery.number == 1
        assert await delivery.ack() is True
        assert await consumer.next(0) is None


@TRANSPORT
async def test_messages_come_in_the_order_of_publishing(world: World) -> None:
    transport = world.store.transport
    async with transport.consumer("g", "a", prefetch=7) as consumer:
        for number in range(50):
            await transport.publish("a", number)
        assert await _payloads(consumer) == list(range(50))


@TRANSPORT
async def test_every_group_gets_every_message(world: World) -> None:
    transport = world.store.transport
    async with transport.consumer("g1", "a") as one, transport.consumer("g2", "a") as two:
        await transport.publish("a", 1)
        await transport.publish("a", 2)
        assert await _payloads(one) == [1, 2]
        assert await _payloads(two) == [1, 2]


@TRANSPORT
async def test_within_a_group_each_message_goes_to_one_consumer(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=300)

    async def consume(number: int) -> list[int]:
        async with transport.consumer("g", name=f"c{number}") as consumer:
            found = []
            while (delivery := await consumer.next(2)) is not None:
                found.append(delivery.message.payload)
                assert await delivery.ack()
            return found

    async def publish() -> list[int]:
        for number in range(60):
            await transport.publish("a", number)
        return []

    results = await world.together([*(consume(number) for number in range(4)), publish()])
    assert sorted(number for result in results for number in result) == list(range(60))


@TRANSPORT
async def test_a_new_group_begins_now_or_at_the_start(world: World) -> None:
    transport = world.store.transport
    await transport.publish("a", "old")
    await transport.create_group("late", "a")
    await transport.create_group("all", "a", from_start=True)
    await transport.publish("a", "new")
    async with transport.consumer("late") as late, transport.consumer("all") as everything:
        assert await _payloads(late) == ["new"]
        assert await _payloads(everything) == ["old", "new"]


@TRANSPORT
async def test_a_group_keeps_its_place(world: World) -> None:
    transport = world.store.transport
    assert await transport.create_group("g", "a") is True
    await transport.publish("a", 1)
    async with transport.consumer("g", "a") as consumer:
        assert await _payloads(consumer) == [1]
    await transport.publish("a", 2)
    assert await transport.create_group("g", "a", from_start=True) is False
    async with transport.consumer("g", "a", from_start=True) as consumer:
        assert await _payloads(consumer) == [2]


@TRANSPORT
async def test_subjects_choose_what_a_group_gets(world: World) -> None:
    transport = world.store.transport
    subjects = ["a", "a.b", "a.b.c", "a.x.c", "ab", "b.a", "tasks.mail.queue", "tasks.print.queue",
                "tasks.mail.progress", "a+b", "grün.tag"]  # fmt: skip
    wanted: dict[str, list[str]] = {
        "a": ["a"],
        "a.*": ["a.b"],
        "a.>": ["a.b", "a.b.c", "a.x.c"],
        "a.*.c": ["a.b.c", "a.x.c"],
        "*": ["a", "ab", "a+b"],
        ">": subjects,
        "tasks.*.queue": ["tasks.mail.queue", "tasks.print.queue"],
        "a+b": ["a+b"],
        "grün.*": ["grün.tag"],
    }
    for pattern in wanted:
        await transport.create_group(f"g-{pattern.replace('>', 'rest')}", pattern)
    await transport.create_group("two", ["a.b", "b.*"])
    for subject in subjects:
        await transport.publish(subject, subject)
    for pattern, found in wanted.items():
        async with transport.consumer(f"g-{pattern.replace('>', 'rest')}") as consumer:
            assert await _payloads(consumer) == found, pattern
    async with transport.consumer("two") as consumer:
        assert await _payloads(consumer) == ["a.b", "b.a"]


@CLOCK
async def test_what_is_not_answered_is_delivered_again(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=30)
    await transport.publish("a", 1)
    async with transport.consumer("g") as dies, transport.consumer("g") as lives:
        first = await _next(dies)
        assert await lives.next(0) is None
        await world.move_clock(31)
        second = await _next(lives)
        assert (second.message, second.number) == (first.message, 2)
        assert await first.ack() is False
        assert await first.nak() is False
        assert await first.extend(10) is False
        assert await second.ack() is True
        assert await second.ack() is False
        await world.move_clock(1000)
        assert await lives.next(0) is None


@CLOCK
async def test_a_nak_gives_a_message_back_after_its_delay(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=3600)
    await transport.publish("a", 1)
    await transport.publish("a", 2)
    async with transport.consumer("g") as consumer:
        first = await _next(consumer)
        assert await first.nak() is True
        again = await _next(consumer)
        assert (again.message.payload, again.number) == (1, 2)
        assert await again.nak(delay=60) is True
        assert await _payloads(consumer) == [2]
        await world.move_clock(61)
        last = await _next(consumer)
        assert (last.message.payload, last.number) == (1, 3)
        assert await last.ack() is True


@CLOCK
async def test_extend_keeps_a_message_longer(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=30)
    await transport.publish("a", 1)
    async with transport.consumer("g") as consumer:
        delivery = await _next(consumer)
        assert await delivery.extend(300) is True
        await world.move_clock(31)
        assert await consumer.next(0) is None
        assert await delivery.ack() is True


@CLOCK
async def test_extend_can_also_shorten_the_time(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=300)
    await transport.publish("a", 1)
    async with transport.consumer("g") as holds, transport.consumer("g") as waits:
        delivery = await _next(holds)
        assert await waits.next(0) is None  # who has looked is to find out too
        assert await delivery.extend(30) is True
        await world.move_clock(20)
        assert await waits.next(0) is None
        await world.move_clock(11)
        again = await _next(waits)
        assert (again.message.payload, again.number) == (1, 2)
        assert await delivery.ack() is False
        assert await again.ack() is True


@needs(Capability.TRANSPORT, Capability.MOVABLE_CLOCK, Capability.SHARED)
async def test_another_store_finds_what_was_shortened(world: World) -> None:
    other = await world.open()
    await world.store.transport.create_group("g", "a", ack_timeout=300)
    await world.store.transport.publish("a", 1)
    async with (
        world.store.transport.consumer("g") as holds,
        other.transport.consumer("g") as waits,
    ):
        delivery = await _next(holds)
        assert await waits.next(0) is None
        assert await delivery.extend(30) is True
        assert await waits.next(0) is None
        assert await delivery.extend(600) is True
        assert await delivery.extend(30) is True
        await world.move_clock(31)
        again = await _next(waits)
        assert again.number == 2
        assert await again.ack() is True


@CLOCK
async def test_after_its_last_delivery_a_message_is_a_dead_letter(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", ack_timeout=30, max_deliveries=3)
    message_id = await transport.publish("a", "poison")
    await transport.publish("a", "fine")
    async with transport.consumer("g") as consumer:
        for number in (1, 2, 3):
            delivery = await _next(consumer)
            assert (delivery.message.payload, delivery.number) == ("poison", number)
            assert await delivery.nak() is True
        assert await _payloads(consumer) == ["fine"]
        (letter,) = await transport.dead_letters("g")
        assert letter.message.message_id == message_id
        assert letter.message.payload == "poison"
        assert letter.deliveries == 3
        assert await transport.dead_letters("g", after=letter.place) == []
        assert await transport.revive("g", letter.place) is True
        assert await transport.revive("g", letter.place) is False
        delivery = await _next(consumer)
        assert (delivery.message.payload, delivery.number) == ("poison", 1)
        assert await delivery.ack() is True
        assert await transport.dead_letters("g") == []


@TRANSPORT
async def test_who_held_a_message_before_it_died_cannot_answer_for_its_next_life(
    world: World,
) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", max_deliveries=2)
    await transport.publish("a", 1)
    async with transport.consumer("g") as consumer:
        for _ in range(3):
            first = await _next(consumer)
            assert await first.nak() is True
            second = await _next(consumer)
            assert (first.number, second.number) == (1, 2)
            assert await second.nak() is True
            assert await consumer.next(0) is None
            (letter,) = await transport.dead_letters("g")
            assert letter.deliveries == 2
            assert await transport.revive("g", letter.place) is True
            third = await _next(consumer)
            assert third.number == 1
            assert await first.ack() is False
            assert await second.ack() is False
            assert await third.nak() is True
            fourth = await _next(consumer)
            assert await first.ack() is False
            assert await second.ack() is False
            assert await fourth.nak() is True
            assert await consumer.next(0) is None
            (letter,) = await transport.dead_letters("g")
            assert await transport.revive("g", letter.place) is True
        last = await _next(consumer)
        assert await last.ack() is True


@TRANSPORT
async def test_who_held_a_message_of_a_deleted_group_cannot_answer_for_its_successor(
    world: World,
) -> None:
    transport = world.store.transport
    await transport.publish("a", 1)
    await transport.create_group("g", "a", from_start=True)
    async with transport.consumer("g") as consumer:
        old = await _next(consumer)
        assert await transport.delete_group("g") is True
        assert await transport.create_group("g", "a", from_start=True) is True
        assert await old.ack() is False
        new = await _next(consumer)
        assert (new.message, new.number) == (old.message, old.number)
        assert await old.extend(3600) is False
        assert await old.nak() is False
        assert await old.ack() is False
        assert await consumer.nak_batch([old]) == 0
        assert await consumer.ack_batch([old, new]) == 1
        status = await transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (0, 0, 0)


@CLOCK
async def test_who_held_a_message_of_a_deleted_group_does_not_keep_it_from_others(
    world: World,
) -> None:
    transport = world.store.transport
    await transport.publish("a", 1)
    await transport.create_group("g", "a", from_start=True, ack_timeout=30)
    async with transport.consumer("g") as consumer:
        old = await _next(consumer)
        await transport.delete_group("g")
        await transport.create_group("g", "a", from_start=True, ack_timeout=30)
        new = await _next(consumer)
        assert await old.extend(3600) is False
        await world.move_clock(31)
        again = await _next(consumer)
        assert (again.message, again.number) == (new.message, 2)
        assert await again.ack() is True


@TRANSPORT
@pytest.mark.parametrize("place", ["", "x", "0x1", "1_0", "+1", "1.", "\u0663", b"1", 1])
async def test_places_that_no_dead_letter_has_are_refused(world: World, place: Any) -> None:  # noqa: ANN401 - wrong on purpose
    transport = world.store.transport
    await transport.create_group("g", "a")
    for refused in (
        transport.revive("g", place),
        transport.drop_dead("g", place),
        transport.dead_letters("g", after=place),
    ):
        with pytest.raises(InvalidArgument, match="place: wanted that of a dead letter"):
            await refused


@TRANSPORT
async def test_names_of_consumers_are_checked(world: World) -> None:
    await world.store.transport.create_group("g", "a")
    wrong: Any
    for wrong in (None, 7, "a:b"):
        with pytest.raises(InvalidArgument):
            await world.store.transport.fetch("g", consumer=wrong)


@TRANSPORT
async def test_a_closed_consumer_hands_out_nothing_more(world: World) -> None:
    for payload in range(3):
        await world.store.transport.publish("a", payload)
    async with world.store.transport.consumer("g", "a", prefetch=3, from_start=True) as consumer:
        assert (await _next(consumer)).message.payload == 0
        consumer.close()
        assert await consumer.next_batch(0) == []
        assert await consumer.next(0) is None


@CLOCK
async def test_a_dead_letter_can_be_dropped(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", max_deliveries=1)
    await transport.publish("a", 1)
    async with transport.consumer("g") as consumer:
        assert await (await _next(consumer)).nak() is True
        assert await consumer.next(0) is None
        (letter,) = await transport.dead_letters("g")
        assert await transport.drop_dead("g", letter.place) is True
        assert await transport.drop_dead("g", letter.place) is False
        assert await transport.dead_letters("g") == []


@TRANSPORT
async def test_the_same_message_id_again_is_the_same_message(world: World) -> None:
    transport = world.store.transport
    async with transport.consumer("g", "a") as consumer:
        for _ in range(3):
            assert await transport.publish("a", 1, message_id="m-1") == "m-1"
        await world.together(transport.publish("a", 2, message_id="m-2") for _ in range(10))
        assert await _payloads(consumer) == [1, 2]


@CLOCK
async def test_the_same_message_id_is_published_again_later(world: World) -> None:
    transport = world.store.transport
    async with transport.consumer("g", "a") as consumer:
        await transport.publish("a", 1, message_id="m-1")
        assert await _payloads(consumer) == [1]
        await world.move_clock(121)
        await transport.publish("a", 1, message_id="m-1")
        assert await _payloads(consumer) == [1]


@TRANSPORT
async def test_a_waiting_consumer_is_woken(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a")

    async def consume() -> int:
        async with transport.consumer("g") as consumer:
            delivery = await _next(consumer)
            await delivery.ack()
            return int(delivery.message.payload)

    async def publish() -> int:
        await transport.publish("a", 7)
        return 0

    assert await world.together([consume(), publish()]) == [7, 0]


@needs(Capability.TRANSPORT, Capability.SHARED)
async def test_a_consumer_in_another_store_gets_messages(world: World) -> None:
    other = await world.open()
    async with other.transport.consumer("g", "a") as consumer:
        await world.store.transport.publish("a", 1)
        delivery = await _next(consumer)
        assert delivery.message.payload == 1
        assert await delivery.ack() is True


@TRANSPORT
async def test_namespaces_have_their_own_messages_and_groups(world: World) -> None:
    transport, other = world.store.transport, world.store.namespace("other").transport
    await transport.create_group("g", ">")
    await other.create_group("g", ">")
    await transport.publish("a", 1)
    await other.publish("a", 2)
    async with transport.consumer("g") as one, other.consumer("g") as two:
        assert await _payloads(one) == [1]
        assert await _payloads(two) == [2]


@TRANSPORT
async def test_status_tells_how_far_a_group_is(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("g", "a", max_deliveries=1)
    status = await transport.status("g")
    assert (status.waiting, status.delivered, status.dead, status.oldest_at) == (0, 0, 0, None)
    for number in range(4):
        await transport.publish("a", number)
        await transport.publish("b", number)
    async with transport.consumer("g") as consumer:
        first = await _next(consumer)
        status = await transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (3, 1, 0)
        assert status.oldest_at == first.message.timestamp
        assert await first.ack()
        second = await _next(consumer)
        assert await second.nak()
        third = await _next(consumer)
        assert third.message.payload == 2
        status = await transport.status("g")
        assert (status.waiting, status.delivered, status.dead) == (1, 1, 1)


@TRANSPORT
async def test_groups_are_listed_and_deleted(world: World) -> None:
    transport = world.store.transport
    for name in ("b", "a", "ä"):
        await transport.create_group(name, "x")
    assert await transport.list_groups() == ["a", "b", "ä"]
    await transport.publish("x", 1)
    async with transport.consumer("b") as consumer:
        delivery = await _next(consumer)
        assert await transport.delete_group("b") is True
        assert await transport.delete_group("b") is False
        assert await delivery.ack() is False
    assert await transport.list_groups() == ["a", "ä"]
    await transport.create_group("b", "x")
    async with transport.consumer("b") as consumer:
        assert await consumer.next(0) is None


@TRANSPORT
async def test_the_same_operation_on_a_group_again_has_the_first_answer(world: World) -> None:
    transport, other = world.store.transport, world.store.namespace("other").transport
    op = uuid4()
    for _ in range(2):
        assert await transport.create_group("g", "a", ack_timeout=30, op_id=op) is True
    assert await transport.create_group("g", "b", op_id=uuid4()) is False
    assert await transport.create_group("g", "a", op_id=op) is True  # and still asks for b
    change = uuid4()
    assert await transport.create_group("g", "c", op_id=change) is False
    assert await transport.create_group("g", "b") is False
    assert await transport.create_group("g", "c", op_id=change) is False  # and still asks for b
    await transport.publish("b", "for g")
    assert (await transport.status("g")).waiting == 1
    for _ in range(2):
        # Nothing else that is done under the same id is taken for it.
        assert await transport.delete_group("g", op_id=str(op)) is True
        assert await other.delete_group("g", op_id=op) is False
        assert await transport.delete_group("missing", op_id=op) is False
        assert await transport.create_group("g", "a", op_id=op) is True
        assert await transport.create_group("g", "c", op_id=change) is False
        assert await transport.list_groups() == []
    # Others make them again, and a repeat that comes late does no harm.
    for place, name in ((transport, "g"), (transport, "missing"), (other, "g")):
        assert await place.create_group(name, "a") is True
    assert await transport.delete_group("g", op_id=op) is True
    assert await transport.delete_group("missing", op_id=op) is False
    assert await other.delete_group("g", op_id=op) is False
    assert await transport.list_groups() == ["g", "missing"]
    assert await other.list_groups() == ["g"]


@TRANSPORT
async def test_the_same_operation_on_a_dead_letter_again_has_the_first_answer(
    world: World,
) -> None:
    transport = world.store.transport
    op = uuid4()
    await transport.create_group("g", "a", max_deliveries=1)
    for payload in ("one", "two"):
        await transport.publish("a", payload)
    async with transport.consumer("g") as consumer:
        await _let_die(consumer, "one", "two")
        one, two = await transport.dead_letters("g")
        assert await transport.revive("g", one.place, op_id=op) is True
        assert await transport.revive("g", two.place, op_id=op) is True
        await _let_die(consumer, "one", "two")
        for letter in (one, two):
            assert await transport.revive("g", letter.place, op_id=op) is True
        assert [letter.place for letter in await transport.dead_letters("g")] == [
            one.place,
            two.place,
        ]
        assert await transport.drop_dead("g", one.place, op_id=op) is True
        assert await transport.drop_dead("g", f"00{one.place}", op_id=op) is True
        assert await transport.drop_dead("g", one.place, op_id=uuid4()) is False
        (letter,) = await transport.dead_letters("g")
        assert letter.place == two.place
        # What was not there is known as well.
        later = uuid4()
        assert await transport.revive("g", two.place) is True
        assert await transport.drop_dead("g", two.place, op_id=later) is False
        await _let_die(consumer, "two")
        assert await transport.drop_dead("g", two.place, op_id=later) is False
        assert len(await transport.dead_letters("g")) == 1
        assert await consumer.next(0) is None
    await transport.delete_group("g")
    assert await transport.revive("g", one.place, op_id=op) is True
    assert await transport.drop_dead("g", two.place, op_id=later) is False
    with pytest.raises(NotFound):
        await transport.revive("g", one.place)


@TRANSPORT
async def test_an_operation_that_is_refused_may_come_again(world: World) -> None:
    transport = world.store.transport
    op = uuid4()
    await transport.create_group("g", "a", max_deliveries=1)
    await transport.publish("a", 1)
    async with transport.consumer("g") as consumer:
        await _let_die(consumer, 1)
        (letter,) = await transport.dead_letters("g")
    for call in (transport.revive, transport.drop_dead):
        for _ in range(2):
            with pytest.raises(NotFound):
                await call("h", letter.place, op_id=op)
    await transport.create_group("h", "a")
    assert await transport.revive("h", letter.place, op_id=op) is False
    wrong: Any
    for wrong in ("x", 7, b"1" * 16):
        for call in (transport.revive, transport.drop_dead):
            with pytest.raises(InvalidArgument, match="op_id"):
                await call("g", letter.place, op_id=wrong)
        with pytest.raises(InvalidArgument, match="op_id"):
            await transport.create_group("i", "a", op_id=wrong)
        with pytest.raises(InvalidArgument, match="op_id"):
            await transport.delete_group("g", op_id=wrong)
    assert await transport.list_groups() == ["g", "h"]


@needs(Capability.TRANSPORT, Capability.TRANSACTIONS)
async def test_an_operation_that_is_rolled_back_may_come_again(world: World) -> None:
    op = uuid4()

    async def regret() -> None:
        async with world.store.transaction() as tx:
            assert await tx.transport.create_group("g", "a", op_id=op) is True
            assert await tx.transport.create_group("g", "a", op_id=op) is True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await regret()
    async with world.store.transaction() as tx:
        assert await tx.transport.delete_group("g", op_id=op) is False
    assert await world.store.transport.create_group("g", "a", op_id=op) is True
    assert await world.store.transport.list_groups() == ["g"]


@TRANSPORT
async def test_of_many_callers_under_one_operation_all_hear_the_same(world: World) -> None:
    transport = world.store.transport
    op = uuid4()
    made = await world.together(transport.create_group("g", "a", op_id=op) for _ in range(10))
    assert made == [True] * 10
    gone = await world.together(transport.delete_group("g", op_id=op) for _ in range(10))
    assert gone == [True] * 10
    each = await world.together(transport.delete_group("g") for _ in range(10))
    assert each == [False] * 10


@TRANSPORT
async def test_of_many_callers_under_one_operation_one_makes_the_group(world: World) -> None:
    transport = world.store.transport
    for _ in range(20):
        op = uuid4()

        async def make(op: UUID = op) -> bool:
            return await transport.create_group("g", "a", op_id=op)

        async def drop() -> bool:
            return await transport.delete_group("g")

        made, dropped, *more = await world.together(
            call() for call in (make, drop, make, drop, make, drop)
        )
        assert [made, *more[::2]] == [True] * 3
        gone = [dropped, *more[1::2]]
        left = await transport.delete_group("g")
        assert [*gone, left].count(True) == 1, (gone, left)


@TRANSPORT
async def test_a_consumer_that_begins_again_changes_nothing(world: World) -> None:
    transport = world.store.transport
    for _ in range(3):
        async with transport.consumer("g", ["a", "b"], ack_timeout=30, max_deliveries=3) as one:
            assert await one.next(0) is None
    await transport.publish("a", 1)
    async with transport.consumer("g", "b", ack_timeout=30, max_deliveries=3) as one:
        assert await one.next(0) is None
    async with transport.consumer("g", ["a", "b"], ack_timeout=30, max_deliveries=1) as one:
        await transport.publish("b", 2)
        await _let_die(one, 2)
    assert [letter.deliveries for letter in await transport.dead_letters("g")] == [1]


async def _let_die(consumer: AsyncConsumer, *payloads: object) -> None:
    """Give back what is delivered once at most."""
    for payload in payloads:
        delivery = await _next(consumer)
        assert delivery.message.payload == payload
        assert await delivery.nak() is True
    assert await consumer.next(0) is None


@TRANSPORT
async def test_a_missing_group_is_not_found(world: World) -> None:
    transport = world.store.transport
    with pytest.raises(NotFound):
        await transport.consumer("g").next(0)
    for call in (
        transport.status("g"),
        transport.dead_letters("g"),
    ):
        with pytest.raises(NotFound):
            await call


@CLOCK
async def test_purge_takes_old_messages_that_no_group_needs(world: World) -> None:
    transport = world.store.transport
    await transport.create_group("done", "a")
    await transport.create_group("behind", "b")
    for number in range(5):
        await transport.publish("a", number)
    await transport.publish("b", "kept")
    async with transport.consumer("done") as consumer:
        assert await _payloads(consumer) == list(range(5))
    await world.move_clock(1000)
    await transport.purge(older_than=500)
    await transport.create_group("later", ">", from_start=True)
    async with transport.consumer("behind") as consumer:
        assert await _payloads(consumer) == ["kept"]


@CLOCK
async def test_purge_keeps_what_a_group_waits_for_holds_or_gave_up(world: World) -> None:
    transport, other = world.store.transport, world.store.namespace("other").transport
    await transport.create_group("g", "a", max_deliveries=1)
    await other.publish("a", "of nobody")
    for what in ("done", "dead", "held", "waits"):
        await transport.publish("a", what)
    async with transport.consumer("g") as consumer:
        assert await (await _next(consumer)).ack() is True
        assert await (await _next(consumer)).nak() is True
        held = await _next(consumer)
        await world.move_clock(1000)
        for place in (transport, other):
            await place.publish("b", "young")
        assert await transport.purge(older_than=2000) == 0
        assert await transport.purge(older_than=500) == 2
        assert await other.purge(older_than=500) == 0
        (letter,) = await transport.dead_letters("g")
        assert letter.message.payload == "dead"
        assert await held.ack() is True
        assert await transport.purge(older_than=500) == 1
        assert await transport.drop_dead("g", letter.place) is True
        assert await transport.purge(older_than=500) == 1
        assert await _payloads(consumer) == ["waits"]
        assert await transport.purge(older_than=500) == 1
        await transport.create_group("later", ">", from_start=True)
    async with transport.consumer("later") as consumer:
        assert await _payloads(consumer) == ["young"]


@CLOCK
async def test_purge_takes_the_oldest_first(world: World) -> None:
    transport = world.store.transport
    for number in range(7):
        await transport.publish("a", number)
    await world.move_clock(1000)
    await transport.publish("a", "young")
    assert await transport.purge(older_than=500, limit=3) == 3
    assert await transport.purge(older_than=500, limit=1) == 1
    await transport.create_group("g", "a", from_start=True)
    async with transport.consumer("g") as consumer:
        assert await _payloads(consumer) == [4, 5, 6, "young"]
    assert await transport.purge(older_than=500, limit=9) == 3
    for limit in (0, -1, True):
        with pytest.raises(InvalidArgument):
            await transport.purge(limit=limit)


@needs(Capability.TRANSPORT, Capability.TRANSACTIONS)
async def test_publishing_joins_the_transaction(world: World) -> None:
    store = world.store
    await store.transport.create_group("g", ">")

    class CalledOffError(Exception):
        pass

    async def fail() -> None:
        async with store.transaction() as tx:
            await tx.transport.publish("a", "lost")
            raise CalledOffError

    with pytest.raises(CalledOffError):
        await fail()
    async with store.transport.consumer("g") as consumer:
        async with store.transaction() as tx:
            await tx.cells.set("c", 1)
            await tx.records.put("r", {"x": 1})
            await tx.transport.publish("a", "kept")
        assert (await _next(consumer)).message.payload == "kept"


@needs(Capability.TRANSPORT, Capability.TRANSACTIONS)
async def test_a_message_is_not_delivered_before_its_transaction_commits(world: World) -> None:
    store, other = world.store, world.store.namespace("other")
    await store.transport.create_group("g", ">")
    await other.transport.create_group("g", ">")
    await store.transport.publish("a", "before")
    async with store.transaction() as tx:
        await tx.transport.publish("a", "first")
        await tx.cells.set("c", 1)
        await tx.transport.publish("a", "second")
        await tx.namespace("other").transport.publish("a", "elsewhere")
        assert await tx.namespace("other").transport.fetch("g") is None
        if (delivery := await tx.transport.fetch("g")) is not None:
            # PostgreSQL holds messages back while any older transaction of the server is open.
            assert delivery.message.payload == "before"
            assert await delivery.ack() is True
        assert await tx.transport.fetch("g") is None
        await tx.transport.create_group("new", ">", from_start=True)
        while (delivery := await tx.transport.fetch("new")) is not None:
            assert delivery.message.payload == "before"
            assert await delivery.ack() is True
    async with store.transport.consumer("g") as consumer, other.transport.consumer("g") as another:
        found = await _payloads(consumer)
        assert found[-2:] == ["first", "second"]
        assert found[:-2] in ([], ["before"])
        assert await _payloads(another) == ["elsewhere"]
    async with store.transport.consumer("new") as consumer:
        assert (await _payloads(consumer))[-2:] == ["first", "second"]


@needs(Capability.TRANSPORT, Capability.TRANSACTIONS)
async def test_an_answer_can_join_the_transaction_of_its_work(world: World) -> None:
    store = world.store
    await store.transport.create_group("g", ">", ack_timeout=3600)
    await store.transport.publish("a", 1)
    async with store.transaction() as tx:
        delivery = await tx.transport.fetch("g")
        assert delivery is not None
        await tx.cells.set("sum", delivery.message.payload)
        assert await delivery.ack() is True
    assert await store.cells.get("sum") == 1
    assert (await store.transport.status("g")).delivered == 0


@TRANSPORT
async def test_one_reader_at_a_time(world: World) -> None:
    await world.store.transport.create_group("g", "a")
    async with world.store.transport.consumer("g") as consumer:
        outcomes = await world.colour.together([consumer.next(0.5), consumer.next(0.5)])
        kinds = {type(outcome) for outcome in outcomes}
        assert kinds == {type(None), InvalidState}


@TRANSPORT
@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a:b", 5, "x" * 1025]
)
async def test_bad_subjects_are_refused(world: World, subject: Any) -> None:  # noqa: ANN401 - on purpose
    with pytest.raises(InvalidArgument):
        await world.store.transport.publish(subject, 1)


@TRANSPORT
@pytest.mark.parametrize(
    "pattern", ["", "a.", ">.a", "a.>.b", "a*", "a b", [], [5], "a.b>", 5, b"a"]
)
async def test_bad_patterns_are_refused(world: World, pattern: Any) -> None:  # noqa: ANN401 - on purpose
    with pytest.raises(InvalidArgument):
        await world.store.transport.create_group("g", pattern)


@TRANSPORT
@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", 5, b"x", "x" * 1025])
async def test_bad_names_of_messages_and_consumers_are_refused(
    world: World, bad: Any  # noqa: ANN401 - on purpose
) -> None:  # fmt: skip
    transport = world.store.transport
    await transport.create_group("g", "a")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: transport.publish("a", 1, message_id=bad),
        lambda: transport.publish("a", 1, trace_id=bad),
        lambda: transport.create_group(bad, "a"),
        lambda: transport.consumer("g", name=bad).next(0),
        lambda: transport.delete_group(bad),
        lambda: transport.status(bad),
    ]
    if bad:  # who fetches needs no name
        calls.append(lambda: transport.fetch("g", consumer=bad))
    for call in calls:
        with pytest.raises(InvalidArgument):
            await call()
    assert await transport.fetch("g") is None


@TRANSPORT
@pytest.mark.parametrize(
    "settings",
    [
        {"ack_timeout": 0},
        {"ack_timeout": -1},
        {"max_deliveries": 0},
        {"max_deliveries": True},
        {"max_deliveries": 1.5},
    ],
)
async def test_bad_settings_of_a_group_are_refused(world: World, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        await world.store.transport.create_group("g", "a", **settings)


@TRANSPORT
async def test_oversize_messages_are_refused_with_a_hint(world: World) -> None:
    store = await world.open_fresh(StoreConfig(payload_max_bytes=1000))
    with pytest.raises(InvalidArgument, match="claim check"):
        await store.transport.publish("a", "x" * 1001)

"""A connection cut at every byte of a call's answer, and of its request: one effect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import AsyncStore
from holdfast.aio.transport import AsyncDelivery
from holdfast.testing.proxy import Direction, FaultProxy
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Colour
from tests.faults.cut_calls import OPERATIONS, Target

BASE = "cut:{default}"
DIRECTIONS: tuple[Direction, ...] = ("to_server", "to_client")
# A request is long, and all of its bytes are alike: the server waits for the last one.
REQUEST_CUTS = 12

Count = Callable[[Any], int]


def _whole(events: int, of_a_call: int) -> int:
    """How many calls they are of."""
    assert events % of_a_call == 0, "half of a call"
    return events // of_a_call


# What rises by one with each effect.
EFFECTS: dict[str, Count] = {
    **dict.fromkeys(
        ("set", "cas", "delete"), lambda client: int(client.get(f"{BASE}:commit") or 0)
    ),
    **dict.fromkeys(
        ("put", "swap", "remove"),
        lambda client: int((client.hget(f"{BASE}:log", "n") or b"0").rstrip(b"!")),
    ),
    "publish": lambda client: int(client.xlen(f"{BASE}:messages")),
    "append": lambda client: _whole(client.xlen(f"{BASE}:events"), 3),
    "ack": lambda client: -int(client.zcard(f"{BASE}:d:group")),
}


async def _deliver(store: AsyncStore) -> AsyncDelivery | None:
    # Without a consumer, whose connection for wake-ups would meet the cuts.
    await store.transport.create_group("group", ">")
    await store.transport.publish("subject", 1)
    return await store.transport.fetch("group")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer({"appendfsync": "no"}) as server:
        yield server


@pytest.mark.parametrize("scripts", ["known", "forgotten"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_one_cut_anywhere_is_mended_by_the_store(
    server: ValkeyServer, colour: Colour, name: str, scripts: str
) -> None:
    operation, effects = OPERATIONS[name], EFFECTS[name]
    targets = iter(range(1_000_000))
    url = server.url(prefix="cut", durability="standard")

    async def trials(proxy: FaultProxy, client: Any) -> None:  # noqa: ANN401 - redis-py's
        direct = await colour.open(url, "default", None)
        store = await colour.open(proxy.through(url), "default", None)

        async def trial(direction: Direction, cut_at: int | None) -> int:
            """How many bytes passed."""
            chosen = f"{name}-{next(targets):04}"
            held = await (_deliver(store) if name == "ack" else operation.prepare(direct, chosen))
            await store.cells.get("any")  # on a live connection
            if scripts == "forgotten":
                client.script_flush()
            before, passed = effects(client), getattr(proxy.counts, direction)
            if cut_at is not None:
                proxy.cut_after(**{direction: cut_at})
            answer = await operation.call(store, Target(chosen, held), None)
            assert answer == operation.answer, (direction, cut_at)
            passed = getattr(proxy.counts, direction) - passed
            proxy.heal()
            assert effects(client) == before + 1, (direction, cut_at)
            return int(passed)

        try:
            for direction in DIRECTIONS:
                await trial(direction, None)
                total = await trial(direction, None)
                if direction == "to_server":
                    step = total // REQUEST_CUTS
                else:  # to be told first that the script is not known makes a long answer
                    step = 1 if scripts == "known" else 4
                cuts = proxy.counts.cuts
                for cut_at in (*range(0, total, step), total):
                    await trial(direction, cut_at)
                assert proxy.counts.cuts - cuts >= total // step, "void: cuts missed the calls"
        finally:
            await store.close()
            await direct.close()

    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        contextlib.closing(server.client()) as client,
        client.pubsub() as somebody,
    ):
        client.flushall()
        somebody.subscribe("cut:changes")  # so that each call ends with a hint
        assert somebody.get_message(timeout=10)["type"] == "subscribe"
        colour.run(trials(proxy, client))

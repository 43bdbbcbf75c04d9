"""A server that restarts under load, is slow, or asks for another password: then it works again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Record
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Colour
from tests.redis.counting import Counting

CALLERS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def test_writers_through_restarts_and_kills_lose_and_double_nothing(
    server: ValkeyServer, colour: Colour
) -> None:
    counting = Counting()
    url = server.fresh_url()
    with counting.going_on(colour, url, "default"):
        for _ in range(2):
            counting.wait_for_more()
            server.restart()
            counting.wait_for_more()
            server.kill()
            server.start()
        counting.wait_for_more()
    assert counting.errors != [], "void: nobody noticed"
    with holdfast.open(url) as store:
        found = {key: int(record.fields["n"]) for key, record in store.records.scan()}
    assert found == counting.acknowledged


def test_a_slow_server_is_waited_for(server: ValkeyServer) -> None:
    async def work(proxy: FaultProxy) -> None:
        async with holdfast.open_async(proxy.through(server.fresh_url())) as store:
            proxy.delay(0.05)
            versions = await asyncio.gather(*(store.cells.set("c", n) for n in range(CALLERS)))
            assert sorted(versions) == list(range(1, CALLERS + 1))
            puts = [store.records.put(f"k{n}", {"x": n}) for n in range(CALLERS)]
            await asyncio.gather(*puts)
            assert len([key async for key, _ in store.records.scan()]) == CALLERS

    with FaultProxy("127.0.0.1", server.port) as proxy:
        asyncio.run(work(proxy))


def test_what_is_too_slow_is_a_timeout_and_a_repeat_has_one_effect(
    server: ValkeyServer, colour: Colour
) -> None:
    async def work(proxy: FaultProxy) -> None:
        url = proxy.through(server.fresh_url(call_timeout="0.2"))
        store = await colour.open(url, "default", None)
        try:
            await store.records.put("a", {"n": 0})
            op = uuid4()
            proxy.delay(0.5)
            with pytest.raises(holdfast.Timeout, match="call_timeout") as caught:
                await store.records.compare_and_swap("a", "n", 0, 1, op_id=op)
            assert caught.value.outcome_unknown
            assert caught.value.retryable
            proxy.delay(0)
            assert await store.records.compare_and_swap("a", "n", 0, 1, op_id=op) is True
            assert await store.records.get("a") == Record({"n": b"1"})
        finally:
            await store.close()

    with FaultProxy("127.0.0.1", server.port) as proxy:
        colour.run(work(proxy))


@pytest.mark.parametrize("first", ["", "first"])
def test_a_password_that_was_changed_is_unauthorized_until_it_is_right_again(
    server: ValkeyServer, colour: Colour, first: str
) -> None:
    url = server.fresh_url().replace("//", f"//:{first}@" if first else "//")

    async def work(client: Any) -> None:  # noqa: ANN401 - redis-py's
        store = await colour.open(url, "default", None)
        try:
            await store.records.put("a", {"n": 0})
            client.config_set("requirepass", "another")
            client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
            for call in (
                store.records.put("a", {"n": 1}),
                store.records.get("a"),
                store.transport.publish("subject", 1),
            ):
                with pytest.raises(holdfast.Unauthorized):
                    await call
            client.config_set("requirepass", first)
            assert await store.records.get("a") == Record({"n": b"0"})
            await store.records.put("a", {"n": 2})
        finally:
            await store.close()

    with contextlib.closing(server.client()) as client:
        client.config_set("requirepass", first)
        try:
            colour.run(work(client))
        finally:
            client.config_set("requirepass", "")

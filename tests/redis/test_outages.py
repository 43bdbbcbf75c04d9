"""A server that restarts under load, is slow, or asks for another password: then it works again.

A tenth of HOLDFAST_KILLS is how often it is killed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Record
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.valkey import ValkeyServer
from holdfast.testing.world import Colour
from tests.faults.slow import slow_server, too_slow_server
from tests.redis.counting import Counting

KILLS = int(os.environ.get("HOLDFAST_KILLS", "0"))


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


def test_writers_through_restarts_and_kills_lose_and_double_nothing(
    server: ValkeyServer, colour: Colour, capfd: pytest.CaptureFixture[str]
) -> None:
    counting = Counting()
    url = server.fresh_url()
    kills = KILLS // 20 or 2
    with counting.going_on(colour, url, "default"):
        for number in range(kills):
            counting.wait_for_more()
            server.restart()
            counting.wait_for_more()
            server.kill()
            server.start()
            if KILLS:
                with capfd.disabled():
                    sys.stderr.write(f"\rredis: {number + 1} of {kills} kills ")
        counting.wait_for_more()
    assert counting.errors != [], "void: nobody noticed"
    with holdfast.open(url) as store:
        found = {key: int(record.fields["n"]) for key, record in store.records.scan()}
    assert found == counting.acknowledged


def test_a_slow_server_is_waited_for(server: ValkeyServer, colour: Colour) -> None:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        colour.run(slow_server(colour, proxy, server.fresh_url()))


def test_what_is_too_slow_is_a_timeout_and_a_repeat_has_one_effect(
    server: ValkeyServer, colour: Colour
) -> None:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        colour.run(too_slow_server(colour, proxy, server.fresh_url(call_timeout="1")))


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

"""A server that takes its time."""

from __future__ import annotations

from holdfast.testing.nats import NatsServer
from holdfast.testing.ports import ADDRESS
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.world import Colour
from tests.faults.slow import slow_server, too_slow_server


def test_a_slow_server_is_waited_for(server: NatsServer, colour: Colour) -> None:
    with FaultProxy(ADDRESS, server.port) as proxy:
        colour.run(slow_server(colour, proxy, server.fresh_url()))


def test_what_is_too_slow_is_a_timeout_and_a_repeat_has_one_effect(
    server: NatsServer, colour: Colour
) -> None:
    with FaultProxy(ADDRESS, server.port) as proxy:
        colour.run(too_slow_server(colour, proxy, server.fresh_url(call_timeout="1")))

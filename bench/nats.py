"""The NATS that the contenders share: a server of its own for every run, synced before it answers.

The server is a Go program, which no preloaded library reaches: its syncs have the disk's
length and are not counted.
"""

import json
import socket
from dataclasses import dataclass

from bench.counters import Counters
from bench.meter import Sources
from holdfast.testing.nats import NatsServer


@dataclass(slots=True)
class Server:
    """See bench.servers.Server."""

    _nats: NatsServer | None = None
    counts_when_closed: bool = False

    def fresh_databases(self, names: list[str]) -> dict[str, str]:
        """A new server, with a bucket for each."""
        self._nats = NatsServer({"jetstream": {"sync_interval": "always"}})
        self._nats.start()
        return {name: self._nats.url(bucket=name) for name in names}

    def drop_databases(self, urls: list[str]) -> None:
        """End the server."""
        del urls
        if self._nats is not None:
            self._nats.stop()
            self._nats = None

    def through_relay(self, url: str) -> str:
        """The same: messages are not counted."""
        return url

    def sources(self, own: Counters | None, *, counting: bool) -> Sources:
        """CPU time."""
        del counting, own  # a contender syncs nothing itself
        assert self._nats is not None
        return Sources(postmaster_pid=self._nats.pid)

    def version(self) -> str:
        """What the server says it is."""
        with NatsServer() as server:
            host, _, port = server.address.partition(":")
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                greeting = connection.makefile("rb").readline()
        return str(json.loads(greeting.removeprefix(b"INFO "))["version"])

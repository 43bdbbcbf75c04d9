"""The Valkey that the contenders share: what is acknowledged is on the disk.

Every run has a server of its own: the log of the run before is not there to be rewritten.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.counters import Counters
from bench.meter import Sources
from bench.preload import Shim
from bench.servers import count_into, environment
from holdfast.testing.valkey import ValkeyServer


@dataclass(slots=True)
class Server:
    """See bench.servers.Server. `folder` is where the counters are."""

    folder: Path
    shim: Shim | None
    _valkey: ValkeyServer | None = None
    _counters: Counters | None = None
    counts_when_closed: bool = False

    def fresh_databases(self, names: list[str]) -> dict[str, str]:
        """A new server, with a numbered database for each."""
        self._counters, variables = count_into(self.folder / "valkey.counters", self.shim)
        self._valkey = ValkeyServer({"appendfsync": "always"})
        with environment(variables):
            self._valkey.start()
        base = self._valkey.url().removesuffix("/0")
        return {name: f"{base}/{number}" for number, name in enumerate(names)}

    def drop_databases(self, urls: list[str]) -> None:
        """End the server."""
        del urls
        if self._valkey is not None:
            self._valkey.stop()
            self._valkey = None

    def through_relay(self, url: str) -> str:
        """The same: commands are not counted."""
        return url

    def sources(self, own: Counters | None, *, counting: bool) -> Sources:
        """Syncs and CPU time."""
        del counting
        assert self._valkey is not None
        return Sources(
            own_counters=None if own is None else str(own.path),
            server_counters=None if self._counters is None else str(self._counters.path),
            postmaster_pid=self._valkey.pid,
        )

    def version(self) -> str:
        """What the server says it is."""
        with ValkeyServer() as server:
            client = server.client()
            try:
                return f"valkey {client.info('server')['valkey_version']}"
            finally:
                client.close()

"""The PostgreSQL that the contenders share: version 18, fsync on.

Its own defaults, but for two: see below.

Every run gets a new database. For a run that counts, its URL goes through the relay.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from bench.counters import Counters
from bench.meter import Sources
from bench.preload import Shim
from bench.relay import CountingRelay
from bench.servers import count_into, environment
from holdfast.testing.servers import PostgresServer

_SETTINGS: Final = {
    # Room for a pool of 32, for 32 threads and for the connections of the run before.
    "max_connections": "200",
    # It syncs five times a second what no commit waits for: a sync that nobody's operation costs.
    "wal_writer_delay": "10s",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, the relay in front of it, and the shim's counts if it has one."""

    postgres: PostgresServer
    relay: CountingRelay
    counters: Counters | None

    @property
    def counts_when_closed(self) -> bool:
        """Whether the server's own count of syncs must do."""
        return self.counters is None

    def fresh_databases(self, names: list[str]) -> dict[str, str]:
        """URLs of new databases; what earlier runs left unwritten is on the disk by then."""
        urls = {name: self.postgres.create_database() for name in names}
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        return urls

    def drop_databases(self, urls: list[str]) -> None:
        """Remove databases that `fresh_databases` made."""
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            for url in urls:
                name = urlsplit(url).path.lstrip("/")
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def through_relay(self, url: str) -> str:
        """The same database by way of the relay that counts."""
        return url.replace(f":{self.postgres.port}/", f":{self.relay.port}/")

    def sources(self, own: Counters | None, *, counting: bool) -> Sources:
        """Where a contender's process finds its figures."""
        return Sources(
            own_counters=None if own is None else str(own.path),
            server_counters=None if self.counters is None else str(self.counters.path),
            relay_counters=str(self.relay.counters.path) if counting else None,
            postmaster_pid=self.postgres.pid,
        )

    def version(self) -> str:
        """What the server says it is."""
        with psycopg.connect(self.postgres.url()) as connection:
            row = connection.execute("SHOW server_version").fetchone()
        assert row is not None
        return str(row[0])


@contextmanager
def running(folder: Path, shim: Shim | None) -> Iterator[Server]:
    """A server for as long as the block lasts, under the shim if there is one."""
    counters, variables = count_into(folder / "server.counters", shim)
    server = PostgresServer("18", settings=_SETTINGS)
    with environment(variables):
        server.start()
    try:
        relay = CountingRelay(server.port, Counters.create(folder / "relay.counters"))
        with relay:
            yield Server(server, relay, counters)
    finally:
        server.stop()

"""What the harness asks of a server that the contenders of an engine share."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.counters import Counters
from bench.meter import Sources
from bench.preload import Shim


class Server(Protocol):
    """A server, with a fresh place for every run."""

    @property
    def counts_when_closed(self) -> bool:
        """Whether its syncs are known only after connections are closed: see wal_syncs.py."""

    def fresh_databases(self, names: list[str]) -> dict[str, str]:
        """URLs of new, empty databases."""

    def drop_databases(self, urls: list[str]) -> None:
        """Remove all that `fresh_databases` made."""

    def through_relay(self, url: str) -> str:
        """The same database by way of what counts statements, if anything does."""

    def sources(self, own: Counters | None, *, counting: bool) -> Sources:
        """Where a contender's process finds its figures."""

    def version(self) -> str:
        """What the server says it is."""


def count_into(path: Path, shim: Shim | None) -> tuple[Counters | None, dict[str, str]]:
    """New counters, and the variables that put a server under the shim; none without one."""
    if shim is None:
        return None, {}
    counters = Counters.create(path)
    return counters, shim.environment(counters)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with these: a server is started with it, and nothing else."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]

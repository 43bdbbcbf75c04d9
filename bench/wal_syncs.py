"""PostgreSQL's own count of log syncs, for a server that does not run under the shim.

A backend hands in its last counts when it ends. So the count is taken when all connections
are closed again, and what opening and closing costs is measured alone and taken off.
"""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import psycopg

_GONE_SECS: Final = 30.0
_LEFT: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
_SYNCS: Final = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"


def syncs_of(admin_url: str, url: str, run: Callable[[], object]) -> int:
    """Log syncs from before `run`, which uses the database of `url`, until it is closed."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        before = _count(connection, _SYNCS)
        run()
        deadline = time.monotonic() + _GONE_SECS
        while _count(connection, _LEFT, urlsplit(url).path.lstrip("/")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"connections to {url} are still open after {_GONE_SECS:g} s")
            time.sleep(0.02)
        return _count(connection, _SYNCS) - before


def _count(connection: psycopg.Connection, query: str, *bindings: str) -> int:
    row = connection.execute(query.encode(), bindings).fetchone()
    assert row is not None
    return int(row[0])

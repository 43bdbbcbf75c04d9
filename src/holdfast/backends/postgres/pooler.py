"""Connections through a pooler in transaction mode, such as PgBouncer.

Each transaction may run in another session of the server, so a session can hold
nothing for us: no setting, no prepared statement. Settings travel with each
statement instead, in one message of the simple protocol:

    SET TRANSACTION …; SET LOCAL lock_timeout = 5000; …; SELECT hf.write_cell(…)

The server runs such a message as one transaction: one round trip, and nothing is
left in the session. In that protocol the client writes parameters as literals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from holdfast.backends.postgres.connection import (
    BEGIN_SNAPSHOT,
    AsyncConnection,
    BlockingConnection,
    bounded,
    idle_limit,
)
from holdfast.backends.postgres.errors import translate
from holdfast.backends.sql.db import Row
from holdfast.config import StoreConfig

_ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
_RAISE_DURABILITY = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply'); "
)


def limits(config: StoreConfig) -> str:
    """The statements that give a transaction what a session of its own would have."""
    statement_ms, lock_ms = (
        max(1, round(bounded(timeout) * 1000))
        for timeout in (config.statement_timeout, config.lock_timeout)
    )
    return (
        f"{_ISOLATION}"
        f"SET LOCAL statement_timeout = {statement_ms}; "
        f"SET LOCAL lock_timeout = {lock_ms}; "
        "SET LOCAL plan_cache_mode = force_generic_plan; "
    ) + (
        _RAISE_DURABILITY
        if config.durability == "always"
        else "SET LOCAL synchronous_commit = off; "
    )


class PooledBlocking(BlockingConnection):
    """Blocks the calling thread."""

    def __init__(self, raw: psycopg.Connection[Any], where: str, limits: str) -> None:
        super().__init__(raw, where)
        self._cursor = psycopg.ClientCursor(raw, row_factory=tuple_row)
        self._limits = self._usual_limits = limits

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        if self.in_transaction:
            return await super().fetch(query, params)
        try:
            return self._cursor.execute(self._limits + query, params).set_result(-1).fetchall()
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def begin(self, idle_secs: float, *, snapshot: bool = False) -> None:
        """See PgConnection."""
        await self.run(_beginning(self._limits, snapshot=snapshot) + idle_limit(idle_secs))

    async def limit_lock_wait(self, millis: int | None) -> None:
        """See PgConnection."""
        self._limits = _limited(self._usual_limits, millis)


class PooledAsync(AsyncConnection):
    """Awaits the event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], where: str, limits: str) -> None:
        super().__init__(raw, where)
        self._cursor = psycopg.AsyncClientCursor(raw, row_factory=tuple_row)
        self._limits = self._usual_limits = limits

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        if self.in_transaction:
            return await super().fetch(query, params)
        try:
            await self._cursor.execute(self._limits + query, params)
            await self._cursor.set_result(-1)
            return await self._cursor.fetchall()
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def begin(self, idle_secs: float, *, snapshot: bool = False) -> None:
        """See PgConnection."""
        await self.run(_beginning(self._limits, snapshot=snapshot) + idle_limit(idle_secs))

    async def limit_lock_wait(self, millis: int | None) -> None:
        """See PgConnection."""
        self._limits = _limited(self._usual_limits, millis)


def _beginning(limits: str, *, snapshot: bool) -> str:
    if snapshot:
        return f"{BEGIN_SNAPSHOT}; {limits.removeprefix(_ISOLATION)}"
    return f"BEGIN; {limits}"


def _limited(usual: str, millis: int | None) -> str:
    return f"{usual}SET LOCAL lock_timeout = {millis}; " if millis else usual

"""One psycopg connection behind the coroutine core's `fetch`, in both colours.

These take any connection of psycopg's, as one that was joined. The store's own have their
statements prepared, in `statements.py`; what a pooler between us and the server does to
settings and statements is in `pooler.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import psycopg
from psycopg import generators
from psycopg.abc import Params
from psycopg.rows import tuple_row

from holdfast.backends.postgres.arrays import teach_arrays
from holdfast.backends.postgres.driver import AsyncDriver, BlockingDriver
from holdfast.backends.postgres.errors import translate
from holdfast.backends.sql.db import Row
from holdfast.clock import Duration
from holdfast.config import seconds

_GRACE = 2.0
_IDLE_IN_TRANSACTION = 60
_LONGEST = 2_147_483.0  # seconds: the server counts milliseconds in 32 bits


class PgConnection(Protocol):
    """A connection of either colour."""

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """The rows of one statement, in one round trip."""

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """The rows of a statement, if it has any; without parameters it may be a script."""

    async def begin(self, idle_secs: float, *, snapshot: bool = False) -> None:
        """Begin a transaction, which the server ends when we leave it idle for so long.

        A `snapshot` only reads, and sees one moment.
        """

    async def limit_lock_wait(self, millis: int | None) -> None:
        """Wait so long for locks from now on; None: as long as the store's setting says."""

    def be_patient(self) -> None:
        """Wait for answers as long as they take from now on: for migrations."""

    async def abandon(self) -> None:
        """Free the connection of a caller that gave up in the middle."""

    async def close(self) -> None:
        """Free the connection."""

    def drop(self) -> None:
        """Free the connection without waiting for anything, from any thread."""

    @property
    def usable(self) -> bool:
        """True while nothing is in flight or half done on it."""

    @property
    def in_transaction(self) -> bool:
        """True from BEGIN to its end, whichever it is."""


# Read only: it takes no transaction id, so it holds up no feed.
BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def idle_limit(idle_secs: float) -> str:
    """The statement that ends the transaction at hand when it is left idle for so long."""
    return f"SET LOCAL idle_in_transaction_session_timeout = {max(1, round(idle_secs * 1000))}"


def bounded(duration: Duration) -> float:
    """The duration in seconds, 24 days at most: the server takes no longer one."""
    return min(seconds(duration), _LONGEST)


class BlockingConnection:
    """Blocks the calling thread."""

    def __init__(self, raw: psycopg.Connection[Any], where: str) -> None:
        self._raw = raw
        teach_arrays(raw)  # also if it is a caller's: nobody else has any
        # One for all: nothing is ever left half read.
        self._cursor = raw.cursor(binary=True, row_factory=tuple_row)
        self._where = where

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        try:
            return self._cursor.execute(query, params).fetchall()
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """See PgConnection."""
        try:
            cursor = self._raw.cursor(row_factory=tuple_row).execute(sql, params, prepare=False)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def begin(self, idle_secs: float, *, snapshot: bool = False) -> None:
        """See PgConnection."""
        await self.run(f"{BEGIN_SNAPSHOT if snapshot else 'BEGIN'}; {idle_limit(idle_secs)}")

    async def limit_lock_wait(self, millis: int | None) -> None:
        """See PgConnection."""
        await self.run(f"SET lock_timeout = {millis}" if millis else "RESET lock_timeout")

    def be_patient(self) -> None:
        """See PgConnection."""
        if isinstance(self._raw, BlockingDriver):
            self._raw.answer_timeout = None

    async def abandon(self) -> None:
        """Free the connection, once what it was doing is over.

        An interrupted thread may go on and write again, and that must come second. A server
        that does not answer is not waited for long.
        """
        if self._raw.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            with contextlib.suppress(psycopg.Error):
                self._raw.cancel_safe(timeout=_GRACE)
                self._raw.wait(generators.fetch_many(self._raw.pgconn), timeout=_GRACE)
        self._raw.close()

    async def close(self) -> None:
        """See PgConnection."""
        self._raw.close()

    def drop(self) -> None:
        """See PgConnection."""
        self._raw.pgconn.finish()

    @property
    def usable(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status == _IDLE

    @property
    def in_transaction(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status in _IN_TRANSACTION


class AsyncConnection:
    """Awaits the event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], where: str) -> None:
        self._raw = raw
        teach_arrays(raw)
        self._cursor = raw.cursor(binary=True, row_factory=tuple_row)
        self._where = where

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        try:
            await self._cursor.execute(query, params)
            return await self._cursor.fetchall()
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """See PgConnection."""
        try:
            cursor = self._raw.cursor(row_factory=tuple_row)
            await cursor.execute(sql, params, prepare=False)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def begin(self, idle_secs: float, *, snapshot: bool = False) -> None:
        """See PgConnection."""
        await self.run(f"{BEGIN_SNAPSHOT if snapshot else 'BEGIN'}; {idle_limit(idle_secs)}")

    async def limit_lock_wait(self, millis: int | None) -> None:
        """See PgConnection."""
        await self.run(f"SET lock_timeout = {millis}" if millis else "RESET lock_timeout")

    def be_patient(self) -> None:
        """See PgConnection."""
        if isinstance(self._raw, AsyncDriver):
            self._raw.answer_timeout = None

    async def abandon(self) -> None:
        """Free the connection at once.

        Who is cancelled was reading, or the loop ends: a flush goes on without its callers.
        """
        await self._raw.close()

    async def close(self) -> None:
        """See PgConnection."""
        await self._raw.close()

    def drop(self) -> None:
        """See PgConnection."""
        self._raw.pgconn.finish()

    @property
    def usable(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status == _IDLE

    @property
    def in_transaction(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status in _IN_TRANSACTION


_IDLE = psycopg.pq.TransactionStatus.IDLE  # a closed connection's status is UNKNOWN
_IN_TRANSACTION = {
    psycopg.pq.TransactionStatus.INTRANS,
    psycopg.pq.TransactionStatus.INERROR,
}

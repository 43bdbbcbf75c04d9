"""One psycopg connection behind the coroutine core's `fetch`, in both colours.

The server enforces `statement_timeout`. A server that has vanished enforces
nothing, so the client waits a little longer than that and then gives the
connection up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import generators, waiting
from psycopg.abc import Params, PQGen
from psycopg.rows import tuple_row

from holdfast.backends.postgres.errors import translate, translate_connect
from holdfast.backends.sql.db import Row
from holdfast.clock import Duration
from holdfast.config import StoreConfig, seconds
from holdfast.errors import InvalidArgument, StoreError, Unavailable
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime
from holdfast.url import without_password

RV = TypeVar("RV")
_GRACE = 2.0
_IDLE_IN_TRANSACTION = 60
_LONGEST = 2_147_483.0  # seconds: the server counts milliseconds in 32 bits


# Not as a startup option: that would lower a server that waits for its replicas to apply.
_AT_LEAST_ON = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
"""


class PgConnection(Protocol):
    """A connection of either colour."""

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """The rows of one statement, in one round trip."""

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """The rows of a statement, if it has any; without parameters it may be a script."""

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


class Connector:
    """Makes connections with this store's settings."""

    def __init__(self, url: str, config: StoreConfig, runtime: Runtime) -> None:
        self.where = f"PostgreSQL {without_password(url)}"
        self._blocking = isinstance(runtime, BlockingRuntime)
        self._durable = config.durability == "always"
        self._answer_timeout = bounded(config.statement_timeout) + _GRACE
        if "\0" in url:
            raise InvalidArgument(f"{self.where}: a URL with a NUL, where libpq would end it")
        try:
            self._conninfo = psycopg.conninfo.make_conninfo(url, **_settings(url, config))
        except (psycopg.Error, UnicodeError):
            # From None: libpq quotes what it could not read, and that may be the password.
            raise InvalidArgument(
                f"{self.where}: libpq cannot read this URL; {_advice(url)}"
            ) from None

    async def connect(self) -> PgConnection:
        """A new connection, or the reason why there is none."""
        connection = await self._connect()
        try:
            if self._durable:
                await connection.run(_AT_LEAST_ON)
        except BaseException as exc:
            await connection.close()
            if isinstance(exc, StoreError):
                exc.outcome_unknown = False  # nothing of the caller's was sent
            raise
        return connection

    async def _connect(self) -> PgConnection:
        try:
            if self._blocking:
                blocking = _Blocking.connect(self._conninfo, autocommit=True, prepare_threshold=0)
                blocking.answer_timeout = self._answer_timeout
                return BlockingConnection(blocking, self.where)
            connection = await _Async.connect(self._conninfo, autocommit=True, prepare_threshold=0)
        except psycopg.Error as exc:
            raise translate_connect(exc, self.where) from exc
        except UnicodeError:  # from Python's own look at the host
            raise InvalidArgument(f"{self.where}: the host cannot be a name in the DNS") from None
        except OSError as exc:  # such as too many open files
            raise Unavailable(f"{self.where}: {exc.strerror}") from exc
        connection.answer_timeout = self._answer_timeout
        return AsyncConnection(connection, self.where)


def bounded(duration: Duration) -> float:
    """The duration in seconds, 24 days at most: the server takes no longer one."""
    return min(seconds(duration), _LONGEST)


class BlockingConnection:
    """Blocks the calling thread."""

    def __init__(self, raw: psycopg.Connection[Any], where: str) -> None:
        self._raw = raw
        self._cursor = raw.cursor(
            binary=True, row_factory=tuple_row
        )  # one for all: nothing is ever left half read
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

    def be_patient(self) -> None:
        """See PgConnection."""
        if isinstance(self._raw, _Blocking):
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
        return _usable(self._raw)

    @property
    def in_transaction(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status in _IN_TRANSACTION


class AsyncConnection:
    """Awaits the event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], where: str) -> None:
        self._raw = raw
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

    def be_patient(self) -> None:
        """See PgConnection."""
        if isinstance(self._raw, _Async):
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
        return _usable(self._raw)

    @property
    def in_transaction(self) -> bool:
        """See PgConnection."""
        return self._raw.pgconn.transaction_status in _IN_TRANSACTION


# psycopg's own `wait` asks the server to cancel the statement of whoever is cancelled or
# interrupted, 10 s long when it does not answer. What we do instead is `abandon`.


class _Blocking(psycopg.Connection[Any]):
    answer_timeout: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        timeout = timeout or self.answer_timeout
        return waiting.wait(gen, self.pgconn.socket, interval=interval, timeout=timeout)

    def __del__(self, *_: object) -> None:
        """Go without psycopg's warning: after an interrupt nobody may be left to close it."""


class _Async(psycopg.AsyncConnection[Any]):
    answer_timeout: float | None = None

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's signature
    ) -> RV:
        timeout = timeout or self.answer_timeout
        return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)


_IN_TRANSACTION = {
    psycopg.pq.TransactionStatus.INTRANS,
    psycopg.pq.TransactionStatus.INERROR,
}


def _usable(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # A closed connection's status is UNKNOWN.
    return raw.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE


def _advice(url: str) -> str:
    """What may be wrong with a URL; names an option only if it cannot be a piece of a password."""
    options = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    # With an unescaped ? or & in it, the rest of a password looks like an option.
    hidden = any("password" in name or "@" in name + value for name, value in options)
    unknown = [name for name, _ in options if name not in known]
    if unknown and not hidden:
        return f"unknown option {unknown[0]!r}"
    return (
        "special characters in a user or password are written as %XX, and options must be "
        "libpq's or the store's"
    )


def _settings(url: str, config: StoreConfig) -> dict[str, Any]:
    """Session settings go in with the connection itself: no statement, no extra round trip."""
    server = {
        # At least 1: to the server, 0 milliseconds are no limit at all.
        "statement_timeout": max(1, round(bounded(config.statement_timeout) * 1000)),
        "lock_timeout": max(1, round(bounded(config.lock_timeout) * 1000)),
        "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION * 1000,
        # What our functions are written for, whatever the database's own default is.
        "default_transaction_isolation": "read\\ committed",
        # Our queries have one good plan each. Left alone, the server plans those that take
        # arrays anew for every call, which took longer than running them.
        "plan_cache_mode": "force_generic_plan",
    }
    if config.durability != "always":
        server["synchronous_commit"] = "off"
    given = psycopg.conninfo.conninfo_to_dict(url)
    options = [str(given["options"])] if given.get("options") else []
    options += [f"-c {name}={value}" for name, value in server.items()]
    return {
        "options": " ".join(options),
        "connect_timeout": max(1, round(bounded(config.connect_timeout))),
        "fallback_application_name": "holdfast",
        "client_encoding": "UTF8",
    }

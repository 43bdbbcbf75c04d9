"""How a store connects: the URL, the session's settings, and whether a pooler is in between.

Settings go in with the connection itself: no statement, no extra round trip. A
pooler such as PgBouncer refuses or drops them. It also has to hand out process
ids of its own, so one statement on each new connection tells: the server knows
its process id, libpq was told one, and only a pooler makes the two differ. From
then on this store's connections are made for a pooler; see `pooler.py`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg

from holdfast.backends.postgres.connection import PgConnection, bounded
from holdfast.backends.postgres.driver import AsyncDriver, BlockingDriver
from holdfast.backends.postgres.errors import translate_connect
from holdfast.backends.postgres.pooler import PooledAsync, PooledBlocking, limits
from holdfast.backends.postgres.statements import PreparedAsync, PreparedBlocking
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument, StoreError, Unavailable
from holdfast.runtime import Runtime
from holdfast.runtime.blocking import BlockingRuntime
from holdfast.url import redacted

IDLE_IN_TRANSACTION = 60.0
"""Seconds after which the server ends a transaction that we forgot."""

_GRACE = 2.0
_REFUSAL = "unsupported startup parameter"  # PgBouncer's words for settings in the connection

# synchronous_commit is no startup option: that would lower a server that waits for its replicas
# to apply. Behind a pooler nothing is set: it would stay with the server's next client.
_LOOK = "SELECT pg_backend_pid() = {pid}"
_LOOK_AND_RAISE = (
    _LOOK
    + """, CASE
    WHEN pg_backend_pid() = {pid}
     AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
    THEN set_config('synchronous_commit', 'on', false)
END"""
)


class Connector:
    """Makes connections with this store's settings."""

    def __init__(self, url: str, config: StoreConfig, runtime: Runtime) -> None:
        self.where = f"PostgreSQL {redacted(url)}"
        self._blocking = isinstance(runtime, BlockingRuntime)
        self._look = _LOOK_AND_RAISE if config.durability == "always" else _LOOK
        self._answer_timeout = bounded(config.statement_timeout) + _GRACE
        self._limits = limits(config)
        self._pooled = False
        if "\0" in url:
            raise InvalidArgument(f"{self.where}: a URL with a NUL, where libpq would end it")
        try:
            direct = _parameters(config) | {"options": _options(url, config)}
            self._direct = psycopg.conninfo.make_conninfo(url, **direct)
            self._bare = psycopg.conninfo.make_conninfo(url, **_parameters(config))
        except (psycopg.Error, UnicodeError):
            # From None: libpq quotes what it could not read, and that may be the password.
            raise InvalidArgument(
                f"{self.where}: libpq cannot read this URL; {_advice(url)}"
            ) from None
        self._aside = _checked_listen_url(config)

    async def connect(self) -> PgConnection:
        """A new connection, or the reason why there is none."""
        raw = await self._connect()
        connection = self._wrapped(raw)
        if self._pooled:
            return connection
        try:
            ((direct, *_),) = await connection.run(self._look.format(pid=raw.pgconn.backend_pid))
        except BaseException as exc:
            await connection.close()
            if isinstance(exc, StoreError):
                exc.outcome_unknown = False  # nothing of the caller's was sent
            raise
        if not direct:
            self._pooled = True
            connection = self._wrapped(raw)
        return connection

    @property
    def can_listen(self) -> bool:
        """False when there is only a pooler to listen at, which forgets who listens."""
        return self._aside is not None or not self._pooled

    def connect_aside(self) -> psycopg.Connection[Any]:
        """A connection for wake-ups, which a thread of its own blocks on in either colour."""
        conninfo = self._aside or (self._bare if self._pooled else self._direct)
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)

    async def _connect(self) -> BlockingDriver | AsyncDriver:
        try:
            return await self._connect_to(self._bare if self._pooled else self._direct)
        except psycopg.Error as exc:
            if self._pooled or _REFUSAL not in str(exc):
                raise translate_connect(exc, self.where) from exc
        except UnicodeError:  # from Python's own look at the host
            raise InvalidArgument(f"{self.where}: the host cannot be a name in the DNS") from None
        except OSError as exc:  # such as too many open files
            raise Unavailable(f"{self.where}: {exc.strerror}") from exc
        self._pooled = True
        return await self._connect()

    async def _connect_to(self, conninfo: str) -> BlockingDriver | AsyncDriver:
        raw: BlockingDriver | AsyncDriver
        if self._blocking:
            raw = BlockingDriver.connect(conninfo, autocommit=True, prepare_threshold=None)
        else:
            raw = await AsyncDriver.connect(conninfo, autocommit=True, prepare_threshold=None)
        raw.answer_timeout = self._answer_timeout
        return raw

    def _wrapped(self, raw: BlockingDriver | AsyncDriver) -> PgConnection:
        if isinstance(raw, BlockingDriver):
            if self._pooled:
                return PooledBlocking(raw, self.where, self._limits)
            return PreparedBlocking(raw, self.where)
        if self._pooled:
            return PooledAsync(raw, self.where, self._limits)
        return PreparedAsync(raw, self.where)


def _checked_listen_url(config: StoreConfig) -> str | None:
    url = config.listen_url
    if url is None:
        return None
    try:
        return psycopg.conninfo.make_conninfo(url, **_parameters(config))
    except (psycopg.Error, UnicodeError):
        raise InvalidArgument(f"listen_url: libpq cannot read this URL; {_advice(url)}") from None


def _parameters(config: StoreConfig) -> dict[str, Any]:
    """What goes in with the connection, also through a pooler."""
    return {
        "connect_timeout": max(1, round(bounded(config.connect_timeout))),
        "fallback_application_name": "holdfast",
        "client_encoding": "UTF8",
    }


def _options(url: str, config: StoreConfig) -> str:
    """The session's settings, behind those of the URL."""
    server = {
        # At least 1: to the server, 0 milliseconds are no limit at all.
        "statement_timeout": max(1, round(bounded(config.statement_timeout) * 1000)),
        "lock_timeout": max(1, round(bounded(config.lock_timeout) * 1000)),
        "idle_in_transaction_session_timeout": round(IDLE_IN_TRANSACTION * 1000),
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
    return " ".join(options + [f"-c {name}={value}" for name, value in server.items()])


def _advice(url: str) -> str:
    """What may be wrong with a URL; names an option only if it cannot be a piece of a password."""
    query = urlsplit(url).query
    options = parse_qsl(query, keep_blank_values=True)
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    # With an unescaped ? or & in it, the rest of a password looks like an option.
    hidden = any("password" in name or "@" in name + value for name, value in options) or any(
        "=" not in option for option in query.split("&")
    )
    unknown = [name for name, _ in options if name not in known]
    if unknown and not hidden:
        return f"unknown option {unknown[0]!r}"
    return (
        "special characters in a user or password are written as %XX, and options must be "
        "libpq's or the store's"
    )

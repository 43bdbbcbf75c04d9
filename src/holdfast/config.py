"""What a store can be told when it is opened.

Every field is also a query parameter of the URL, which wins over the config:
`sqlite:///app.db?durability=standard`. Durations are seconds. One config may serve stores on
several engines, each of which takes what is its own; a URL has no settings of another engine.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from holdfast.clock import Duration, duration_us
from holdfast.errors import InvalidArgument

Durability = Literal["always", "standard", "cache"]
Commit = Literal["inline", "thread"]
Locking = Literal["normal", "exclusive"]
History = Literal["all"] | int | timedelta

_OF_SERVERS = frozenset({"pool_size", "connect_timeout", "poll_interval"})
ENGINE_SETTINGS = {
    "sqlite": frozenset({"commit", "busy_timeout", "checkpoint_pages", "locking", "vfs"}),
    "postgres": frozenset(
        {
            "schema",
            "statement_timeout",
            "lock_timeout",
            "listen_url",
        }
    )
    | _OF_SERVERS,
    "redis": frozenset({"prefix", "wait_replicas", "call_timeout"}) | _OF_SERVERS,
    "nats": frozenset({"bucket", "replicas", "call_timeout"}) | _OF_SERVERS,
}
"""The settings that only some engines have; all others are everybody's."""

MIB = 1024 * 1024
_MOST_BITS = 64
_MOST_PAGES = 2**31 - 1  # SQLite's own integers
_MOST_CONNECTIONS = 10_000
_POSTGRES_URL = re.compile(r"(?i:postgres(ql)?)://[^\x00-\x20\x7f\ud800-\udfff]+")
_MOST_REPLICAS = 5  # of a JetStream stream
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one store; the defaults are meant for production.

    `durability`: "always" survives power loss, "standard" may lose the last moments to
    it but stays intact, "cache" promises nothing after power loss. None loses anything
    when only the process that uses the store dies.
    `history`: "all", the number of newest versions kept of each cell, or a timedelta.
    """

    # All engines
    durability: Durability = "always"
    migrate: bool = True
    payload_warn_bytes: int = MIB
    payload_max_bytes: int = 2 * MIB
    history: History = "all"
    # SQLite
    commit: Commit = "inline"
    busy_timeout: Duration = 5.0
    checkpoint_pages: int = 4000  # 16 MiB of log; at 1,000 checkpoints were 2 % of all syncs
    locking: Locking = "normal"
    vfs: str | None = None
    # PostgreSQL, Redis and NATS
    pool_size: int = 8
    connect_timeout: Duration = 10.0
    poll_interval: Duration = 0.25  # of a watch that cannot be woken by other processes
    # PostgreSQL
    schema: str = "holdfast"
    statement_timeout: Duration = 30.0
    lock_timeout: Duration = 5.0
    listen_url: str | None = None
    # Redis and NATS
    call_timeout: Duration = 10.0  # how long a server may take to answer
    # Redis
    prefix: str = "holdfast"  # of every key
    wait_replicas: int = 0  # that must have a write before it is acknowledged
    # NATS
    bucket: str = "holdfast"  # with which the names of streams begin
    replicas: int = 1  # of a stream that the store creates

    def __post_init__(self) -> None:
        """Refuse what can never work, before anything is opened."""
        _one_of("durability", self.durability, get_args(Durability))
        _one_of("commit", self.commit, get_args(Commit))
        _one_of("locking", self.locking, get_args(Locking))
        if not isinstance(self.migrate, bool):
            raise InvalidArgument(f"migrate: wanted True or False, found {_shown(self.migrate)}")
        _positive("payload_warn_bytes", self.payload_warn_bytes)
        _positive("payload_max_bytes", self.payload_max_bytes)
        _positive("checkpoint_pages", self.checkpoint_pages, most=_MOST_PAGES)
        _positive("pool_size", self.pool_size, most=_MOST_CONNECTIONS)
        for name in (
            "busy_timeout",
            "connect_timeout",
            "statement_timeout",
            "lock_timeout",
            "poll_interval",
            "call_timeout",
        ):
            _timeout(name, getattr(self, name))
        if self.vfs is not None:
            _vfs(self.vfs)
        if self.listen_url is not None:
            _postgres_url("listen_url", self.listen_url)
        if isinstance(self.history, timedelta):
            _positive("history", duration_us(self.history, name="history"))
        elif self.history != "all":
            _positive("history", self.history)
        _word("prefix", self.prefix)
        _word("bucket", self.bucket)
        _positive("replicas", self.replicas, most=_MOST_REPLICAS)
        _positive("wait_replicas", self.wait_replicas, least=0, most=_MOST_CONNECTIONS)
        if not isinstance(self.schema, str) or not _SCHEMA.fullmatch(self.schema):
            raise InvalidArgument(
                f"schema {_shown(self.schema)}: wanted lower-case letters, digits and _, at most 63"
            )
        if self.commit == "thread" and self.locking == "exclusive":
            raise InvalidArgument("commit=thread needs locking=normal: exclusive is one connection")

    def __repr__(self) -> str:
        """What differs from the defaults, without the password that `listen_url` may hold."""
        changed = [
            f"{name}={'…' if name == 'listen_url' else repr(getattr(self, name))}"
            for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
            if getattr(self, name) != default
        ]
        return f"StoreConfig({', '.join(changed)})"


def seconds(duration: Duration) -> float:
    """The duration as seconds, for drivers that want a float."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _shown(value: object) -> str:
    # Python refuses to write out very long numbers.
    huge = isinstance(value, int) and value.bit_length() > _MOST_BITS
    return "a number beyond 64 bits" if huge else repr(value)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{name}: wanted one of {', '.join(allowed)}, found {_shown(value)}")


def _positive(name: str, value: object, *, least: int = 1, most: int = 2**63 - 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        wanted = "above zero" if least else "from zero up"
        raise InvalidArgument(f"{name}: wanted a whole number {wanted}, found {_shown(value)}")
    if value > most:
        raise InvalidArgument(f"{name}: at most {most}")


def _vfs(name: object) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidArgument(f"vfs: wanted the name of a VFS, found {_shown(name)}")


def _word(name: str, value: object) -> None:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidArgument(
            f"{name}: wanted letters, digits, _ and -, at most 64; found {_shown(value)}"
        )


def _postgres_url(name: str, url: object) -> None:
    # Not shown: it may hold a password.
    if not isinstance(url, str):
        raise InvalidArgument(f"{name}: wanted a URL, found {type(url).__name__}")
    if not _POSTGRES_URL.fullmatch(url):
        raise InvalidArgument(f"{name}: wanted a URL like postgresql://user@host/database")
    if url.partition("://")[2].partition("/")[0].count("@") > 1:
        # libpq ends the login at the first: the rest of the password would be the host.
        raise InvalidArgument(f"{name}: an @ in a user or password is written as %40")


def _timeout(name: str, value: Duration) -> None:
    if duration_us(value, name=name) <= 0:
        raise InvalidArgument(f"{name}: must be above zero, found {_shown(value)}")

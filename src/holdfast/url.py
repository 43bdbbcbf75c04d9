"""Store URLs, taken apart.

    sqlite:///relative.db   sqlite:////absolute.db   sqlite://:memory:
    postgresql://user:password@host:5432/database?schema=holdfast
    redis://:password@host:6379/0   rediss://… with TLS   redis+cluster://host:7000
    nats://user:password@host:4222,host2:4222   tls://… with TLS

Parameters that StoreConfig knows are ours; the rest is the driver's. Anything may be written as
%XX; a + is a +.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, unquote_to_bytes, urlsplit

import msgspec

from holdfast.clock import duration_us
from holdfast.config import ENGINE_SETTINGS, StoreConfig
from holdfast.errors import InvalidArgument

MEMORY = ":memory:"
_ENGINES = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "nats": "nats",
    "tls": "nats",
}
# Where a scheme has several spellings, the driver knows this one.
_SPELLED = {"postgres": "postgresql"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = (
    "sqlite:///path.db, sqlite://:memory:, postgresql://user@host/database, redis://host:6379/0, "
    "nats://host:4222"
)


class Target(NamedTuple):
    """Where a store is: the engine, its address, and the settings that the URL gave."""

    engine: str
    address: str  # SQLite: the path or ":memory:"; otherwise the URL without our parameters
    config: StoreConfig


def parse(url: str, config: StoreConfig) -> Target:
    """The target that the URL names; InvalidArgument says what is wrong with a bad one."""
    _check_text(url)
    scheme, separator, rest = url.partition("://")
    engine = _ENGINES.get(scheme.lower())
    if not separator:
        # Not shown: what lost its slashes may hold a password all the same.
        raise InvalidArgument(f"store URL: no :// in it; wanted something like {_SHOWN}")
    if engine is None:
        raise InvalidArgument(f"store URL {_shown(url)}: wanted something like {_SHOWN}")
    if engine == "sqlite":
        path, _, query = rest.partition("?")
        settings, foreign = _settings(query, engine)
        if foreign:
            raise InvalidArgument(
                f"store URL: {unknown_option(foreign[0])}; known are {_known(engine)}"
            )
        return Target(engine, _sqlite_path(url, path), _merged(config, settings))
    try:
        parts = urlsplit(url)
        _check_host(parts, engine)
    except ValueError:
        # From None: the parser quotes what it stumbled on, and that may be the password.
        raise InvalidArgument(
            f"store URL {_shown(url)}: bad host or port; special characters in a user or "
            "password are written as %XX"
        ) from None
    settings, foreign = _settings(parts.query, engine)
    # Not urlunsplit: it drops the // of a URL without a host, which libpq then cannot read.
    query = f"?{'&'.join(foreign)}" if foreign else ""
    scheme = _SPELLED.get(parts.scheme, parts.scheme)
    address = f"{scheme}://{parts.netloc}{parts.path}{query}"
    return Target(engine, address, _merged(config, settings))


def redacted(url: str) -> str:
    """Return the URL as logs and errors may show it: without its login and its query.

    The user goes with the password: in `nats://token@host` it is the secret.
    """
    scheme, separator, rest = url.partition("://")
    # The last @ ends the credentials, also when an unescaped / or ? stands in the password.
    _, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{'***' if at else ''}{at}{place.partition('?')[0]}"


def unknown_option(option: str) -> str:
    """Return the words for an option that is not known; a text without = may be a secret."""
    name, equals, _ = option.partition("=")
    return f"unknown option {unquote(name)[:60]!r}" if equals else "an option without a ="


def _shown(url: str) -> str:
    return repr(redacted(url))


def _check_text(url: str) -> None:
    if not isinstance(url, str):
        raise InvalidArgument(
            f"store URL: wanted text, found {type(url).__name__}; wanted something like {_SHOWN}"
        )
    try:
        unquote_to_bytes(url).decode()
    except UnicodeError:
        raise InvalidArgument("store URL: is not UTF-8, as it is or behind its %XX") from None
    if url != url.strip() or _CONTROL.search(url):
        raise InvalidArgument(
            "store URL: has blanks or a line end around it, or control characters inside; "
            "what belongs to it is written as %XX"
        )


def _check_host(parts: SplitResult, engine: str) -> None:
    """Raise ValueError for what libpq would misread or the resolver choke on."""
    if engine == "postgres" and parts.netloc.count("@") > 1:
        raise ValueError  # libpq ends the login at the first: the password's rest were the host
    if parts.fragment:  # the rest of a password with a # in it, most likely
        raise ValueError
    if "," in parts.netloc:  # several hosts are libpq's to check
        return
    _ = parts.port  # raises ValueError for a bad one
    host = parts.hostname or ""
    if "%" not in host:  # that is a socket's folder
        host.encode("idna")


def _sqlite_path(url: str, rest: str) -> str:
    if rest in {MEMORY, f"/{MEMORY}"}:
        return MEMORY
    if not rest.startswith("/"):
        raise InvalidArgument(
            f"store URL {_shown(url)}: three slashes for a relative path (sqlite:///app.db), "
            "four for an absolute one (sqlite:////var/lib/app.db)"
        )
    path = unquote(rest[1:])
    if not path or path.endswith("/"):
        raise InvalidArgument(f"store URL {_shown(url)}: names no file")
    if "\0" in path:
        raise InvalidArgument("store URL: the path holds a NUL")
    return path


def _settings(query: str, engine: str) -> tuple[dict[str, str], list[str]]:
    """Our settings, and the parameters that belong to the driver as they were given."""
    ours: dict[str, str] = {}
    foreign: list[str] = []
    for option in filter(None, query.split("&")):
        name = _name(option)
        if name not in StoreConfig.__struct_fields__:
            foreign.append(option)
            continue
        owners = [owner for owner, names in ENGINE_SETTINGS.items() if name in names]
        if owners and engine not in owners:
            raise InvalidArgument(
                f"store URL: {name} is a setting of {' and '.join(owners)}, and this is {engine}; "
                f"its settings are {_known(engine)}"
            )
        ours[name] = unquote(option.partition("=")[2])
    return ours, foreign


def _name(option: str) -> str:
    return unquote(option.partition("=")[0])


def _known(engine: str) -> str:
    others = set[str]().union(*ENGINE_SETTINGS.values()) - ENGINE_SETTINGS[engine]
    return ", ".join(name for name in StoreConfig.__struct_fields__ if name not in others)


def _merged(config: StoreConfig, settings: dict[str, str]) -> StoreConfig:
    changes = {name: _value(name, text) for name, text in settings.items()}
    return msgspec.structs.replace(config, **changes) if changes else config


def _value(name: str, text: str) -> Any:  # noqa: ANN401 - the field's own type
    """The setting's value; `history` takes "all", a count, or seconds such as "3600s"."""
    if name == "history" and text.endswith("s"):
        return timedelta(microseconds=duration_us(_number(name, text[:-1]), name=name))
    if name == "history" and text == "all":
        return text
    default = StoreConfig.__struct_defaults__[StoreConfig.__struct_fields__.index(name)]
    if isinstance(default, bool):
        if text.lower() not in {"true", "false", "1", "0"}:
            raise InvalidArgument(f"{name}: wanted true or false, found {text!r}")
        return text.lower() in {"true", "1"}
    if isinstance(default, int) or name == "history":
        return _whole(name, text)
    return _number(name, text) if isinstance(default, float) else text


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{name}: wanted a whole number, found {text!r}") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{name}: wanted a number, found {text!r}") from None

"""Store URLs: every good form, what a bad one is told, and no password in any of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument, StoreConfig
from holdfast.config import ENGINE_SETTINGS
from holdfast.url import MEMORY, parse, redacted

DEFAULT = StoreConfig()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///app.db", "app.db"),
        ("sqlite:///folder/app.db", "folder/app.db"),
        ("sqlite:////var/lib/app.db", "/var/lib/app.db"),
        ("sqlite:///a%20b%3F%23.db", "a b?#.db"),
        ("sqlite:///ünï.db", "ünï.db"),
        ("sqlite:///a+b.db", "a+b.db"),
        ("sqlite:///user:word@x.db", "user:word@x.db"),
        ("SQLite:///app.db", "app.db"),
        ("sqlite://:memory:", MEMORY),
        ("sqlite:///:memory:", MEMORY),
        ("sqlite:///app.db?", "app.db"),
    ],
)
def test_sqlite_url_names_a_path(url: str, path: str) -> None:
    assert parse(url, DEFAULT) == ("sqlite", path, DEFAULT)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://localhost/app", "postgresql://localhost/app"),
        ("postgres://localhost/app", "postgresql://localhost/app"),
        ("PostgreSQL://localhost/app", "postgresql://localhost/app"),
        ("postgresql://u:p%40ss@h:5433/app", "postgresql://u:p%40ss@h:5433/app"),
        ("postgresql://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("postgresql://h/app?schema=mine", "postgresql://h/app"),
        ("postgresql://h/app?sslmode=require&pool_size=2", "postgresql://h/app?sslmode=require"),
        # libpq decodes %20 and takes + as it is.
        ("postgresql://h/app?options=-c%20a%3Db", "postgresql://h/app?options=-c%20a%3Db"),
        # Without a host libpq takes its socket, or what the parameters say.
        ("postgresql:///app", "postgresql:///app"),
        ("postgresql:///app?host=%2Frun", "postgresql:///app?host=%2Frun"),
        ("postgresql://u@/app", "postgresql://u@/app"),
        # As it was given, a + too.
        ("postgresql://h/app?password=a+b%2B%26&schema=x", "postgresql://h/app?password=a+b%2B%26"),
        (
            "postgresql://%2Fvar%2Frun%2F" + "x" * 70 + "/app",
            "postgresql:///var/run/" + "x" * 70 + "/app",
        ),
    ],
)
def test_postgres_url_goes_to_libpq_without_our_options(url: str, address: str) -> None:
    target = parse(url, DEFAULT)
    assert target.engine == "postgres"
    assert target.address.replace("%2F", "/") == address.replace("%2F", "/")


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("durability=standard", {"durability": "standard"}),
        ("payload_max_bytes=100", {"payload_max_bytes": 100}),
        ("migrate=false", {"migrate": False}),
        ("migrate=0", {"migrate": False}),
        ("migrate=True", {"migrate": True}),
        ("history=all", {"history": "all"}),
        ("history=5", {"history": 5}),
        ("history=3600s", {"history": timedelta(hours=1)}),
        ("history=0.5s", {"history": timedelta(seconds=0.5)}),
        ("history=5&history=6", {"history": 6}),
        ("&history=5&&", {"history": 5}),
        ("h%69story=%35", {"history": 5}),
    ],
)
@pytest.mark.parametrize("base", ["sqlite:///app.db", "postgresql://h/app"])
def test_options_of_the_url_become_settings(
    base: str, query: str, changed: dict[str, object]
) -> None:
    assert parse(f"{base}?{query}", DEFAULT).config == StoreConfig(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "changed"),
    [
        ("sqlite:///x?commit=thread", {"commit": "thread"}),
        ("sqlite:///x?locking=exclusive", {"locking": "exclusive"}),
        ("sqlite:///x?vfs=unix-excl", {"vfs": "unix-excl"}),
        ("sqlite:///x?busy_timeout=0.5", {"busy_timeout": 0.5}),
        ("sqlite:///x?busy_timeout=2", {"busy_timeout": 2}),
        ("postgresql://h/x?schema=mine", {"schema": "mine"}),
        (
            "postgresql://h/x?pool_size=3&lock_timeout=1e1",
            {"pool_size": 3, "lock_timeout": 10},
        ),
        ("postgresql://h/x?pool_size=3&pool_size=4", {"pool_size": 4}),
        (
            "postgresql://h:6432/x?listen_url=postgresql%3A%2F%2Fh%2Fx%3Fsslmode%3Drequire%26user%3Dme",
            {"listen_url": "postgresql://h/x?sslmode=require&user=me"},
        ),
    ],
)
def test_options_of_one_engine_become_settings(url: str, changed: dict[str, object]) -> None:
    assert parse(url, DEFAULT).config == StoreConfig(**changed)  # type: ignore[arg-type]


GIVEN = {
    "durability": "cache",
    "migrate": "false",
    "payload_warn_bytes": "7",
    "payload_max_bytes": "8",
    "history": "9",
    "commit": "inline",
    "busy_timeout": "1.5",
    "checkpoint_pages": "10",
    "locking": "exclusive",
    "vfs": "x",
    "schema": "s",
    "pool_size": "11",
    "connect_timeout": "2.5",
    "statement_timeout": "3.5",
    "lock_timeout": "4.5",
    "poll_interval": "0.5",
    "listen_url": "postgresql://user@host:5432/app",
    "call_timeout": "5.5",
    "prefix": "p",
    "wait_replicas": "2",
    "bucket": "b",
    "replicas": "3",
}
BASES = {
    "sqlite": "sqlite:///app.db",
    "postgres": "postgresql://h/app",
    "redis": "redis://h:6379/0",
    "nats": "nats://h:4222",
}
ALIEN = {
    engine: frozenset[str]().union(*ENGINE_SETTINGS.values()) - own
    for engine, own in ENGINE_SETTINGS.items()
}
"""The settings that only other engines have."""


@pytest.mark.parametrize("engine", BASES)
def test_every_setting_can_be_in_the_url_of_its_engine(engine: str) -> None:
    assert set(GIVEN) == set(StoreConfig.__struct_fields__)
    assert set(ENGINE_SETTINGS) == set(BASES)
    given = {name: text for name, text in GIVEN.items() if name not in ALIEN[engine]}
    query = "&".join(f"{name}={value}" for name, value in given.items())
    config = parse(f"{BASES[engine]}?{query}", DEFAULT).config
    assert {name: str(getattr(config, name)).lower() for name in given} == given


@pytest.mark.parametrize(
    ("engine", "name"),
    [(engine, name) for engine in sorted(ALIEN) for name in sorted(ALIEN[engine])],
)
def test_option_of_another_engine_is_refused_in_the_url(engine: str, name: str) -> None:
    owners = " and ".join(owner for owner in ENGINE_SETTINGS if name in ENGINE_SETTINGS[owner])
    words = f"{name} is a setting of {owners}, and this is {engine}; its settings are durability, "
    with pytest.raises(InvalidArgument, match=words) as caught:
        parse(f"{BASES[engine]}?{name}={GIVEN[name]}", DEFAULT)
    told = str(caught.value).partition("its settings are ")[2]
    assert name not in told.split(", ")
    # One config serves stores on both engines.
    config = StoreConfig(pool_size=3, busy_timeout=1)
    assert parse(BASES[engine], config).config is config


def test_url_wins_over_the_config() -> None:
    config = StoreConfig(durability="cache", pool_size=3, history=5)
    target = parse("sqlite:///app.db?durability=always", config)
    assert target.config == StoreConfig(durability="always", pool_size=3, history=5)
    assert parse("sqlite:///app.db", config).config is config


FORMS = r"wanted something like sqlite:///path\.db, sqlite://:memory:, postgresql://"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", FORMS),
        ("app.db", FORMS),
        ("sqlite:app.db", FORMS),
        ("sqlite:/app.db", FORMS),
        ("sqlite", FORMS),
        ("mysql://h/app", f"'mysql://h/app': {FORMS}"),
        ("://x", FORMS),
        ("sqlite://app.db", r"three slashes for a relative path \(sqlite:///app.db\), four"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///a%00b", "holds a NUL"),
        ("sqlite:///app.db?colour=red", "unknown option 'colour'; known are durability, migrate"),
        ("sqlite:///app.db?Durability=always", "unknown option 'Durability'"),
        ("sqlite:///app.db?durability", "durability: wanted one of always, standard, cache"),
        ("sqlite:///app.db?durability=full", "wanted one of .*, found 'full'"),
        ("sqlite:///app.db?commit=later", "commit: wanted one of inline, thread, found 'later'"),
        ("sqlite:///app.db?locking=no", "locking: wanted one of normal, exclusive, found 'no'"),
        ("sqlite:///app.db?migrate=yes", "migrate: wanted true or false, found 'yes'"),
        (
            "sqlite:///app.db?history=many",
            "history: wanted a whole number, found 'many'",
        ),
        ("sqlite:///app.db?history=1.5", "history: wanted a whole number, found '1.5'"),
        (
            "sqlite:///app.db?history=0",
            "history: wanted a whole number above zero, found 0",
        ),
        ("sqlite:///app.db?busy_timeout=soon", "busy_timeout: wanted a number, found 'soon'"),
        ("sqlite:///app.db?busy_timeout=0", "busy_timeout: must be above zero, found 0"),
        ("sqlite:///app.db?busy_timeout=-1", "busy_timeout: must be above zero"),
        ("sqlite:///app.db?busy_timeout=nan", "busy_timeout: wanted a finite number"),
        ("sqlite:///app.db?busy_timeout=1e305", "busy_timeout: "),
        ("sqlite:///app.db?history=some", "history: wanted a whole number, found 'some'"),
        ("sqlite:///app.db?history=xs", "history: wanted a number, found 'x'"),
        ("sqlite:///app.db?history=0s", "history"),
        ("sqlite:///app.db?history=nans", "history: "),
        ("sqlite:///app.db?history=infs", "history: "),
        ("sqlite:///app.db?history=1e300s", "history: "),
        ("sqlite:///app.db?commit=thread&locking=exclusive", "commit=thread needs locking=normal"),
        ("postgresql://h:port/app", "'postgresql://h:port/app': bad host or port"),
        ("postgresql://h:99999/app", "bad host or port"),
        ("postgresql://[::1/app", "bad host or port"),
        ("postgresql://h..x/app", "bad host or port"),
        (f"postgresql://{'h' * 64}/app", "bad host or port"),
        ("postgresql://user:12#3@h/app", "bad host or port"),
        ("postgresql://a,b/app#x", "bad host or port"),
        ("postgresql://h/a%ff", "is not UTF-8"),
        ("postgresql://h/app?options=%ff", "is not UTF-8"),
        ("postgresql://\ud800/app", "is not UTF-8"),
        ("sqlite:///a%ff.db", "is not UTF-8"),
        ("sqlite:///\udcff.db", "is not UTF-8"),
        ("sqlite:///app.db\n", "line end"),
        (" sqlite:///app.db", "blanks"),
        ("sqlite:///app.db ", "blanks"),
        ("sqlite:///a\tb.db", "control characters"),
        ("postgresql://h/a\npp", "control characters"),
        ("sqlite:///app.db?vfs=", "vfs: wanted the name of a VFS, found ''"),
        ("sqlite:///app.db?vfs=a%00b", "vfs: wanted the name of a VFS"),
        ("postgresql://h/app?pool_size=100000000", "pool_size: at most 10000"),
        ("postgresql://h/app?schema=Big", "schema 'Big': wanted lower-case letters"),
        ("postgresql://h/app?schema=a%0A", "schema 'a.n': wanted lower-case letters"),
        ("postgresql://h/app?pool_size=x", "pool_size: wanted a whole number, found 'x'"),
    ],
)
def test_bad_url_is_told_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        parse(url, DEFAULT)


@pytest.mark.parametrize("url", [None, 7, b"sqlite:///x", ["sqlite:///x"]], ids=repr)
def test_url_must_be_text(url: str) -> None:
    with pytest.raises(InvalidArgument, match=f"wanted text, found {type(url).__name__}"):
        holdfast.open(url)
    with pytest.raises(InvalidArgument, match="wanted text"):
        holdfast.open_async(url)


SECRET = "s3cr3t"  # noqa: S105 - looked for in messages


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:s3cr3t@h/app",
        "postgresql:user:s3cr3t@h/app",
        "postgresql:/user:s3cr3t@h/app",
        "postgresql//user:s3cr3t@h/app",
        "user:s3cr3t@h/app",
        "postgresql://user:s3cr3t@h:port/app",
        "postgresql://user:s3cr3t/1@h/app",
        "postgresql://user:s3cr3t?1@h/app",
        "postgresql://user:s3cr3t#1@h/app",
        "postgresql://user:[s3cr3t@h/app",
        "postgresql://user:x@s3cr3t@h:port/app",
        "postgresql://h:port/app?user=me&password=s3cr3t",
        "mysql://h/app?user=me&password=s3cr3t@x",
        "host=h user=me password=s3cr3t dbname=app",
        "postgresql://user:s3cr3t@h/app?durability=never",
        "postgresql://h/app?password=s3cr3t&pool_size=x",
        "sqlite://user:s3cr3t@h/app",
        "sqlite://h/app?password=s3cr3t",
        "sqlite:///app.db?password=s3cr3t",
    ],
)
def test_password_of_a_bad_url_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(url, DEFAULT)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cr3t@127.0.0.1:1/app",
        "postgresql://user:s3cr3t%zz@127.0.0.1:1/app",
        "postgresql://127.0.0.1:1/app?user=me&password=s3cr3t",
        "postgresql://user:s3cr3t@127.0.0.1:1/app?sslmode=never",
        "postgresql://user:s3cr3t@127.0.0.1:1/app?nonsense=1",
    ],
)
def test_password_is_not_shown_when_the_connection_fails(url: str) -> None:
    with pytest.raises(holdfast.StoreError) as caught:
        holdfast.open(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:pass@h:5432/app?schema=x", "postgresql://***@h:5432/app"),
        ("postgresql://user@h/app", "postgresql://***@h/app"),
        ("postgresql://h/app", "postgresql://h/app"),
        ("postgresql:///app?password=x", "postgresql:///app"),
        ("postgresql://user:a/b?c@h/app", "postgresql://***@h/app"),
        ("nats://token@h:4222", "nats://***@h:4222"),
        ("sqlite:///app.db", "sqlite:///app.db"),
    ],
)
def test_url_as_logs_may_show_it(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_a_store_that_is_not_open_yet_says_how_it_is_opened() -> None:
    opening: Any = holdfast.open_async("sqlite://:memory:")
    with pytest.raises(AttributeError, match=r"has no 'cells': `async with`, or await it"):
        _ = opening.cells

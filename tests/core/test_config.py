"""Settings: defaults meant for production, and a refusal for what can never work."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import InvalidArgument, StoreConfig
from holdfast.config import seconds


def test_defaults_are_safe() -> None:
    config = StoreConfig()
    assert config.durability == "always"
    assert config.history == "all"
    assert config.migrate is True
    assert (config.payload_warn_bytes, config.payload_max_bytes) == (2**20, 2**21)


def test_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        StoreConfig().durability = "cache"  # type: ignore[misc]


@pytest.mark.parametrize("config", [{}, {"durability": "cache"}, "cache", 0, StoreConfig])
def test_config_is_a_store_config(config: StoreConfig) -> None:
    for call in (holdfast.open, holdfast.open_async, holdfast.migrate):
        with pytest.raises(InvalidArgument, match="config: wanted a StoreConfig, found"):
            call("sqlite://:memory:", config=config)


def test_config_shows_what_differs_from_the_defaults() -> None:
    assert repr(StoreConfig()) == "StoreConfig()"
    assert repr(StoreConfig(pool_size=3, history=1)) == "StoreConfig(history=1, pool_size=3)"


def test_config_shows_no_password() -> None:
    config = StoreConfig(listen_url="postgresql://user:secret@host/database")
    assert repr(config) == "StoreConfig(listen_url=…)"
    with pytest.raises(InvalidArgument, match="listen_url") as caught:
        StoreConfig(listen_url="postgresql://user:secret @host/database")
    assert "secret" not in str(caught.value)


def test_settings_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        StoreConfig("cache")  # type: ignore[call-arg]


def test_changed_copy_is_checked_too() -> None:
    with pytest.raises(InvalidArgument, match="pool_size"):
        msgspec.structs.replace(StoreConfig(), pool_size=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"history": 1},
        {"history": timedelta(microseconds=1)},
        {"busy_timeout": timedelta(seconds=5)},
        {"busy_timeout": 1},
        {"lock_timeout": 0.001},
        {"schema": "_a9"},
        {"listen_url": "postgresql://user@host/database?sslmode=require"},
        {"listen_url": "postgres:///database"},
        {"schema": "x" * 63},
        {"commit": "thread", "locking": "normal"},
        {"commit": "inline", "locking": "exclusive"},
        {"payload_warn_bytes": 10, "payload_max_bytes": 5},
    ],
    ids=repr,
)
def test_unusual_settings_are_accepted(settings: dict[str, Any]) -> None:
    config = StoreConfig(**settings)
    assert {name: getattr(config, name) for name in settings} == settings


NUMBERS = ["payload_warn_bytes", "payload_max_bytes", "checkpoint_pages", "pool_size"]
DURATIONS = ["busy_timeout", "connect_timeout", "statement_timeout", "lock_timeout"]


@pytest.mark.parametrize("name", [*NUMBERS, "history"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, None, "3"], ids=repr)
def test_numbers_are_whole_and_above_zero(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: wanted a whole number above zero, found"):
        StoreConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    "value", [0, -1, 0.0, timedelta(0), math.nan, math.inf, True, "5", None], ids=repr
)
def test_timeouts_are_finite_and_above_zero(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: "):
        StoreConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"durability": "never"}, "durability: wanted one of always, standard, cache, found 'nev"),
        ({"durability": None}, "durability: wanted one of"),
        ({"durability": []}, "durability: wanted one of"),
        ({"commit": "later"}, "commit: wanted one of inline, thread"),
        ({"locking": "loose"}, "locking: wanted one of normal, exclusive"),
        ({"history": timedelta(0)}, "history"),
        ({"history": timedelta(-1)}, "history"),
        ({"history": "some"}, "history"),
        ({"history": 2**63}, "history"),
        ({"history": timedelta.max}, "history"),
        ({"schema": ""}, "schema ''"),
        ({"schema": "9a"}, "schema '9a'"),
        ({"schema": "Mine"}, "schema 'Mine'"),
        ({"schema": 'a"; DROP'}, "schema"),
        ({"schema": "a\n"}, "schema"),
        ({"schema": "x" * 64}, "at most 63"),
        ({"schema": 7}, "schema"),
        ({"commit": "thread", "locking": "exclusive"}, "commit=thread needs locking=normal"),
        ({"migrate": "false"}, "migrate: wanted True or False, found 'false'"),
        ({"migrate": None}, "migrate: wanted True or False"),
        ({"migrate": 0}, "migrate: wanted True or False"),
        ({"vfs": 7}, "vfs: wanted the name of a VFS, found 7"),
        ({"vfs": ""}, "vfs: wanted the name"),
        ({"vfs": "a\0b"}, "vfs: wanted the name"),
        ({"vfs": "\ud800"}, "vfs: wanted the name"),
        ({"listen_url": 7}, "listen_url: wanted a URL, found int"),
        ({"listen_url": ""}, "listen_url: wanted a URL like postgresql://"),
        ({"listen_url": "sqlite:///app.db"}, "listen_url: wanted a URL like postgresql://"),
        ({"listen_url": "host=db dbname=app"}, "listen_url: wanted a URL like postgresql://"),
        ({"listen_url": "postgresql://h/d\n"}, "listen_url: wanted a URL like postgresql://"),
        ({"pool_size": 10_001}, "pool_size: at most 10000"),
        ({"checkpoint_pages": 2**31}, "checkpoint_pages: at most 2147483647"),
        ({"payload_max_bytes": 2**63}, "payload_max_bytes: at most"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_can_never_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        StoreConfig(**settings)


@pytest.mark.parametrize("name", StoreConfig.__struct_fields__)
@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["huge", "minus huge"])
def test_number_that_python_does_not_write_out_is_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidArgument, match=name):
        StoreConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("duration", "as_float"), [(5, 5.0), (0.25, 0.25), (timedelta(milliseconds=1500), 1.5)]
)
def test_seconds_of_a_duration(duration: float | timedelta, as_float: float) -> None:
    assert seconds(duration) == as_float
    assert type(seconds(duration)) is float

"""Servers that refuse a login: nothing that is written down has the password or the token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import StoreConfig, StoreError, Unauthorized
from holdfast.testing.nats import NatsServer
from holdfast.testing.valkey import ValkeyServer

SECRET = "s3cr3tWord"  # noqa: S105 - looked for in texts
SHORT = StoreConfig(connect_timeout=2, call_timeout=2)


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Servers that want another login."""
    with (
        NatsServer(user="u", password="another") as nats,  # noqa: S106 - of a test server
        ValkeyServer({"requirepass": "another"}) as valkey,
    ):
        yield {"nats": nats.address, "redis": f"127.0.0.1:{valkey.port}"}


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "async"])
@pytest.mark.parametrize("login", [SECRET, f"u:{SECRET}", f":{SECRET}", f"{SECRET}:p"])
@pytest.mark.parametrize("scheme", ["nats", "redis"])
def test_a_refused_login_is_not_shown(
    scheme: str,
    login: str,
    *,
    blocking: bool,
    addresses: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"{scheme}://{login}@{addresses[scheme]}"
    with pytest.raises(StoreError) as raised:
        _ = holdfast.open(url, config=SHORT) if blocking else asyncio.run(_open_async(url))
    assert type(raised.value) is Unauthorized
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    shown = capfd.readouterr()
    assert SECRET not in f"{caplog.text}{shown.out}{shown.err}"


async def _open_async(url: str) -> None:
    async with holdfast.open_async(url, config=SHORT):
        pass

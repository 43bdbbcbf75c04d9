"""No secret of a URL is in an error, its causes, a log at DEBUG or on stderr."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import StoreConfig, StoreError

SECRET = "s3cr3tWord"  # noqa: S105 - looked for in texts
SHORT = StoreConfig(connect_timeout=0.5, call_timeout=0.5)
SCHEMES = ["postgresql", "postgres", "redis", "rediss", "redis+cluster", "nats", "tls"]
HOSTS = ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "127.0.0.1:x", "h h", "[::1", ""]
LOGINS = [
    SECRET,
    f"{SECRET}:",
    f"{SECRET}:p",
    f"u:{SECRET}",
    f":{SECRET}",
    f"u:a@{SECRET}",
    f"u:a/{SECRET}",
    f"u:a?{SECRET}",
    f"u:a#{SECRET}",
    f"a/{SECRET}",
]
QUERIES = [
    f"password={SECRET}",
    f"user={SECRET}",
    f"username={SECRET}",
    f"token={SECRET}",
    f"sslpassword={SECRET}",
    f"options=-c%20{SECRET}",
    f"nonsense={SECRET}",
    f"db={SECRET}",
    SECRET,
]


def urls(scheme: str) -> Iterator[str]:
    for host in HOSTS:
        for login in LOGINS:
            yield f"{scheme}://{login}@{host}/0"
    for query in QUERIES:
        yield f"{scheme}://127.0.0.1:1/0?{query}"
    yield f"{scheme}://a:b@127.0.0.1:1,u:{SECRET}@127.0.0.1:2/0"
    yield f"{scheme}:{SECRET}@127.0.0.1"
    yield f"{scheme}:/u:{SECRET}@127.0.0.1"


def texts(error: BaseException | None) -> Iterator[str]:
    """Yield what a traceback shows of the error and of those behind it."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, 'facts', '')} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def failure(url: str, *, blocking: bool) -> BaseException:
    with pytest.raises(StoreError) as raised:
        _ = holdfast.open(url, config=SHORT) if blocking else asyncio.run(_open_async(url))
    return raised.value


async def _open_async(url: str) -> None:
    async with holdfast.open_async(url, config=SHORT):
        pass


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "async"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_failing_open_shows_no_secret(
    scheme: str,
    blocking: bool,  # noqa: FBT001 - a parameter of the test
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    caplog.set_level(logging.DEBUG)
    for url in urls(scheme):
        for text in texts(failure(url, blocking=blocking)):
            assert SECRET not in text, url
    shown = capfd.readouterr()
    assert SECRET not in f"{caplog.text}{shown.out}{shown.err}"
    assert not [warning for warning in recwarn if SECRET in str(warning.message)]


@pytest.mark.parametrize("name", [SECRET, f"u:{SECRET}", f"u:a@{SECRET}"])
def test_a_listen_url_shows_no_secret(name: str) -> None:
    url = f"postgresql://{name}@127.0.0.1:1/app"
    try:
        shown = [repr(StoreConfig(listen_url=url))]
    except StoreError as exc:
        shown = list(texts(exc))
    assert SECRET not in " ".join(shown)

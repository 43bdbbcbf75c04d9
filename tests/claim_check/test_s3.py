"""S3 that is not there, does not answer, refuses, or was told something wrong."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
from functools import partial
from typing import Any

import aiohttp
import botocore.exceptions
import pytest
from moto.server import ThreadedMotoServer

from holdfast import (
    ClaimCheck,
    Database,
    InvalidArgument,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)
from holdfast.claim_check.failures import translated
from holdfast.testing.ports import ADDRESS, ReservedPort

URL = "https://somewhere"
ABC = "claim:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:3"


def options_for(port: int, **config: object) -> dict[str, Any]:
    return {
        "key": "nobody",
        "secret": "nothing",
        "client_kwargs": {"endpoint_url": f"http://{ADDRESS}:{port}"},
        "config_kwargs": {"retries": {"max_attempts": 0}, **config},
    }


def test_missing_bucket_is_not_found(s3_options: dict[str, Any]) -> None:
    claims = ClaimCheck("s3://no-such-bucket/x", **s3_options)
    with pytest.raises(NotFound, match="bucket does not exist") as caught:
        claims.put(b"abc")
    assert not caught.value.outcome_unknown
    with pytest.raises(NotFound):
        claims.get(ABC)
    assert claims.prune(0) == 0


def test_bucket_itself_may_be_the_place(s3_options: dict[str, Any]) -> None:
    claims = ClaimCheck("s3://bucket/", **s3_options)
    ref = claims.put(b"in the root")
    assert claims.get(ref) == b"in the root"
    assert claims.delete(ref)


def test_server_that_went_away_is_unavailable_and_its_return_is_noticed() -> None:
    port = ReservedPort()
    server = ThreadedMotoServer(ip_address=ADDRESS, port=port.number, verbose=False)
    claims = ClaimCheck("s3://returning/x", **options_for(port.number))
    with pytest.raises(Unavailable, match="s3://returning/x") as caught:
        claims.put(b"abc")
    assert (caught.value.retryable, caught.value.outcome_unknown) == (True, True)
    with pytest.raises(Unavailable) as reading:
        claims.get(ABC)
    assert not reading.value.outcome_unknown
    server.start()
    try:
        with pytest.raises(NotFound):
            claims.get(ABC)
    finally:
        server.stop()
        port.release()


def test_server_that_does_not_answer_is_a_timeout_and_is_left() -> None:
    with socket.create_server((ADDRESS, 0)) as silent:
        options = options_for(silent.getsockname()[1], read_timeout=0.05)
        claims = ClaimCheck("s3://silent/x", put_timeout=2, **options)
        with pytest.raises(Timeout, match="s3://silent/x") as reading:
            claims.get(ABC)
        assert not reading.value.outcome_unknown
        with pytest.raises(Timeout, match="s3://silent/x") as putting:
            claims.put(b"abc")
        assert putting.value.outcome_unknown
        with pytest.raises(Timeout, match="s3://silent/x"):
            claims.put_file(io.BytesIO(bytes(1 << 24)))
        heard = heard_to_the_end(silent)
    assert {b"HEAD", b"PUT", b"POST"} == {request.split()[0] for request in heard}


def heard_to_the_end(server: socket.socket) -> list[bytes]:
    """What was sent on each connection that was made; all of them are closed by the client."""
    heard = []
    server.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)  # TimeoutError: it is kept, though nobody waits for it
                heard.append(b"".join(iter(partial(connection.recv, 65536), b"")))
    return heard


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), NotFound),
        (PermissionError("x"), Unauthorized),
        (OSError(errno.EACCES, "x"), Unauthorized),
        (OSError(errno.EROFS, "x"), Unauthorized),
        (TimeoutError(), Timeout),
        (OSError(errno.ETIMEDOUT, "x"), Timeout),
        (ConnectionResetError("x"), Unavailable),
        (OSError(errno.EBUSY, "slow down"), Unavailable),
        (OSError(errno.EMFILE, "x"), Unavailable),
        (OSError(errno.ENOSPC, "x"), Database),
        (OSError("x"), Database),
        (RuntimeError("x"), Database),
        (botocore.exceptions.NoCredentialsError(), Unauthorized),
        (botocore.exceptions.EndpointConnectionError(endpoint_url=URL), Unavailable),
        (botocore.exceptions.ConnectTimeoutError(endpoint_url=URL), Timeout),
        (botocore.exceptions.ReadTimeoutError(endpoint_url=URL), Timeout),
        (botocore.exceptions.ConnectionClosedError(endpoint_url=URL), Unavailable),
        (botocore.exceptions.ParamValidationError(report="x"), InvalidArgument),
        (
            botocore.exceptions.UnknownServiceError(service_name="x", known_service_names="y"),
            Database,
        ),
        (aiohttp.ServerDisconnectedError(), Unavailable),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else repr(value)[:40],
)
def test_errors_of_drivers_become_ours(error: Exception, kind: type[StoreError]) -> None:
    with pytest.raises(StoreError) as caught, translated("doing", Exception):
        raise error
    assert type(caught.value) is kind
    assert str(caught.value).startswith("doing: ")
    assert caught.value.__cause__ is error

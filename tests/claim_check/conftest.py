"""A claim check in every place and colour."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from holdfast import AsyncClaimCheck
from tests.claim_check.sites import COLOURS, PLACES, Awaited, Claims, Site


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """What fsspec needs to reach an S3 of our own, with one bucket named `bucket`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "nobody",
        "secret": "nothing",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-central-1"},
    }
    fsspec.filesystem("s3", **options).mkdir("bucket")
    yield options
    server.stop()


@pytest.fixture(params=PLACES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    match request.param:
        case "folder":
            return Site(f"file://{tmp_path}/claims")
        case "memory":
            return Site(f"memory://{uuid4().hex}")
        case _:
            options = request.getfixturevalue("s3_options")
            return Site(f"s3://bucket/{uuid4().hex}", options)


@pytest.fixture(params=COLOURS)
def claims(request: pytest.FixtureRequest, site: Site) -> Iterator[Claims]:
    if request.param == "blocking":
        yield site.claims()
        return
    with asyncio.Runner() as runner:
        yield Awaited(AsyncClaimCheck(site.url, **site.options), runner)

"""What the tests of events on NATS share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import nats

import holdfast
from holdfast import AppendResult, Event, FeedEvent
from holdfast.sync.watch import Watch
from holdfast.testing.nats import NatsServer

PATIENCE = 60.0


def event(key: str, run_id: str = "r", data: object = None) -> Event:
    return Event(run_id, "Noted", key, data)


def new(run_seq: int) -> AppendResult:
    return AppendResult(run_seq, idempotent=False, persisted=True)


def known(run_seq: int) -> AppendResult:
    return AppendResult(run_seq, idempotent=True, persisted=False)


async def ask(server: NatsServer, question: str, **asked: object) -> dict[str, Any]:
    client = await nats.connect(f"nats://{server.address}")
    try:
        answer = await client.request(f"$JS.API.{question}", msgspec.json.encode(asked))
    finally:
        await client.close()
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    assert "error" not in found, found
    return found


def bucket_of(url: str) -> str:
    return url.partition("bucket=")[2].partition("&")[0]


def messages(server: NatsServer, url: str) -> int:
    """How many messages the stream of events has."""
    found = asyncio.run(ask(server, f"STREAM.INFO.{bucket_of(url)}_events"))
    return int(found["state"]["messages"])


def state_messages(server: NatsServer, url: str) -> int:
    found = asyncio.run(ask(server, f"STREAM.INFO.{bucket_of(url)}_state"))
    return int(found["state"]["messages"])


def replay(feed: Watch[FeedEvent]) -> Iterator[FeedEvent]:
    """What the feed tells up to the marker."""
    while isinstance(one := feed.next(PATIENCE), FeedEvent):
        yield one
    assert one is holdfast.CAUGHT_UP

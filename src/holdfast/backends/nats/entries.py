"""What is in a stream: messages as they are written, and as they are read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from nats.aio.msg import Msg

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class Entry(NamedTuple):
    """The newest message of a subject; `data` is empty when the server left a marker there."""

    subject: str
    seq: int
    data: bytes


class Message(NamedTuple):
    """What to write: only if the subject's newest message is still `expected`.

    0: if there is none; None: whatever is there.

    After `ttl_secs` the server removes it, and leaves a marker unless it is one itself. However
    often it is sent with the same `once`, it is stored once, for as long as the stream's
    `duplicate_window`.
    """

    subject: str
    data: bytes
    expected: int | None
    ttl_secs: int | None = None
    marker: bool = False
    once: str | None = None


def headers_of(message: Message) -> dict[str, str]:
    """What the server shall know of the message."""
    headers = {} if message.expected is None else {_EXPECTED: str(message.expected)}
    if message.ttl_secs is not None:
        headers["Nats-TTL"] = str(message.ttl_secs)
    if message.marker:
        headers["Nats-Marker-Reason"] = "Remove"
    if message.once is not None:
        headers["Nats-Msg-Id"] = message.once
    return headers


def entry_of(message: Msg) -> Entry:
    """A message as a direct read gives it."""
    headers = message.headers or {}
    return Entry(headers["Nats-Subject"], int(headers["Nats-Sequence"]), message.data)


def kept_entry(kept: Mapping[str, Any]) -> Entry:
    """A message as the leader tells it."""
    return Entry(kept["subject"], kept["seq"], base64.b64decode(kept.get("data", "")))

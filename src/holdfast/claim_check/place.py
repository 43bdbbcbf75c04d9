"""What a claim check needs of the place where the objects are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import uuid4

from holdfast.claim_check.refs import Ref

BLOCK_BYTES = 4 * 1024 * 1024
"""How much of a large object is in memory at a time."""


class Content(Protocol):
    """An object that is being read."""

    def fetch(self, start: int, size: int) -> bytes:
        """At most `size` bytes from `start` on; fewer or none only where the object ends."""

    def close(self) -> None:
        """Give back what reading holds."""


class Place(Protocol):
    """Objects by name. Its errors are Holdfast's; a missing object is NotFound."""

    def put(self, data: bytes) -> Ref:
        """Store the content under its name, whole and durable when this returns."""

    def put_blocks(self, blocks: Iterable[bytes]) -> Ref:
        """The same for content that need not fit into memory."""

    def read(self, name: str) -> bytes:
        """The whole content."""

    def open(self, name: str) -> Content:
        """The content, to be read piece by piece."""

    def size(self, name: str) -> int | None:
        """How many bytes the object has; None when there is none."""

    def delete(self, name: str) -> bool:
        """Whether the object was there; now it is not."""

    def prune(self, before_us: int) -> int:
        """How many objects and abandoned parts were last stored before the instant; now gone."""


def partial_name() -> str:
    """A name that no object has, for content that is not yet complete."""
    return f".{uuid4().hex}.partial"

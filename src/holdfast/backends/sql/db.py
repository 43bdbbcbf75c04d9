"""The line between a facet's SQL and an engine's connections: see also batching.py."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.backends.batching import Answer, Batch, Item
from holdfast.runtime import Topic

Row = tuple[Any, ...]


class Db(Protocol):
    """An engine's connections, as facets see them."""

    def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Awaitable[Sequence[Answer]]:
        """The answers, once they are durable. The items commit together or not at all.

        `size` is what the payloads add up to: a flush takes so much and no more. Who listens
        to the `topic` hears of the commit.
        """

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """The rows of one reading statement."""

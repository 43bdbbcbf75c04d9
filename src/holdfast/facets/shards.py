"""Shards: how projectors share the runs of a namespace.

A run belongs to the shard that its id hashes to, the same everywhere. Each shard is a record:

    holdfast.projector.shard.16.03    owner, token, lease_until (ms, the store's clock),
                                      at VIEW: how far into the feed the view is kept
    holdfast.projector.worker.ID      a projector that is there, with a time to live

A shard without an owner, or whose lease is over, is taken by compare-and-set on what was seen, and
its token rises. Whoever prolongs the lease or moves the positions expects its own token: one who
was away for too long finds out, and lets go. Shards are shared evenly among the projectors that
are there. All of that needs records alone, so it works on every engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.facets.events import LOG
from holdfast.facets.feed import BEGINNING, Position, from_cursor, to_cursor
from holdfast.facets.projecting_store import PREFIX

WORKERS = f"{PREFIX}worker."
_AT = "at "


def shard_of(run_id: str, count: int) -> int:
    """Where the run belongs."""
    return zlib.crc32(run_id.encode()) % count


def shards_prefix(count: int) -> str:
    """What the keys of the shards begin with; another number of shards is another sharing."""
    return f"{PREFIX}shard.{count}."


def shard_key(index: int, count: int) -> str:
    """The key of a shard's record."""
    return f"{shards_prefix(count)}{index:03}"


class Seen(NamedTuple):
    """A shard as its record was read."""

    owner: bytes | None
    token: bytes | None
    lease_until: bytes | None
    positions: dict[str, Position]

    @classmethod
    def of(cls, fields: Mapping[str, bytes]) -> Seen:
        """What the record says; an absent one is a shard that nobody had so far."""
        positions = {
            name.removeprefix(_AT): from_cursor(LOG, value.decode())[0]
            for name, value in fields.items()
            if name.startswith(_AT)
        }
        owner, token, until = (fields.get(name) for name in ("owner", "token", "lease_until"))
        return cls(owner, token, until, positions)

    def free(self, now_ms: int) -> bool:
        """True if anybody may take it."""
        return self.owner is None or int(self.lease_until or 0) <= now_ms


class Shard:
    """A shard that is ours, until a renewal finds otherwise."""

    def __init__(self, index: int, token: int, positions: dict[str, Position]) -> None:
        self.index = index
        self.token = token
        self._positions = positions

    def at(self, view: str) -> Position:
        """Up to where the view is kept: nothing below needs to be told again."""
        return self._positions.get(view, BEGINNING)

    def move(self, view: str, position: Position) -> None:
        """Everything up to there is kept; never back."""
        self._positions[view] = max(position, self.at(view))

    def rewind(self) -> None:
        """Begin with the first event again."""
        self._positions = dict.fromkeys(self._positions, BEGINNING)

    def fields(self) -> dict[str, str | None]:
        """The positions, as the record has them."""
        return {
            _AT + view: None if position == BEGINNING else to_cursor(LOG, position)
            for view, position in self._positions.items()
        }

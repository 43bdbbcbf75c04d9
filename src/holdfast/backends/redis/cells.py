"""Cells on Redis: the newest version of each, without history or branches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys, lex_range
from holdfast.backends.redis.namespaces import RedisNamespaces
from holdfast.backends.redis.protocol import Command, Reply
from holdfast.backends.redis.script import Script
from holdfast.errors import Unavailable
from holdfast.facets.cells import CellKey, CellOutcome, CellWrite, StoredCell

# Clocks are read at different moments of a call.
_SLACK_US = 1_000_000


class RedisCells:
    """See CellsBackend. What asks for history is never called: its capability is missing."""

    def __init__(self, db: RedisDb, keys: Keys, namespaces: RedisNamespaces) -> None:
        self._db = db
        self._keys = keys
        self._namespaces = namespaces
        self._write = WriteCells(keys)
        self._read = ReadCells(keys)
        self._read_many = ReadManyCells()

    async def write(self, writes: Sequence[CellWrite], size: int) -> Sequence[CellOutcome]:
        """See CellsBackend."""
        namespace = writes[0].key[0]
        await self._namespaces.note(namespace)
        base = self._keys.base(namespace)
        item = CellWrites(base, writes, time.monotonic())
        (outcomes,) = await self._db.do(self._write, [item], base, size=size)
        return outcomes

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        (found,) = await self._db.do(self._read, [key], self._keys.base(key[0]))
        return found

    async def get_many(
        self, namespace: str, branch: str, names: Sequence[str]
    ) -> dict[str, StoredCell]:
        """See CellsBackend. One script, so one moment."""
        del branch
        base = self._keys.base(namespace)
        item = ManyCells(base, names)
        (found,) = await self._db.do(self._read_many, [item], base)
        return found

    async def names(
        self, namespace: str, branch: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """See CellsBackend."""
        del branch
        base = self._keys.base(namespace)
        low, high = lex_range(prefix, after)
        command = (
            b"ZRANGEBYLEX", base + b":cells", low, high, b"LIMIT", b"0", b"%d" % limit
        )  # fmt: skip
        (found,) = await self._db.ask([command], base)
        names = [name.decode() for name in found]
        return names, names[-1] if len(names) == limit else None

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """See CellsBackend."""
        raise NotImplementedError(key, at_us)

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """See CellsBackend."""
        raise NotImplementedError(key, before_commit, limit)

    async def prune(
        self, namespace: str, branch: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """See CellsBackend."""
        raise NotImplementedError(namespace, branch, after, limit)


class CellWrites(NamedTuple):
    """The writes of one call, which are applied together."""

    base: bytes
    writes: Sequence[CellWrite]
    begun: float  # time.monotonic() when the caller asked


class WriteCells:
    """Sets, swaps and deletes. See Operation."""

    writes = True
    timed = False
    joins = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._script = Script("write_cells")

    def command(self, item: CellWrites, *, repeat: bool) -> Command:
        """See Operation."""
        doubt = -1
        if repeat:
            doubt = int((time.monotonic() - item.begun) * 1_000_000) + _SLACK_US
        arguments = [b"%d" % doubt]
        for write in item.writes:
            _, _, name = write.key
            payload = write.payload
            arguments += (
                name.encode(),
                b"%d" % write.expected,
                b"d" if payload is None else b"v",
                b"" if payload is None else payload.encode(),
                write.op_id,
                b"%d" % write.op_given,
            )
        return self._script.call([item.base, self._keys.clock(item.base)], arguments)

    def answer(self, reply: Reply, item: CellWrites) -> list[CellOutcome]:
        """See Operation."""
        if reply is None:
            raise Unavailable(
                f"cell {item.writes[0].key[-1]!r}: the connection was lost, and what became of the "
                "first try cannot be told: others have written to the cell since",
                outcome_unknown=True,
            )
        return [
            CellOutcome(applied=True, version=number)
            if number >= 0
            else CellOutcome(applied=False, version=-1 - number)
            for number in reply
        ]


class ReadCells:
    """Cells by their names. See Operation."""

    writes = False
    timed = False
    joins = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def command(self, item: CellKey, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # reading again is always safe
        namespace, _, name = item
        key = self._keys.base(namespace) + b":c:" + name.encode()
        return (b"HMGET", key, b"p", b"v", b"t", b"i")

    def answer(self, reply: Reply, item: CellKey) -> StoredCell | None:
        """See Operation."""
        del item
        return _stored(reply)


class ManyCells(NamedTuple):
    """Cells to be read together."""

    base: bytes
    names: Sequence[str]


class ReadManyCells:
    """Several cells of one moment. See Operation."""

    writes = False
    timed = False
    joins = False

    def __init__(self) -> None:
        self._script = Script("read_cells")

    def command(self, item: ManyCells, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # reading again is always safe
        return self._script.call([item.base], [name.encode() for name in item.names])

    def answer(self, reply: Reply, item: ManyCells) -> dict[str, StoredCell]:
        """See Operation."""
        cells = zip(item.names, map(_stored, reply), strict=True)
        return {name: cell for name, cell in cells if cell is not None}


def _stored(reply: Reply) -> StoredCell | None:
    payload, version, updated_at, commit_id = reply
    if payload is None:
        return None
    return payload.decode(), int(version), int(updated_at), int(commit_id)

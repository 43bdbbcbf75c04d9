"""Indexes over records: sorted sets in byte order, kept by the scripts that write."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys, index_name, index_named
from holdfast.backends.redis.protocol import Command, Reply
from holdfast.backends.redis.records import RedisRecords
from holdfast.backends.redis.script import Script
from holdfast.facets.records import ListedRecord, RecordIndex, Span

_FILL_PAGE = 500  # records, in which nobody else is served
_READ_PAGE = 500
_COMPLETE = b"complete"


class RedisRecordIndexes:
    """See RecordIndexes."""

    def __init__(self, db: RedisDb, keys: Keys, records: RedisRecords) -> None:
        self._db = db
        self._keys = keys
        self._records = records
        self._create = Script("create_index")
        self._fill = Script("fill_index")
        self._drop = Script("drop_index")
        self._find = Script("find_entries")
        self._list = ListIndexes()

    async def create(self, namespace: str, index: RecordIndex) -> None:
        """See RecordIndexes."""
        base = self._keys.base(namespace)
        await self._db.ask([self._create.call([base], [index_name(index)])], base)

    async def fill(self, namespace: str, index: RecordIndex) -> bool:
        """See RecordIndexes."""
        base = self._keys.base(namespace)
        command = self._fill.call([base], [index_name(index), b"%d" % _FILL_PAGE])
        (complete,) = await self._db.ask([command], base)
        return bool(complete)

    async def drop(self, namespace: str, index: RecordIndex) -> bool:
        """See RecordIndexes."""
        base = self._keys.base(namespace)
        (gone,) = await self._db.ask([self._drop.call([base], [index_name(index)])], base)
        return bool(gone)

    async def complete(self, namespace: str) -> list[RecordIndex]:
        """See RecordIndexes."""
        base = self._keys.base(namespace)
        (found,) = await self._db.do(self._list, [base], base)
        return found

    async def find(
        self, namespace: str, index: RecordIndex, span: Span, *, limit: int
    ) -> tuple[list[ListedRecord], bool] | None:
        """See RecordIndexes. The keys are found in one moment, and read afterwards."""
        base = self._keys.base(namespace)
        low = f"[{span.lead}\0{span.low}".encode()
        high = f"({span.lead}\0{span.high}\x01".encode()  # above every key at `high`
        arguments = [index_name(index), low, high, span.prefix.encode(), b"%d" % (limit + 1)]
        (found,) = await self._db.ask([self._find.call([base], arguments)], base)
        if found is None:
            return None
        return await self._read(namespace, found[:limit]), len(found) > limit

    async def _read(self, namespace: str, found: Sequence[bytes]) -> list[ListedRecord]:
        listed: list[ListedRecord] = []
        for at in range(0, len(found), _READ_PAGE):
            page = await self._records.read(namespace, found[at : at + _READ_PAGE])
            listed += [ListedRecord(key, kept.stored) for key, kept in page if kept.stored]
        return listed


class ListIndexes:
    """The complete indexes of a namespace, given its base. See Operation."""

    writes = False
    timed = False
    joins = False

    def command(self, item: bytes, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # reading again is always safe
        return (b"HGETALL", item + b":indexes")

    def answer(self, reply: Reply, item: bytes) -> list[RecordIndex]:
        """See Operation."""
        del item
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return [index_named(name) for name, state in pairs if state == _COMPLETE]

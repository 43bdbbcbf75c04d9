"""The log of changes of records: see read_changes.lua."""

from __future__ import annotations

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.records import RedisRecords
from holdfast.backends.redis.script import Script
from holdfast.backends.redis.stored import whole
from holdfast.facets.feed import Page, Position
from holdfast.facets.records import ChangedRecord, WatchedRecord, lost_changes


class RedisRecordLog:
    """The log of one namespace, by the number of the change. See RecordLog.

    A script is atomic and draws its number itself, so numbers come in the order of commits.
    """

    def __init__(self, db: RedisDb, keys: Keys, records: RedisRecords, namespace: str) -> None:
        self._db = db
        self._records = records
        self._namespace = namespace
        self._base = keys.base(namespace)
        self._clock = keys.clock(self._base)
        self._changes = Script("read_changes")

    async def present(
        self, namespace: str, *, prefix: str, after: str | None, limit: int, since: Position
    ) -> tuple[list[WatchedRecord], str | None]:
        """See RecordLog."""
        kept, last = await self._records.kept(namespace, prefix=prefix, after=after, limit=limit)
        return [
            WatchedRecord(key, one.stored, one.number, one.number > since.seq)
            for key, one in kept
            if one.stored
        ], last

    async def position(self) -> Position:
        """See RecordLog."""
        return Position(0, 0, await self._records.number(self._namespace))

    async def end(self) -> Position:
        """See RecordLog."""
        return await self.position()

    async def changes(
        self, namespace: str, *, prefix: str, after: Position, limit: int
    ) -> Page[ChangedRecord]:
        """See RecordLog."""
        del namespace  # it is the log's own
        command = self._changes.call(
            [self._base, self._clock], [b"%d" % after.seq, b"%d" % limit, prefix.encode()]
        )
        (reply,) = await self._db.ask([command], self._base)
        if reply is None:
            raise lost_changes(after)
        now, upto, more, *entries = reply
        changes = []
        for at in range(0, len(entries), 3):
            number, key, flat = entries[at : at + 3]
            place = Position(0, 0, int(number))
            kept = whole(int(now), flat)
            changes.append(ChangedRecord(place, key.decode(), int(number), kept.stored))
        return Page(changes, Position(0, 0, int(upto)), more=bool(more), held_back=False)

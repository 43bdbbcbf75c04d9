"""Records on Redis: each operation is one script on the namespace's keys."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import msgspec

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import META, Keys, lex_range
from holdfast.backends.redis.namespaces import RedisNamespaces
from holdfast.backends.redis.pipeline import Timed
from holdfast.backends.redis.protocol import Command
from holdfast.backends.redis.records_row import pack_write
from holdfast.backends.redis.script import Script
from holdfast.backends.redis.stored import Kept, read_kept
from holdfast.facets.records import (
    LOG,
    ListedRecord,
    RecordKey,
    RecordWrite,
    StoredRecord,
    uncertain,
)
from holdfast.runtime import Topic

_UNCERTAIN, _REFUSED = -1, 0


class RedisRecords:
    """See RecordsBackend."""

    def __init__(self, db: RedisDb, keys: Keys, namespaces: RedisNamespaces) -> None:
        self._db = db
        self._keys = keys
        self._namespaces = namespaces
        self._spaces: dict[str, Space] = {}
        self._write = WriteRecords()
        self._read = ReadRecords(keys)
        self._anew = Script("read_record")
        self._purge = Script("purge_records")

    def write(self, writes: Sequence[RecordWrite], size: int) -> Awaitable[Sequence[bool]]:
        """See RecordsBackend."""
        first = writes[0]
        space = self._spaces.get(first.key[0])
        if space is None or first.begun >= space.listed_until:
            return self._write_first(writes, size)
        if len(writes) == 1:  # as nearly always
            items = [SeenWrite(first, space, space.seen)]
        else:
            items = [SeenWrite(write, space, space.seen) for write in writes]
        return self._db.do(self._write, items, space.base, size=size, topic=space.topic)

    async def _write_first(self, writes: Sequence[RecordWrite], size: int) -> Sequence[bool]:
        """The same, for a namespace that this store has not written to lately."""
        namespace = writes[0].key[0]
        listed_until = await self._namespaces.note(namespace)
        space = self._spaces.get(namespace)
        if space is None:
            base = self._keys.base(namespace)
            begin = self._write.script.call([base, self._keys.clock(base)], [])
            seen = await self.number(namespace)
            space = self._spaces.setdefault(namespace, Space(base, begin, (LOG, namespace), seen))
        space.listed_until = listed_until
        return await self.write(writes, size)

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """See RecordsBackend."""
        (found,) = await self._db.do(self._read, [(key, fields)], self._keys.base(key[0]))
        return (found or await self._read_anew((key, fields))).stored

    async def read(
        self, namespace: str, keys: Sequence[bytes], fields: tuple[str, ...] | None = None
    ) -> list[tuple[str, Kept]]:
        """The records with these keys, also those that are no longer there."""
        items: list[ReadItem] = [((namespace, key.decode()), fields) for key in keys]
        found = await self._db.do(self._read, items, self._keys.base(namespace))
        return [
            (item[0][1], kept or await self._read_anew(item))
            for item, kept in zip(items, found, strict=True)
        ]

    async def page(
        self,
        namespace: str,
        *,
        prefix: str,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None,
    ) -> tuple[list[ListedRecord], str | None]:
        """See RecordsBackend."""
        kept, last = await self.kept(
            namespace, prefix=prefix, after=after, limit=limit, fields=fields
        )
        return [ListedRecord(key, one.stored) for key, one in kept if one.stored], last

    async def kept(
        self,
        namespace: str,
        *,
        prefix: str,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> tuple[list[tuple[str, Kept]], str | None]:
        """Like `page`, with what is kept besides, and those that are no longer there.

        First the keys, then each record: nobody waits for us to read them all.
        """
        base = self._keys.base(namespace)
        span = (*lex_range(prefix, after), b"LIMIT", b"0", b"%d" % limit)
        (keys,) = await self._db.ask([(b"ZRANGEBYLEX", base + b":keys", *span)], base)
        found = await self.read(namespace, keys, fields) if keys else []
        return found, found[-1][0] if len(found) == limit else None

    async def purge(self, limit: int) -> int:
        """See RecordsBackend."""
        gone = 0
        for name in await self._namespaces.listed():
            base = self._keys.base(name)
            command = self._purge.call([base, self._keys.clock(base)], [b"%d" % (limit - gone)])
            (removed,) = await self._db.ask([command], base)
            gone += removed
            if removed:
                await self._db.tell((LOG, name))
            if gone == limit:
                break
        return gone

    async def _read_anew(self, item: ReadItem) -> Kept:
        """The record as of one moment, for one whose time may have run out while it was read."""
        (namespace, key), fields = item
        base = self._keys.base(namespace)
        names = [] if fields is None else [META, *(field.encode() for field in fields)]
        command = self._anew.call([base, self._keys.clock(base)], [key.encode(), *names])
        ((now, reply),) = await self._db.ask([command], base)
        return read_kept(int(now), reply, fields)

    async def number(self, namespace: str) -> int:
        """The number of the last change in the namespace."""
        base = self._keys.base(namespace)
        commands = [(b"HGET", base + b":log", b"n"), (b"GET", base + b":number")]
        number, older = await self._db.ask(commands, base)
        return int((number or older or b"0").rstrip(b"!"))


class Space(msgspec.Struct, eq=False):
    """What the store knows of a namespace that it writes to."""

    base: bytes
    begin: list[bytes]  # of the command that writes
    topic: Topic
    seen: int  # the number of the last change that was answered
    listed_until: float = 0.0  # by time.monotonic(): see RedisNamespaces


class SeenWrite(msgspec.Struct, frozen=True, gc=False):
    """A write, and the number of the last change in its namespace that we knew of before."""

    write: RecordWrite
    space: Space
    seen: int


class WriteRecords:
    """All writes, by the table in facets/records.py. See Operation."""

    writes = True
    timed = False
    joins = True

    def __init__(self) -> None:
        self.script = Script("write_records")

    def command(self, item: SeenWrite, *, repeat: bool) -> list[bytes]:
        """See Operation."""
        return [*item.space.begin, self.word(item, repeat=repeat)]

    def begin(self, item: SeenWrite) -> list[bytes]:
        """See Joining."""
        return item.space.begin

    def word(self, item: SeenWrite, *, repeat: bool) -> bytes:
        """See Joining."""
        return pack_write(item.write, item.seen, repeat=repeat)

    def answer(self, reply: int, item: SeenWrite) -> bool:
        """See Operation."""
        if reply <= _REFUSED:
            if reply == _UNCERTAIN:
                raise uncertain(item.write)
            return False
        # Threads may overwrite each other here: a lower number is only more careful.
        item.space.seen = max(item.space.seen, reply - 1)
        return True


ReadItem = tuple[RecordKey, tuple[str, ...] | None]
"""A record, and which of its fields; None for all."""


class ReadRecords:
    """Records by their keys; None for one whose time may have run out meanwhile. See Operation."""

    writes = False
    timed = True
    joins = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def command(self, item: ReadItem, *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # reading again is always safe
        (namespace, key), fields = item
        record = self._keys.base(namespace) + b":r:" + key.encode()
        if fields is None:
            return (b"HGETALL", record)
        return (b"HMGET", record, META, *(field.encode() for field in fields))

    def answer(self, reply: Timed, item: ReadItem) -> Kept | None:
        """See Operation."""
        early_us, late_us, found = reply
        kept = read_kept(early_us, found, item[1])
        if kept.stored is None or kept.stored.ttl_us is None:
            return kept
        return kept if kept.stored.ttl_us > late_us - early_us else None

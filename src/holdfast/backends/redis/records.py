"""Records on Redis: each operation is one script on the namespace's keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.backends.redis.db import RedisDb
from holdfast.backends.redis.keys import META, Keys, lex_range
from holdfast.backends.redis.protocol import Command, Reply
from holdfast.backends.redis.script import Script
from holdfast.facets.records import (
    LOG,
    Fields,
    ListedRecord,
    RecordKey,
    RecordWrite,
    Stamp,
    StoredRecord,
    possibly_done_us,
    uncertain,
)

_OP_BYTES = 16
_APPLIED, _REFUSED = 1, 0


class RedisRecords:
    """See RecordsBackend."""

    def __init__(self, db: RedisDb, keys: Keys) -> None:
        self._db = db
        self._keys = keys
        self._write = WriteRecords(keys)
        self._read = ReadRecords(keys)
        self._page = Script("page_records")
        self._purge = Script("purge_records")
        self._listed: set[str] = set()  # namespaces that the store knows to be in its list

    async def write(self, writes: Sequence[RecordWrite], size: int) -> Sequence[bool]:
        """See RecordsBackend."""
        if not writes:
            return []
        (namespace, _) = writes[0].key
        if namespace not in self._listed:
            await self._list(namespace)
        return await self._db.do(
            self._write,
            writes,
            self._keys.base(namespace),
            size=size,
            topic=(LOG, namespace),
        )

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """See RecordsBackend."""
        (found,) = await self._db.do(self._read, [(key, fields)], self._keys.base(key[0]))
        return found

    async def get_all(self, namespace: str, keys: Sequence[str]) -> Sequence[StoredRecord | None]:
        """The records with these keys as they are now."""
        items = [((namespace, key), None) for key in keys]
        return await self._db.do(self._read, items, self._keys.base(namespace))

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
        """Like `page`, with what is kept besides, and those that are no longer there."""
        base = self._keys.base(namespace)
        low, high = lex_range(prefix, after)
        command = self._page.call(
            [base, self._keys.clock(base)],
            [low, high, b"%d" % limit, *(field.encode() for field in fields or ())],
        )
        # Without any field to read, `fields` would mean all of them.
        if fields is not None and not fields:
            command.append(META)
        ((now, *rest),) = await self._db.ask([command], base)
        found = list(_kept_of(int(now), rest, fields))
        return found, found[-1][0] if len(found) == limit else None

    async def purge(self, limit: int) -> int:
        """See RecordsBackend."""
        gone = 0
        key = self._keys.namespaces
        (namespaces,) = await self._db.ask([(b"SMEMBERS", key)], key)
        for name in sorted(namespaces):
            base = self._keys.base(name.decode())
            command = self._purge.call([base, self._keys.clock(base)], [b"%d" % (limit - gone)])
            (removed,) = await self._db.ask([command], base)
            gone += removed
            if removed:
                self._db.subscriber.tell([(LOG, name.decode())])
            if gone == limit:
                break
        return gone

    async def _list(self, namespace: str) -> None:
        command = (b"SADD", self._keys.namespaces, namespace.encode())
        await self._db.ask([command], self._keys.namespaces)
        self._listed.add(namespace)


class WriteRecords:
    """All writes, by the table in facets/records.py. See Operation."""

    writes = True

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._script = Script("write_record")

    def command(self, item: RecordWrite, *, repeat: bool) -> Command:
        """See Operation."""
        (namespace, key), expect, settings, replace, must_exist, ttl_us, op_id, _ = item
        base = self._keys.base(namespace)
        doubt = possibly_done_us(item) if repeat else -1
        return self._script.call(
            [base, self._keys.clock(base)],
            [
                key.encode(),
                op_id,
                b"%d" % ttl_us,
                b"%d" % replace,
                b"%d" % must_exist,
                b"%d" % doubt,
                b"%d" % len(expect),
                *_expected(expect),
                *_set(settings),
            ],
        )

    def answer(self, reply: Reply, item: RecordWrite) -> bool:
        """See Operation."""
        if reply not in (_APPLIED, _REFUSED):
            raise uncertain(item)
        return bool(reply == _APPLIED)


class ReadRecords:
    """Records by their keys. See Operation."""

    writes = False

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._script = Script("read_record")

    def command(self, item: tuple[RecordKey, tuple[str, ...] | None], *, repeat: bool) -> Command:
        """See Operation."""
        del repeat  # reading again is always safe
        (namespace, key), fields = item
        base = self._keys.base(namespace)
        names = () if fields is None else fields or ("\0",)
        return self._script.call(
            [base, self._keys.clock(base)], [key.encode(), *(name.encode() for name in names)]
        )

    def answer(
        self, reply: Reply, item: tuple[RecordKey, tuple[str, ...] | None]
    ) -> StoredRecord | None:
        """See Operation."""
        now, *rest = reply
        return _kept(int(now), rest, item[1]).stored


class Kept:
    """A record as it is kept; `stored` is None if it is not there, or not any more."""

    __slots__ = ("number", "stored")

    def __init__(self, stored: StoredRecord | None, number: int) -> None:
        self.stored = stored
        self.number = number  # of its newest change


def whole(now_us: int, flat: list[bytes]) -> Kept:
    """The record whose fields and values, one after the other, are these."""
    names = iter(flat)
    found = dict(zip(names, names, strict=True))
    return _seen(now_us, found.pop(META, None), {k.decode(): v for k, v in found.items()}, found)


def _kept_of(
    now_us: int, rest: list[Reply], fields: tuple[str, ...] | None
) -> Iterator[tuple[str, Kept]]:
    width = 2 if fields is None else 3
    for at in range(0, len(rest), width):
        yield rest[at].decode(), _kept(now_us, rest[at + 1 : at + width], fields)


def _kept(now_us: int, rest: list[Reply], fields: tuple[str, ...] | None) -> Kept:
    if fields is None:
        return whole(now_us, rest[0])
    length, (meta, *values) = rest
    found = {k: v for k, v in zip(fields, values, strict=False) if v is not None}
    return _seen(now_us, meta, found, length > 1)


def _seen(now_us: int, meta: bytes | None, fields: Fields, there: object) -> Kept:
    if meta is None:
        return Kept(None, 0)
    _, expires, number = map(int, meta[_OP_BYTES:].split(b":"))
    if not there or (expires and expires <= now_us):
        return Kept(None, number)
    return Kept(StoredRecord(fields, expires - now_us if expires else None), number)


def _expected(expect: Mapping[str, bytes | None]) -> Iterator[bytes]:
    for field, value in expect.items():
        yield from (field.encode(), b"0" if value is None else b"1", value or b"")


def _set(settings: Mapping[str, bytes | Stamp | None]) -> Iterator[bytes]:
    for field, value in settings.items():
        if value is None:
            yield from (field.encode(), b"d", b"")
        elif isinstance(value, Stamp):
            yield from (field.encode(), b"s", b"%d" % value.after_us)
        else:
            yield from (field.encode(), b"v", value)

"""Records: one message each, with all its fields.

    {"state": "pending"} until 12:00    [{"state": "pending"}, 12:00, 11:59, op, 41]   Nats-TTL: 61
    deleted                             [{}, 0, 11:59, op, 42]                  Nats-TTL: 25 hours

41 is the message that this one replaced (see change.py). An expired record is absent by the
store's clock at once. The server removes its message a little later, and leaves a marker
without content, so that a watch hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.backends.nats.change import Decided, Writer
from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.entries import Entry
from holdfast.backends.nats.names import Names
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.backends.nats.shapes import MARKER_SECS
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place
from holdfast.clock import MICROSECONDS
from holdfast.errors import StoreError
from holdfast.facets.records import (
    Fields,
    ListedRecord,
    RecordKey,
    RecordWrite,
    StoredRecord,
    apply_write,
    expiry,
    uncertain,
)

KIND = "records"
_PAGE_BYTES = 8 * 1024 * 1024
_READ_AT_ONCE = 256


class Body(msgspec.Struct, array_like=True, frozen=True):
    """A record's message."""

    fields: Fields
    expires_at: int  # 0: never
    updated_at: int
    op_id: bytes
    base: int

    def live(self, now_us: int) -> bool:
        """True if there is such a record."""
        return bool(self.fields) and (not self.expires_at or now_us < self.expires_at)

    def stored(self, now_us: int, fields: tuple[str, ...] | None = None) -> StoredRecord | None:
        """The record with these fields of it, None when it is absent."""
        if not self.live(now_us):
            return None
        chosen = self.fields
        if fields is not None:
            chosen = {field: chosen[field] for field in fields if field in chosen}
        return StoredRecord(chosen, self.expires_at - now_us if self.expires_at else None)


_NOTHING = Body({}, 0, 0, b"", 0)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


def body_of(found: Entry | None) -> Body:
    """What the message says; of none, and of a marker, that there is nothing."""
    return _decode(found.data) if found is not None and found.data else _NOTHING


class NatsRecords:
    """See RecordsBackend."""

    def __init__(
        self,
        db: NatsDb,
        stream: Stream,
        clock: NatsClock,
        writer: Writer,
        names: Names,
        *,
        namespaces: Namespaces,
    ) -> None:
        self._db = db
        self._stream = stream
        self._clock = clock
        self._writer = writer
        self._names = names
        self._namespaces = namespaces

    def place(self, namespace: str) -> Place:
        """Where the namespace's records are."""
        return Place(self._stream.root, KIND, namespace)

    async def write(self, writes: Sequence[RecordWrite], size: int) -> Sequence[bool]:
        """See RecordsBackend."""
        del size
        return await self._db.run(self._write(writes))

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """See RecordsBackend."""
        return await self._db.run(self._get(key, fields))

    async def page(
        self,
        namespace: str,
        *,
        prefix: str,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None,
    ) -> tuple[list[ListedRecord], str | None]:
        """See RecordsBackend. A page ends early when it is large."""
        found, last, now_us = await self._db.run(self.read(namespace, prefix, after, limit))
        listed = ((key, body.stored(now_us, fields)) for key, _, body in found)
        return [ListedRecord(key, stored) for key, stored in listed if stored is not None], last

    async def purge(self, limit: int) -> int:
        """See RecordsBackend. The server does it, unless a test has moved the store's clock."""
        return await self._db.run(self._purge(limit))

    async def read(
        self, namespace: str, prefix: str, after: str | None, limit: int
    ) -> tuple[list[tuple[str, int, Body]], str | None, int]:
        """A page with all that was looked at, the last key of it, and the time of reading."""
        deadline = self._stream.deadline()
        place = self.place(namespace)
        window = await self._names.above(place, prefix, after, deadline, newest=False)
        names = window.names[window.at : window.at + limit]
        found: list[tuple[str, int, Body]] = []
        used = size = 0
        subjects = [place.subject(name) for name in names]
        async for some, entries in self._stream.get_pages(subjects, deadline):
            for subject in some:
                if entry := entries.get(subject):
                    found.append((names[used], entry.seq, body_of(entry)))
                    size += len(entry.data)
                used += 1
            if size >= _PAGE_BYTES:
                break
        last = self._names.keep(place, prefix, window, used) if names else None
        return found, last, await self._clock.now_us(deadline)

    async def _get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        deadline = self._stream.deadline()
        namespace, name = key
        body = body_of(await self._stream.get(self.place(namespace).subject(name), deadline))
        now_us = await self._clock.now_us(deadline) if body.expires_at else 0
        return body.stored(now_us, fields)

    async def _write(self, writes: Sequence[RecordWrite]) -> list[bool]:
        deadline = self._stream.deadline()
        for namespace in {write.key[0] for write in writes}:
            await self._namespaces.note(namespace, deadline)
        changes = [RecordChange(self.place(w.key[0]).subject(w.key[1]), w) for w in writes]
        if len(changes) == 1:
            return [await self._writer.write(changes[0], deadline)]
        # Those of one record wait for each other's turn, which is given in order.
        tasks = [asyncio.ensure_future(self._writer.write(one, deadline)) for one in changes]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [bool(outcome) for outcome in outcomes]

    async def _purge(self, limit: int) -> int:
        if not self._clock.moved:
            return 0
        deadline = self._stream.deadline()
        everything = f"{self._stream.root}.{KIND}.>"
        gone = after = 0
        left = 1
        while left and gone < limit:
            entries, left = await self._stream.log(everything, after, _READ_AT_ONCE, deadline)
            now_us = await self._clock.now_us(deadline)
            for entry in entries:
                after = entry.seq
                body = body_of(entry)
                if body.fields and not body.live(now_us) and gone < limit:
                    gone += await self._writer.write(Removal(entry.subject, entry.seq), deadline)
        return gone


class RecordChange:
    """A write as change.py carries it out."""

    def __init__(self, subject: str, write: RecordWrite) -> None:
        self.subject = subject
        self._write = write

    def known(self, found: Entry | None) -> Decided[bool] | None:
        """See Change."""
        return Decided(answer=True) if body_of(found).op_id == self._write.op_id else None

    def decide(self, found: Entry | None, now_us: int) -> Decided[bool]:
        """See Change."""
        write, body = self._write, body_of(found)
        live = body.live(now_us)
        fields = apply_write(write, body.fields if live else {}, now_us)
        if fields is None or not (fields or live):
            return Decided(answer=fields is not None)  # applied: it was absent, and it is
        until = expiry(write, (body.expires_at or None) if live else None, now_us)
        base = found.seq if found else 0
        after = Body(fields, until or 0, now_us, write.op_id, base)
        return _stored(after, now_us)

    def surely_undone(self, found: Entry | None, base: int | None) -> bool:
        """See Change. A marker of the server proves nothing: ours may have expired."""
        return found is not None and found.data != b"" and body_of(found).base == base

    def uncertain(self) -> StoreError:
        """See Change."""
        return uncertain(self._write)


class Removal:
    """Puts an expired record out of the way, if it still is what was seen."""

    def __init__(self, subject: str, seq: int) -> None:
        self.subject = subject
        self._seq = seq

    def known(self, found: Entry | None) -> Decided[bool] | None:
        """See Change."""
        del found
        return None

    def decide(self, found: Entry | None, now_us: int) -> Decided[bool]:
        """See Change."""
        if found is None or found.seq != self._seq:
            return Decided(answer=False)
        return _stored(Body({}, 0, now_us, b"", found.seq), now_us)

    def surely_undone(self, found: Entry | None, base: int | None) -> bool:
        """See Change. Whoever did it, it is done."""
        del found, base
        return True

    def uncertain(self) -> StoreError:
        """See Change."""
        raise NotImplementedError


def _stored(body: Body, now_us: int) -> Decided[bool]:
    """The write is applied, and this is stored: the server removes it late rather than early."""
    data = _encode(body)
    if not body.fields:
        return Decided(True, data, MARKER_SECS, marker=True)
    if not body.expires_at:
        return Decided(True, data)
    return Decided(True, data, -((now_us - body.expires_at) // MICROSECONDS) + 1)

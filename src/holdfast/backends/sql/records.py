r"""Records on an SQL engine: one row each, its fields packed.

On SQLite as MessagePack, which has bytes. On PostgreSQL, whose functions work on them, and in
older rows of SQLite as a JSON object of texts:

    {"state": b"pending", "n": b"7"}   ->  {"state":"pending","n":"7"}
    {"raw": b"\xff"}                   ->  {"raw":"\u0001/w=="}

What is not UTF-8, holds a NUL (which PostgreSQL cannot keep) or begins with the mark U+0001 is
written as the mark and base64. So each value has one form, and equal forms are equal values.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.backends.batching import Batch
from holdfast.backends.sql.db import Db, Row
from holdfast.backends.sql.feed import Feed
from holdfast.errors import Corrupt
from holdfast.facets.feed import BEGINNING, Page, Position
from holdfast.facets.names import next_name, prefix_end
from holdfast.facets.records import (
    LOG,
    ChangedRecord,
    Fields,
    ListedRecord,
    RecordIndex,
    RecordWrite,
    Span,
    StoredRecord,
    WatchedRecord,
    lost_changes,
)

_MARK = "\x01"
_CONTROL_TEXT = "\\u000"  # as JSON has it
_CONTROL = _CONTROL_TEXT.encode()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode
_from_bytes = msgspec.msgpack.Decoder(Fields).decode


to_bytes = msgspec.msgpack.Encoder().encode
"""The fields as SQLite keeps them."""


def to_json(fields: Mapping[str, bytes | None]) -> bytes:
    """The fields as PostgreSQL keeps them; None, which only a change has, becomes null."""
    try:
        texts = map(bytes.decode, fields.values())  # type: ignore[arg-type]
        packed = _encode(dict(zip(fields, texts, strict=True)))
        if _CONTROL not in packed:  # neither a NUL nor a mark anywhere
            return packed
    except (TypeError, UnicodeDecodeError):
        pass  # a value is None or not UTF-8
    return _encode({n: None if v is None else _text(v) for n, v in fields.items()})


def unpack(packed: str | bytes) -> Fields:
    """The fields that were kept so."""
    try:
        if type(packed) is bytes:
            return _from_bytes(packed)
        texts = _decode(packed)
        if _CONTROL_TEXT in packed:
            return {name: _bytes(text) for name, text in texts.items()}
        return {name: text.encode() for name, text in texts.items()}
    except (msgspec.DecodeError, ValueError) as exc:
        raise Corrupt(f"the fields of a record cannot be read: {exc}") from exc


def stored(packed: str | bytes | None, left_us: int | None) -> StoredRecord | None:
    """A row's record; None if it was deleted or its time is up."""
    if packed is None or (left_us is not None and left_us <= 0):
        return None
    return StoredRecord(unpack(packed), left_us)


class IndexOrder(NamedTuple):
    """What is to be done about an index."""

    namespace: str
    over: RecordIndex


class Purged(NamedTuple):
    """How many records are gone, and how many entries of the log."""

    gone: int
    cut: int


class RecordBatches(NamedTuple):
    """The writing operations, as each engine does them."""

    write: Batch[RecordWrite, bool | None]
    """None: it cannot be told."""
    purge: Batch[int, Purged]
    """Up to so many of each."""
    create: Batch[IndexOrder, None]
    fill: Batch[IndexOrder, bool]
    drop: Batch[IndexOrder, bool]


class RecordQueries(NamedTuple):
    """Queries that engines word differently, and the parameters for the clock."""

    list: str
    find: str
    indexes: str
    lost: str
    """Whether entries of the log above a position are gone."""
    position: str
    end: str
    changes: str
    clock: Callable[[], dict[str, object]]


class SqlRecords:
    """Records on an SQL engine; each engine adds its own `get`. See RecordsBackend, RecordLog."""

    def __init__(self, db: Db, batches: RecordBatches, own: RecordQueries) -> None:
        self._db = db
        self._batches = batches
        self._own = own
        self._feed = Feed(db, position=own.position, end=own.end, changes=own.changes)
        self.position = self._feed.position
        self.end = self._feed.end

    def write(self, writes: Sequence[RecordWrite], size: int) -> Awaitable[Sequence[bool | None]]:
        """See RecordsBackend."""
        return self._db.write(self._batches.write, writes, size, (LOG, writes[0].key[0]))

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
        del fields  # a row comes whole
        rows = await self._rows(namespace, prefix, after, limit)
        found = [ListedRecord(row[0], record) for row in rows if (record := stored(*row[1:3]))]
        return found, rows[-1][0] if len(rows) == limit else None

    async def present(
        self, namespace: str, *, prefix: str, after: str | None, limit: int, since: Position
    ) -> tuple[list[WatchedRecord], str | None]:
        """See RecordLog."""
        rows = await self._rows(namespace, prefix, after, limit, since)
        found = [
            WatchedRecord(row[0], record, row[3], bool(row[4]))
            for row in rows
            if (record := stored(*row[1:3]))
        ]
        return found, rows[-1][0] if len(rows) == limit else None

    async def changes(
        self, namespace: str, *, prefix: str, after: Position, limit: int
    ) -> Page[ChangedRecord]:
        """See RecordLog."""
        params = {"namespace": namespace, "first": prefix, "end": prefix_end(prefix)}
        page = await self._feed.read(after, limit, {**params, **self._own.clock()})
        # After the page: what went before it was read is known by now.
        ((lost,),) = await self._db.fetch(
            self._own.lost, {"namespace": namespace, **after._asdict()}
        )
        if lost:
            raise lost_changes(after)
        return page.of(
            [
                ChangedRecord(place, key, place.seq, stored(packed, left_us))
                for place, (key, packed, left_us) in page.changes
            ]
        )

    async def purge(self, limit: int) -> int:
        """See RecordsBackend. The log is cut to its end, in as many steps as that takes."""
        gone, cut = await self.purge_some(limit)
        while cut == limit and gone < limit:
            more, cut = await self.purge_some(limit)
            gone += more
        return gone

    async def purge_some(self, limit: int) -> Purged:
        """One step of it."""
        (purged,) = await self._db.write(self._batches.purge, [limit])
        return purged

    async def create(self, namespace: str, index: RecordIndex) -> None:
        """See RecordIndexes."""
        await self._db.write(self._batches.create, [IndexOrder(namespace, index)])

    async def fill(self, namespace: str, index: RecordIndex) -> bool:
        """See RecordIndexes."""
        (complete,) = await self._db.write(self._batches.fill, [IndexOrder(namespace, index)])
        return complete

    async def drop(self, namespace: str, index: RecordIndex) -> bool:
        """See RecordIndexes."""
        (there,) = await self._db.write(self._batches.drop, [IndexOrder(namespace, index)])
        return there

    async def complete(self, namespace: str) -> list[RecordIndex]:
        """See RecordIndexes."""
        rows = await self._db.fetch(self._own.indexes, {})
        return [
            index
            for _, home, index, upto in map(index_row, rows)
            if home == namespace and upto is None
        ]

    async def find(
        self, namespace: str, index: RecordIndex, span: Span, *, limit: int
    ) -> tuple[list[ListedRecord], bool] | None:
        """See RecordIndexes."""
        rows = await self._db.fetch(self._own.indexes, {})
        for index_id, home, known, upto in map(index_row, rows):
            if (home, known, upto) == (namespace, index, None):
                return await self._found(namespace, index_id, span, limit)
        return None

    async def _found(
        self, namespace: str, index_id: int, span: Span, limit: int
    ) -> tuple[list[ListedRecord], bool]:
        params = {
            "namespace": namespace,
            "id": index_id,
            "lead": span.lead,
            "low": span.low,
            "high": span.high,
            "first": span.prefix,
            "end": prefix_end(span.prefix),
            "limit": limit,
        }
        rows = await self._db.fetch(self._own.find, {**params, **self._own.clock()})
        found = [ListedRecord(row[0], record) for row in rows if (record := stored(*row[1:]))]
        return found, len(rows) == limit

    async def _rows(
        self,
        namespace: str,
        prefix: str,
        after: str | None,
        limit: int,
        since: Position = BEGINNING,
    ) -> list[Row]:
        params = {
            "namespace": namespace,
            "first": max(prefix, next_name(after)),
            "end": prefix_end(prefix),
            "limit": limit,
            "since_epoch": since.epoch,
            "since_xid": since.xid,
            "since_seq": since.seq,
        }
        return await self._db.fetch(self._own.list, {**params, **self._own.clock()})


def index_row(row: Row) -> tuple[int, str, RecordIndex, str | None]:
    """An index: its id, namespace, what it is over, and the key up to which it is filled.

    None instead of the key: it is complete.
    """
    index_id, namespace, prefix, fields, filled_upto = row
    return index_id, namespace, RecordIndex(prefix, tuple(msgspec.json.decode(fields))), filled_upto


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _MARK + base64.b64encode(value).decode()
    if "\0" in text or text[:1] == _MARK:
        return _MARK + base64.b64encode(value).decode()
    return text


def _bytes(text: str) -> bytes:
    return base64.b64decode(text[1:], validate=True) if text[:1] == _MARK else text.encode()

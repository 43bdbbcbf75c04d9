"""Records on PostgreSQL: each batch is one statement, one round trip, one transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple

from holdfast.backends.postgres.arrays import bigints, booleans, jsons, texts, uuids
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.queries import Dialect, load
from holdfast.backends.sql.records import (
    IndexOrder,
    Purged,
    RecordBatches,
    RecordQueries,
    SqlRecords,
    stored,
    to_json,
)
from holdfast.errors import StoreError
from holdfast.facets.names import prefix_end
from holdfast.facets.records import RecordKey, RecordWrite, Stamp, StoredRecord, asked_ago_us

_log = logging.getLogger("holdfast.records")
_FILL_PAGE = 1000  # records per transaction, whose rows are locked meanwhile
_PURGE_EVERY, _PURGE_SLICE = 200, 400  # calls, and rows: twice of what they can leave


class PostgresRecords(SqlRecords):
    """See RecordsBackend, RecordIndexes and RecordLog."""

    def __init__(self, db: PostgresScope, dialect: Dialect, *, inside: bool = False) -> None:
        queries = load(__package__, "records.sql", dialect)
        feed = load(__package__, "cells.sql", dialect)
        batches = RecordBatches(
            write=WriteRecords(queries),
            purge=PurgeRecords(queries["purge_records"]),
            create=CreateIndex(queries["create_index"]),
            fill=FillIndex(queries["fill_index"]),
            drop=DropIndex(queries["drop_index"], queries["drop_entries"]),
        )
        own = RecordQueries(
            list=queries["list_records"],
            find=queries["find_records"],
            indexes=queries["list_indexes"],
            lost=queries["is_lost"],
            position=feed["find_position"],
            end=feed["find_end"],
            changes=queries["read_changes"],
            clock=dict,  # the server's
        )
        super().__init__(db, batches, own)
        self._postgres = db
        self._read = ReadRecords(queries["get_records"])
        self._inside = inside  # a transaction, which is no place to tidy up
        self._until_purge = _PURGE_EVERY

    def write(self, writes: Sequence[RecordWrite], size: int) -> Awaitable[Sequence[bool | None]]:
        """See RecordsBackend."""
        self._until_purge -= 1
        if self._until_purge <= 0 and not self._inside:
            self._until_purge = _PURGE_EVERY
            return self._write_and_purge(writes, size)
        return super().write(writes, size)

    async def _write_and_purge(
        self, writes: Sequence[RecordWrite], size: int
    ) -> Sequence[bool | None]:
        answers = await super().write(writes, size)
        try:
            await self.purge_some(_PURGE_SLICE)
        except StoreError as exc:  # the caller's own write is done
            _log.warning("removing expired records failed, trying again later: %s", exc)
        return answers

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """See RecordsBackend."""
        del fields  # a row comes whole
        (found,) = await self._postgres.read(self._read, [key])
        return found


class ReadRecords:
    """Each record as it is now."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[RecordKey], *, repeat: bool
    ) -> list[StoredRecord | None]:
        """See Batch."""
        del repeat  # reading again is always safe
        params = {
            "namespaces": texts(namespace for namespace, _ in items),
            "keys": texts(key for _, key in items),
        }
        return [stored(*row) for row in await on.fetch(self._query, params)]


class WriteRecords:
    """Writes; the same record may come many times.

    Puts of different records, which is most of all writes, are one statement without a look at
    what was there. Where an index has to be kept that answers no, and is not asked again.
    """

    def __init__(self, queries: Mapping[str, str]) -> None:
        self._put_one = queries["put_record"]
        self._put_many = queries["put_records"]
        self._write_one = queries["write_record"]
        self._write_many = queries["write_records"]
        self._indexed: set[str] = set()  # namespaces that have had an index

    async def apply(
        self, on: PgConnection, items: Sequence[RecordWrite], *, repeat: bool
    ) -> list[bool | None]:
        """See Batch."""
        if not repeat and self._are_puts(items) and await self._put(on, items):
            return [True] * len(items)
        writes = [_spelled(write, repeat=repeat) for write in items]
        if len(writes) == 1:
            rows = await on.fetch(self._write_one, writes[0].alone())
        else:
            rows = await on.fetch(self._write_many, _arrays(writes))
        return [applied for (applied,) in rows]

    def _are_puts(self, items: Sequence[RecordWrite]) -> bool:
        if len(items) > 1 and len({write.key for write in items}) < len(items):
            return False
        return all(write.blind and write.key[0] not in self._indexed for write in items)

    async def _put(self, on: PgConnection, items: Sequence[RecordWrite]) -> bool:
        """False if there is an index, and nothing was written."""
        if len(items) == 1:
            ((done,),) = await on.fetch(self._put_one, _put(items[0]))
        else:
            ((done,),) = await on.fetch(self._put_many, _puts(items))
        if not done:
            self._indexed.update(write.key[0] for write in items)
        return bool(done)


class PurgeRecords:
    """Buries what is expired, drops what was buried long ago, and cuts the log."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(self, on: PgConnection, items: Sequence[int], *, repeat: bool) -> list[Purged]:
        """See Batch."""
        del repeat  # purging again is always safe
        return [Purged(*(await on.fetch(self._query, {"limit": limit}))[0]) for limit in items]


class CreateIndex:
    """Notes indexes: every write from now on keeps them."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[None]:
        """See Batch."""
        del repeat  # it is there or not
        for order in items:
            await on.fetch(self._query, _place(order))
        return [None for _ in items]


class FillIndex:
    """Puts a page of older records into an index; True when there are no more."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[bool]:
        """See Batch."""
        del repeat  # a page again is no harm
        answers = []
        for order in items:
            bounds = {"end": prefix_end(order.over.prefix), "limit": _FILL_PAGE}
            ((complete,),) = await on.fetch(self._query, {**_place(order), **bounds})
            answers.append(bool(complete))
        return answers


class DropIndex:
    """True for each index that was there."""

    def __init__(self, index: str, entries: str) -> None:
        self._index = index
        self._entries = entries

    async def apply(
        self, on: PgConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[bool]:
        """See Batch."""
        answers = []
        for order in items:
            ((index_id,),) = await on.fetch(self._index, _place(order))
            if index_id is not None:
                await on.fetch(self._entries, {"id": index_id})
            # After a lost answer it is gone, and most likely by the first try.
            answers.append(repeat or index_id is not None)
        return answers


def _place(order: IndexOrder) -> dict[str, object]:
    prefix, fields = order.over
    return {"namespace": order.namespace, "prefix": prefix, "fields": texts(fields)}


def _put(write: RecordWrite) -> dict[str, object]:
    namespace, key = write.key
    return {
        "namespace": namespace,
        "key": key,
        "set": to_json(write.set).decode(),  # type: ignore[arg-type]  # bytes only: see _are_puts
        "ttl_us": str(write.ttl_us),  # as text: an int's type would depend on its size
        "op_id": write.op_id.hex(),
    }


def _puts(items: Sequence[RecordWrite]) -> dict[str, object]:
    return {
        "namespaces": texts([write.key[0] for write in items]),
        "keys": texts([write.key[1] for write in items]),
        "set": jsons([to_json(write.set) for write in items]),  # type: ignore[arg-type]
        "ttl_us": bigints([write.ttl_us for write in items]),
        "op_ids": uuids([write.op_id for write in items]),
    }


class _Spelled(NamedTuple):
    """A write as hf.write_record knows it."""

    namespace: str
    key: str
    expect: bytes | None
    set: bytes
    stamps: bytes | None
    replace: bool
    must_exist: bool
    ttl_us: int
    op_id: bytes
    asked_ago_us: int | None

    def alone(self) -> dict[str, object]:
        """The parameters of one write."""
        return {
            **self._asdict(),
            "expect": None if self.expect is None else self.expect.decode(),
            "set": self.set.decode(),
            "stamps": None if self.stamps is None else self.stamps.decode(),
            "ttl_us": str(self.ttl_us),
            "op_id": self.op_id.hex(),
            "asked_ago_us": None if self.asked_ago_us is None else str(self.asked_ago_us),
        }


def _spelled(write: RecordWrite, *, repeat: bool) -> _Spelled:
    plain = {name: v for name, v in write.set.items() if not isinstance(v, Stamp)}
    stamps = {name: v for name, v in write.set.items() if isinstance(v, Stamp)}
    return _Spelled(
        *write.key,
        to_json(write.expect) if write.expect else None,
        to_json(plain),
        _after(stamps) if stamps else None,
        write.replace,
        write.must_exist,
        write.ttl_us,
        write.op_id,
        asked_ago_us(write) if repeat else None,
    )


def _after(stamps: dict[str, Stamp]) -> bytes:
    return to_json({name: b"%d" % stamp.after_us for name, stamp in stamps.items()})


def _arrays(writes: list[_Spelled]) -> dict[str, object]:
    return {
        "namespaces": texts(write.namespace for write in writes),
        "keys": texts(write.key for write in writes),
        "expect": jsons(write.expect for write in writes),
        "set": jsons(write.set for write in writes),
        "stamps": jsons(write.stamps for write in writes),
        "replace": booleans(write.replace for write in writes),
        "must_exist": booleans(write.must_exist for write in writes),
        "ttl_us": bigints(write.ttl_us for write in writes),
        "op_ids": uuids(write.op_id for write in writes),
        "asked_ago_us": bigints(write.asked_ago_us for write in writes),
    }

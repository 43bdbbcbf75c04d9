"""Records on PostgreSQL: each batch is one statement, one round trip, one transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from holdfast.backends.postgres.arrays import plain_array, text_array
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
    to_text,
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

    async def write(self, writes: Sequence[RecordWrite], size: int) -> Sequence[bool | None]:
        """See RecordsBackend."""
        answers = await super().write(writes, size)
        self._until_purge -= 1
        if self._until_purge <= 0 and not self._inside:
            self._until_purge = _PURGE_EVERY
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
            "namespaces": text_array(namespace for namespace, _ in items),
            "keys": text_array(key for _, key in items),
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
            rows = await on.fetch(self._write_one, writes[0])
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
    return {"namespace": order.namespace, "prefix": prefix, "fields": text_array(fields)}


def _put(write: RecordWrite) -> dict[str, object]:
    namespace, key = write.key
    return {
        "namespace": namespace,
        "key": key,
        "set": to_text(write.set),  # type: ignore[arg-type]  # bytes only: see _are_puts
        "ttl_us": str(write.ttl_us),  # as text: an int's type would depend on its size
        "op_id": write.op_id.hex(),
    }


def _puts(items: Sequence[RecordWrite]) -> dict[str, object]:
    return {
        "namespaces": text_array([write.key[0] for write in items]),
        "keys": text_array([write.key[1] for write in items]),
        "set": text_array([to_text(write.set) for write in items]),  # type: ignore[arg-type]
        "ttl_us": plain_array([write.ttl_us for write in items]),
        "op_ids": plain_array([write.op_id.hex() for write in items]),
    }


def _spelled(write: RecordWrite, *, repeat: bool) -> dict[str, object]:
    """The parameters of hf.write_record."""
    namespace, key = write.key
    plain = {name: v for name, v in write.set.items() if not isinstance(v, Stamp)}
    stamps = {name: v for name, v in write.set.items() if isinstance(v, Stamp)}
    return {
        "namespace": namespace,
        "key": key,
        "expect": to_text(write.expect) if write.expect else None,
        "set": to_text(plain),
        "stamps": _after(stamps) if stamps else None,
        "replace": write.replace,
        "must_exist": write.must_exist,
        "ttl_us": str(write.ttl_us),
        "op_id": write.op_id.hex(),
        "asked_ago_us": str(asked_ago_us(write)) if repeat else None,
    }


def _after(stamps: dict[str, Stamp]) -> str:
    return to_text({name: b"%d" % stamp.after_us for name, stamp in stamps.items()})


def _arrays(writes: list[dict[str, object]]) -> dict[str, object]:
    def texts(name: str) -> str:
        return text_array(write[name] for write in writes)  # type: ignore[misc]

    def plain(name: str) -> str:
        return plain_array("NULL" if write[name] is None else write[name] for write in writes)

    return {
        "namespaces": texts("namespace"),
        "keys": texts("key"),
        "expect": texts("expect"),
        "set": texts("set"),
        "stamps": texts("stamps"),
        "replace": plain("replace"),
        "must_exist": plain("must_exist"),
        "ttl_us": plain("ttl_us"),
        "op_ids": plain("op_id"),
        "asked_ago_us": plain("asked_ago_us"),
    }

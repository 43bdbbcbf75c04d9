# GENERATED from holdfast/aio/records.py by tools/generate_sync.py: change that file instead.
"""Records: the fields of a thing as they are now, with a time to live.

    store.records.put("jobs.mail.7", {"state": "pending", "tries": 0}, ttl=3600)
    if store.records.compare_and_swap("jobs.mail.7", "state", "pending", "claimed"):
        store.records.set_fields("jobs.mail.7", {"worker": "w1", "updated_at": Stamp()})

Values are bytes; text and whole numbers are accepted and come back as bytes. Time is the
store's clock: an expired record is absent at once, whenever the engine removes it. A write
takes an `op_id`: the same id again, as the record's newest write, changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload
from uuid import UUID

from uuid_utils import uuid7

from holdfast.clock import MICROSECONDS, Duration
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument
from holdfast.facets.backend import Capability, RecordFacets, require
from holdfast.facets.feed import from_cursor
from holdfast.facets.names import operation_id
from holdfast.facets.records import (
    KEEP_TTL,
    LOG,
    NO_TTL,
    FieldValue,
    ListedRecord,
    Record,
    RecordChange,
    RecordIndex,
    RecordWrite,
    Stamp,
    StoredRecord,
    check_field,
    check_key,
    check_key_prefix,
    is_plain_key,
    to_bytes,
    to_settings,
    to_ttl_us,
    uncertain,
)
from holdfast.facets.records_scan import (
    Condition,
    ScanFilter,
    check_filters,
    check_limit,
    check_shown,
    several,
    spans,
)
from holdfast.facets.records_watch import Now, RecordSource
from holdfast.facets.watch import CaughtUp, Seen, Watching
from holdfast.runtime.blocking import run
from holdfast.sync.watch import Watch

_log = logging.getLogger("holdfast.records")
_FIRST_PAGE, _LARGEST_PAGE = 50, 1000
_MOST_FOUND = 10_000  # in an index at a time: they are sorted in memory
_MORE = 8  # times as many are looked at when too few of them matched
_PURGE_PAGE = 200  # per transaction, so that others get their turn

Settings = Mapping[str, FieldValue | Stamp | None]
Expectations = Mapping[str, FieldValue | None]
Indexes = list[RecordIndex]
Found = list[tuple[str, Record]]


class Records:
    """The records of one namespace."""

    def __init__(self, backend: RecordFacets, namespace: str, config: StoreConfig) -> None:
        self._backend = backend
        self._records = backend.records
        self._namespace = namespace
        self._config = config
        self._large = min(config.payload_warn_bytes, config.payload_max_bytes)

    def get(self, key: str) -> Record | None:
        """The record with all its fields, or None when there is none."""
        stored = run(self._records.get((self._namespace, check_key(key)), None))
        return None if stored is None else _record(stored)

    def get_field(self, key: str, field: str) -> bytes | None:
        """The field's value, or None when the record or the field is absent."""
        check_field(field)
        stored = run(self._records.get((self._namespace, check_key(key)), (field,)))
        return None if stored is None else stored.fields.get(field)

    def put(
        self,
        key: str,
        fields: Settings,
        *,
        ttl: Duration | None = None,
        op_id: UUID | str | None = None,
    ) -> None:
        """Replace the whole record, in one atomic step; without `ttl` it stays for ever.

        Without fields it is deleted.
        """
        ttl_us = NO_TTL if ttl is None else to_ttl_us(ttl)
        write, size = self._to_write(key, {}, fields, op_id, replace=True, ttl_us=ttl_us)
        if (run(self._records.write([write], size)))[0] is None:
            raise uncertain(write)

    def delete(self, key: str, *, op_id: UUID | str | None = None) -> bool:
        """True if there was such a record."""
        write, size = self._to_write(
            key, {}, {}, op_id, replace=True, must_exist=True, ttl_us=NO_TTL
        )
        return _applied(write, run(self._records.write([write], size)))

    def set_field(
        self,
        key: str,
        field: str,
        value: FieldValue | Stamp | None,
        *,
        op_id: UUID | str | None = None,
    ) -> None:
        """Set one field and leave the others and the time to live; None removes the field."""
        self.set_fields(key, {field: value}, op_id=op_id)

    def set_fields(self, key: str, fields: Settings, *, op_id: UUID | str | None = None) -> None:
        """Set these fields in one atomic step and leave the others and the time to live.

        None removes a field. An absent record is created with just these, for ever.
        """
        write, size = self._to_write(key, {}, fields, op_id)
        _applied(write, run(self._records.write([write], size)))

    def compare_and_swap(
        self,
        key: str,
        field: str,
        expected: FieldValue | None,
        new: FieldValue | Stamp | None,
        *,
        op_id: UUID | str | None = None,
    ) -> bool:
        """True if the field was as expected and is the new value now; else nothing changes.

        `expected=None` means that the field must be absent; `new=None` removes it.
        """
        return self.compare_and_set(key, expect={field: expected}, set={field: new}, op_id=op_id)

    def compare_and_set(
        self,
        key: str,
        *,
        expect: Expectations,
        set: Settings,  # noqa: A002 - reads as what it does
        op_id: UUID | str | None = None,
    ) -> bool:
        """True if all fields were as expected, and are set now in the same atomic step."""
        if not isinstance(expect, Mapping):
            raise InvalidArgument(f"expect: wanted fields, found {type(expect).__name__}")
        wanted = {
            check_field(field): None if value is None else to_bytes(value, field)
            for field, value in expect.items()
        }
        write, size = self._to_write(key, wanted, set, op_id)
        return _applied(write, run(self._records.write([write], size)))

    def claim(
        self,
        key: str,
        worker: str,
        *,
        timeout: Duration,
        op_id: UUID | str | None = None,
    ) -> bool:
        """True if the task was pending and is this worker's now: one of many gets it.

        Sets `state` to claimed, `worker`, `updated_at`, and `timeout_at`: when that has passed,
        the sweeper gives the task to somebody else.
        """
        return self.compare_and_set(
            key,
            expect={"state": "pending"},
            set={
                "state": "claimed",
                "worker": to_bytes(worker, "worker"),  # None would remove it
                "updated_at": Stamp(),
                "timeout_at": Stamp(_positive(timeout)),
            },
            op_id=op_id,
        )

    def expire(self, key: str, ttl: Duration | None, *, op_id: UUID | str | None = None) -> bool:
        """True if there is such a record: it now lives so long from now, or with None for ever."""
        write, size = self._to_write(key, {}, {}, op_id, must_exist=True, ttl_us=to_ttl_us(ttl))
        return _applied(write, run(self._records.write([write], size)))

    def scan(
        self,
        prefix: str = "",
        *,
        filters: ScanFilter | Iterable[ScanFilter] = (),
        fields: Iterable[str] | None = None,
        max_results: int | None = None,
    ) -> Iterator[tuple[str, Record]]:
        """The keys and records whose keys start with the prefix and that match every filter.

        In byte order of the keys, each at most once, read page by page: what is written
        meanwhile may or may not be seen. With `fields` just these are given. Where an index
        fits (see `create_index`) only what matches is read.
        """
        check_key_prefix(prefix)
        asked = several(filters)
        return self._scan(
            prefix, check_filters(asked), check_shown(fields), check_limit(max_results, asked)
        )

    def _scan(
        self,
        prefix: str,
        conditions: tuple[Condition, ...],
        shown: tuple[str, ...] | None,
        left: int | None,
    ) -> Iterator[tuple[str, Record]]:
        read = None if shown is None else tuple({*shown, *(c.field for c in conditions)})
        page, more = self._find(prefix, conditions, _MOST_FOUND) or (None, False)
        # Where there is more, so much is read as well from key to key.
        page = None if page is None or more else sorted(page)
        found, size, after = page is not None, _FIRST_PAGE, None
        while left != 0:
            if page is None:
                page, after = run(
                    self._records.page(
                        self._namespace, prefix=prefix, after=after, limit=size, fields=read
                    )
                )
            for key, stored in page:
                if left != 0 and all(one.matches(stored.fields) for one in conditions):
                    yield key, _shown(stored, shown)
                    left = None if left is None else left - 1
            if found or after is None:
                return
            page, size = None, min(2 * size, _LARGEST_PAGE)
            run(self._backend.pause())

    def find(
        self, prefix: str = "", *, filters: ScanFilter | Iterable[ScanFilter], limit: int = 100
    ) -> Found:
        """Up to `limit` keys and records that match, read with as little work as possible.

        Unlike a scan's they come in the order of the index that serves, smallest value first.
        """
        check_key_prefix(prefix)
        asked = several(filters)
        conditions = check_filters(asked)
        most = check_limit(limit, asked)
        if most is None:
            raise InvalidArgument("limit: wanted a whole number, found None")
        looked = most
        while 0 < looked <= _MOST_FOUND:
            indexed = self._find(prefix, conditions, looked)
            if indexed is None:
                break
            page, more = indexed
            matching = [
                one for one in page if all(c.matches(one.stored.fields) for c in conditions)
            ]
            if len(matching) >= most or not more:
                return [(key, _record(stored)) for key, stored in matching[:most]]
            looked *= _MORE  # those in front have expired, or an unindexed field is another
        found = self._scan(prefix, conditions, None, most)
        return [(key, record) for key, record in found]

    @overload
    def watch(
        self, prefix: str = "", *, after: str | None = None, marker: Literal[False] = False
    ) -> Watch[RecordChange]: ...

    @overload
    def watch(
        self, prefix: str = "", *, after: str | None = None, marker: bool
    ) -> Watch[RecordChange | CaughtUp]: ...

    def watch(
        self, prefix: str = "", *, after: str | None = None, marker: bool = False
    ) -> Watch[Any]:
        """The records whose keys start with the prefix, then each one that changes.

        With `after`, the cursor of an earlier watch, what has changed since then, and so on. With
        `marker` the iteration gives `holdfast.CAUGHT_UP` between replay and live changes. A
        record that changed several times is told as it is now. That one has expired is told
        when the engine removes it.
        """
        require(self._backend, Capability.RECORDS_WATCH)
        check_key_prefix(prefix)
        position, _ = (None, None) if after is None else from_cursor(LOG, after)
        log, listener = self._backend.follow_records(self._namespace)
        source = RecordSource(log, self._namespace, prefix)
        return Watch(Watching(source, listener, position), _told, marker=marker)

    def create_index(self, prefix: str, *fields: str) -> None:
        """Keep an index over the records whose keys start with the prefix, from now on.

        A scan below the prefix then reads only what matches if its filters ask the last field
        to be eq, in, lt or gt a value and each of the others to be eq one. Returns when what was
        there before is in it too; calling it again finishes what was interrupted.
        """
        require(self._backend, Capability.RECORDS_INDEX)
        index = _index(prefix, fields)
        run(self._backend.record_indexes.create(self._namespace, index))
        while not run(self._backend.record_indexes.fill(self._namespace, index)):
            run(self._backend.pause())

    def drop_index(self, prefix: str, *fields: str) -> bool:
        """True if there was such an index."""
        require(self._backend, Capability.RECORDS_INDEX)
        return run(self._backend.record_indexes.drop(self._namespace, _index(prefix, fields)))

    def list_indexes(self) -> Indexes:
        """The indexes that are complete, by prefix and fields."""
        require(self._backend, Capability.RECORDS_INDEX)
        return sorted(run(self._backend.record_indexes.complete(self._namespace)))

    def purge(self) -> int:
        """How many expired or deleted records of the store, all namespaces, were removed for good.

        They are out of sight already; this frees their space. Writes do so by and by, and the
        sweeper does. On engines that expire by themselves there is nothing to do.
        """
        total = 0
        while True:
            gone = run(self._records.purge(_PURGE_PAGE))
            total += gone
            if gone < _PURGE_PAGE:
                return total
            run(self._backend.pause())

    def _find(
        self, prefix: str, conditions: tuple[Condition, ...], limit: int
    ) -> tuple[list[ListedRecord], bool] | None:
        """What is there of the first `limit` in an index, in its order, and whether it has more.

        None if there is no index for it.
        """
        if not conditions or Capability.RECORDS_INDEX not in self._backend.capabilities:
            return None
        for index in run(self._backend.record_indexes.complete(self._namespace)):
            parts = spans(index, prefix, conditions)
            if parts is None:
                continue
            found: dict[str, StoredRecord] = {}
            more = False
            for span in parts:
                part = run(
                    self._backend.record_indexes.find(self._namespace, index, span, limit=limit)
                )
                if part is None:
                    return None
                page, more = part
                found.update(page)
                if more:
                    break
            return [ListedRecord(key, stored) for key, stored in found.items()], more
        return None

    def _to_write(
        self,
        key: str,
        expect: Mapping[str, bytes | None],
        fields: Settings,
        op_id: UUID | str | None,
        *,
        replace: bool = False,
        must_exist: bool = False,
        ttl_us: int = KEEP_TTL,
    ) -> tuple[RecordWrite, int]:
        """The write, and how many bytes its fields are."""
        settings, size, known = to_settings(key, fields)
        if type(key) is not str or not is_plain_key(key):  # without a frame for the usual one
            check_key(key)
        if size > self._large:
            self._check_size(key, size)
        write = RecordWrite(
            (self._namespace, key),
            expect,
            settings,
            replace,
            must_exist,
            ttl_us,
            uuid7().bytes if op_id is None else operation_id(op_id),
            time.monotonic(),
            blind=replace and known and bool(settings) and not expect,
        )
        return write, size

    def _check_size(self, key: str, size: int) -> None:
        limit = self._config.payload_max_bytes
        if size > limit:
            raise InvalidArgument(
                f"record {key!r}: fields of {size} bytes, at most {limit} are allowed; "
                "keep large data elsewhere and store a reference to it (claim check)",
                size=size,
                limit=limit,
            )
        _log.warning("record %r: fields of %d bytes; large ones make every read slow", key, size)


def _applied(write: RecordWrite, outcomes: Sequence[bool | None]) -> bool:
    (applied,) = outcomes
    if applied is None:
        raise uncertain(write)
    return applied


def _record(stored: StoredRecord) -> Record:
    fields, ttl_us = stored
    return Record(fields, None if ttl_us is None else ttl_us / MICROSECONDS)


def _told(seen: Seen[Now], replay: bool, cursor: str | None) -> RecordChange:  # noqa: FBT001 - see Tell
    record = None if seen.change is None else _record(seen.change)
    return RecordChange(seen.key, record, replay, cursor)


def _shown(stored: StoredRecord, fields: tuple[str, ...] | None) -> Record:
    if fields is None:
        return _record(stored)
    found = {field: stored.fields[field] for field in fields if field in stored.fields}
    return _record(StoredRecord(found, stored.ttl_us))


def _index(prefix: str, fields: tuple[str, ...]) -> RecordIndex:
    check_key_prefix(prefix)
    if not fields:
        raise InvalidArgument("index: wanted the names of one or more fields")
    return RecordIndex(prefix, tuple(check_field(field) for field in fields))


def _positive(timeout: Duration) -> Duration:
    if Stamp(timeout).after_us <= 0:
        raise InvalidArgument(f"timeout: must be above 0, found {timeout!r}")
    return timeout

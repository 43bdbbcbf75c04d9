"""Records on SQLite: the rule of facets/records.py, decided in Python under the one writer."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sql.records import (
    IndexOrder,
    Purged,
    RecordBatches,
    RecordQueries,
    SqlRecords,
    index_row,
    stored,
    to_bytes,
    unpack,
)
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.clock import machine_us
from holdfast.facets.names import next_name, prefix_end
from holdfast.facets.records import (
    NO_TTL,
    OP_MEMORY_US,
    Fields,
    RecordIndex,
    RecordKey,
    RecordWrite,
    StoredRecord,
    apply_write,
    expiry,
    surely_undone,
)
from holdfast.facets.records_scan import entry

_OWN = load(__package__, "records.sql", SQLITE)
_PUT_ROW, _GET_ROW, _ADD_ROW, _CHANGE_ROW = (
    _OWN[name] for name in ("put_row", "get_row", "add_row", "change_row")
)
_FILL_PAGE = 500  # records per transaction: a few ms
_is_blind = attrgetter("blind")
_PURGE_EVERY = 100  # writes; then as much goes as twice as many can leave


class SqliteRecords(SqlRecords):
    """See RecordsBackend, RecordIndexes and RecordLog."""

    def __init__(self, db: SqliteScope) -> None:
        purge = PurgeRecords()
        batches = RecordBatches(
            write=WriteRecords(purge),
            purge=purge,
            create=CreateIndex(),
            fill=FillIndex(),
            drop=DropIndex(),
        )
        own = RecordQueries(
            list=_OWN["list_records"],
            find=_OWN["find_records"],
            indexes=_OWN["list_indexes"],
            lost=_OWN["is_lost"],
            position=_OWN["find_position"],
            end=_OWN["find_position"],
            changes=_OWN["read_changes"],
            clock=lambda: {"now": machine_us()},
        )
        super().__init__(db, batches, own)
        self._sqlite = db
        self._get = _OWN["get_record"]

    async def get(self, key: RecordKey, fields: tuple[str, ...] | None) -> StoredRecord | None:
        """See RecordsBackend."""
        del fields  # a row comes whole
        row = await self._sqlite.row(self._get, (machine_us(), *key))
        return None if row is None else stored(*row)


Indexes = list[tuple[int, str, RecordIndex, str | None]]


class WriteRecords:
    """Writes, one after the other: the same record may come many times."""

    def __init__(self, purge: PurgeRecords) -> None:
        self._purge = purge
        self._written = 0  # since the last purge

    def apply(
        self, on: SqliteConnection, items: Sequence[RecordWrite], *, repeat: bool
    ) -> list[bool | None]:
        """See Batch."""
        now, commit_id, _, indexed = on.moments.begin()
        if indexed or repeat or not all(map(_is_blind, items)):
            indexes = _list_indexes(on) if indexed else []
            outcomes, commit_id = _write_each(on, items, now, commit_id, indexes, repeat=repeat)
        else:  # as nearly always
            indexes, outcomes = [], [True] * len(items)
            commit_id = _put(on, items, now, commit_id)
        on.moments.gave_out(commit_id)
        self._written += len(items)
        if self._written >= _PURGE_EVERY:
            if self._purge.is_due(on, now):
                self._purge.some(on, now, commit_id, indexes, 2 * self._written)
            self._written = 0
        return outcomes


class PurgeRecords:
    """Buries what is expired, drops what was buried long ago, and cuts the log."""

    def apply(self, on: SqliteConnection, items: Sequence[int], *, repeat: bool) -> list[Purged]:
        """See Batch."""
        del repeat  # purging again is always safe
        purged = []
        for limit in items:
            now, commit_id, _, indexed = on.moments.begin()
            indexes = _list_indexes(on) if indexed else []
            purged.append(self.some(on, now, commit_id, indexes, limit))
        return purged

    def is_due(self, on: SqliteConnection, now: int) -> bool:
        """Whether there is anything to do: nearly always there is not, and this is a short look."""
        return bool(on.execute(_OWN["is_purge_due"], (now, now - OP_MEMORY_US)).get)

    def some(
        self, on: SqliteConnection, now: int, commit_id: int, indexes: Indexes, limit: int
    ) -> Purged:
        """Up to `limit` of each."""
        rows: list[Any] = on.execute(_OWN["list_expired"], (now, limit)).fetchall()
        for row_id, namespace, key, packed in rows:
            if packed is None:
                on.execute(_OWN["drop_row"], (row_id,))
                continue
            commit_id += 1
            on.execute(_OWN["bury_row"], (now + OP_MEMORY_US, commit_id, row_id))
            on.execute(_OWN["add_change"], (commit_id, row_id, now))
            _reindex(on, indexes, (namespace, key), unpack(packed), {})
        upto, cut = on.execute(_OWN["find_old_changes"], (limit, now - OP_MEMORY_US)).get
        if cut:
            on.execute(_OWN["drop_changes"], (upto,))
            on.execute(_OWN["set_floor"], (upto,))
        return Purged(len(rows), cut)


class CreateIndex:
    """Notes indexes: every write from now on keeps them."""

    def apply(
        self, on: SqliteConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[None]:
        """See Batch."""
        del repeat  # it is there or not
        for namespace, (prefix, fields) in items:
            on.execute(_OWN["add_index"], (namespace, prefix, _names(fields)))
        return [None for _ in items]


class FillIndex:
    """Puts a page of older records into an index; True when there are no more."""

    def apply(
        self, on: SqliteConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[bool]:
        """See Batch."""
        del repeat  # a page again is no harm
        return [self._fill(on, *_find_index(on, order), order) for order in items]

    def _fill(
        self, on: SqliteConnection, index_id: int | None, upto: str | None, order: IndexOrder
    ) -> bool:
        if index_id is None or upto is None:
            return True
        namespace, index = order
        params = {
            "namespace": namespace,
            "first": max(index.prefix, next_name(upto)),
            "end": prefix_end(index.prefix),
            "limit": _FILL_PAGE,
            "since_seq": 0,
            "now": 0,
        }
        rows: list[Any] = on.execute(_OWN["list_records"], params).fetchall()
        for key, packed, *_ in rows:
            place = None if packed is None else entry(index, unpack(packed))
            if place is not None:
                on.execute(_OWN["add_entry"], (index_id, *place, key))
        complete = len(rows) < _FILL_PAGE
        on.execute(_OWN["fill_index"], (None if complete else rows[-1][0], index_id))
        return complete


class DropIndex:
    """True for each index that was there."""

    def apply(
        self, on: SqliteConnection, items: Sequence[IndexOrder], *, repeat: bool
    ) -> list[bool]:
        """See Batch."""
        del repeat  # SQLite tells what became of a commit
        found = [_find_index(on, order)[0] for order in items]
        for index_id in filter(None, found):
            on.execute(_OWN["drop_entries"], (index_id,))
            on.execute(_OWN["drop_index"], (index_id,))
        return [index_id is not None for index_id in found]


_NO_ROW = (None, None, None, 0, None)


def _write_each(
    on: SqliteConnection,
    items: Sequence[RecordWrite],
    now: int,
    commit_id: int,
    indexes: Indexes,
    *,
    repeat: bool,
) -> tuple[list[bool | None], int]:
    """What became of each write, and the last commit id that was given out."""
    outcomes: list[bool | None] = []
    ours: set[RecordKey] = set()  # written by this batch: the first try of all was undone
    for write in items:
        if write.blind and not indexes and not repeat:
            commit_id = _put(on, [write], now, commit_id)
            outcomes.append(True)
            continue
        row_id, packed, expires_at, updated_at, op_id = (
            on.execute(_GET_ROW, write.key).get or _NO_ROW
        )
        if op_id == write.op_id:
            outcomes.append(True)
            continue
        if (
            repeat
            and row_id is not None
            and write.key not in ours
            and not surely_undone(write, now, updated_at)
        ):
            outcomes.append(None)
            continue
        absent = packed is None or (expires_at is not None and expires_at <= now)
        before = {} if packed is None else unpack(packed)
        after = apply_write(write, {} if absent else before, now)
        if after is None or (absent and not after):
            outcomes.append(after is not None)
            continue
        commit_id += 1
        ours.add(write.key)
        # What goes is remembered for its operation id.
        ends = expiry(write, None if absent else expires_at, now) if after else now + OP_MEMORY_US
        kept = to_bytes(after) if after else None
        if row_id is None:
            on.execute(_ADD_ROW, (*write.key, kept, ends, now, commit_id, write.op_id))
        else:
            on.execute(_CHANGE_ROW, (kept, ends, now, commit_id, write.op_id, row_id))
            on.moments.rows[write.key] = (row_id, write.op_id)
        if indexes:
            _reindex(on, indexes, write.key, before, after)
        outcomes.append(True)
    return outcomes, commit_id


def _put(on: SqliteConnection, puts: Sequence[RecordWrite], now: int, commit_id: int) -> int:
    """Put the records, whatever was there; gives the last commit id that was given out.

    An operation that a record knows as its last one is not done again. Where it is known which
    row a record is, all that changes is changed together, last: each record by itself is in order.
    """
    rows = on.moments.rows
    changes = []
    for put in puts:
        key, op_id = put.key, put.op_id
        row = rows.get(key)
        if row is not None and row[1] == op_id:
            continue
        ends = None if put.ttl_us == NO_TTL else expiry(put, None, now)
        commit_id += 1
        if row is None:
            values = (*key, to_bytes(put.set), ends, now, commit_id, op_id)
            row_id = on.execute(_PUT_ROW, values).get
            if row_id is None:
                commit_id -= 1
                continue
        else:
            row_id = row[0]
            changes.append((to_bytes(put.set), ends, now, commit_id, op_id, row_id))
        rows[key] = (row_id, op_id)
    if len(changes) == 1:
        on.execute(_CHANGE_ROW, changes[0])
    elif changes:
        on.executemany(_CHANGE_ROW, changes)
    return commit_id


def _list_indexes(on: SqliteConnection) -> Indexes:
    return [index_row(row) for row in on.execute(_OWN["list_indexes"]).fetchall()]


def _reindex(
    on: SqliteConnection,
    indexes: Indexes,
    place: RecordKey,
    before: Fields,
    after: Fields,
) -> None:
    """Move the record's entries from where they were to where they belong."""
    namespace, key = place
    for index_id, home, index, _ in indexes:
        if home != namespace or not key.startswith(index.prefix):
            continue
        was, becomes = entry(index, before), entry(index, after)
        if was != becomes:
            if was is not None:
                on.execute(_OWN["drop_entry"], (index_id, *was, key))
            if becomes is not None:
                on.execute(_OWN["add_entry"], (index_id, *becomes, key))


def _find_index(on: SqliteConnection, order: IndexOrder) -> tuple[int | None, str | None]:
    """The index's id, and up to where it is filled."""
    for index_id, namespace, index, upto in _list_indexes(on):
        if (namespace, index) == order:
            return index_id, upto
    return None, None


def _names(fields: tuple[str, ...]) -> str:
    return msgspec.json.encode(fields).decode()

"""The stream as the log of records: see facets/watch.py.

A position's epoch is when the stream was made, so that a cursor of another one is known as
such; its `seq` is the sequence number. The stream keeps the newest message of each record for
ever, and what tells of a deletion for a day.
"""

from __future__ import annotations

import time

from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.hints import Hints
from holdfast.backends.nats.records import NatsRecords, body_of
from holdfast.backends.nats.stream import Stream
from holdfast.clock import MICROSECONDS
from holdfast.facets.feed import Page, Position, unknown_epoch
from holdfast.facets.records import OP_MEMORY_US, ChangedRecord, WatchedRecord, lost_changes

_KEPT_SECS = OP_MEMORY_US / MICROSECONDS


class NatsRecordLog:
    """See RecordLog. Each watch has its own."""

    def __init__(
        self, db: NatsDb, stream: Stream, clock: NatsClock, records: NatsRecords, hints: Hints
    ) -> None:
        self._db = db
        self._stream = stream
        self._clock = clock
        self._records = records
        self._hints = hints
        self._looked = float("-inf")  # since then nothing can have been lost

    async def present(
        self, namespace: str, *, prefix: str, after: str | None, limit: int, since: Position
    ) -> tuple[list[WatchedRecord], str | None]:
        """See RecordLog."""
        found, last, now_us = await self._db.run(
            self._records.read(namespace, prefix, after, limit)
        )
        return [
            WatchedRecord(key, stored, seq, seq > since.seq)
            for key, seq, body in found
            if (stored := body.stored(now_us)) is not None
        ], last

    async def position(self) -> Position:
        """See RecordLog."""
        position = await self.end()
        self._looked = time.monotonic()
        return position

    async def end(self) -> Position:
        """See RecordLog."""
        return await self._db.run(self._end())

    async def changes(
        self, namespace: str, *, prefix: str, after: Position, limit: int
    ) -> Page[ChangedRecord]:
        """See RecordLog."""
        return await self._db.run(self._changes(namespace, prefix, after, limit))

    async def _end(self) -> Position:
        info = await self._stream.info(self._stream.deadline())
        return Position(info.created, 0, info.last_seq)

    async def _changes(
        self, namespace: str, prefix: str, after: Position, limit: int
    ) -> Page[ChangedRecord]:
        deadline = self._stream.deadline()
        if time.monotonic() > self._looked + _KEPT_SECS:
            await self._check(after, deadline)
        self._looked = time.monotonic()
        heard = self._hints.heard
        place = self._records.place(namespace)
        entries, more = await self._stream.log(place.below(prefix), after.seq, limit, deadline)
        now_us = await self._clock.now_us(deadline)
        changes = [
            ChangedRecord(
                after._replace(seq=entry.seq), name, entry.seq, body_of(entry).stored(now_us)
            )
            for entry in entries
            if (name := place.name(entry.subject)).startswith(prefix)
        ]
        seq = entries[-1].seq if entries else after.seq
        behind = False
        if not more and seq < heard:
            if self._stream.replicas == 1:
                seq = heard  # it was stored before this page was read
            else:
                behind = self._hints.recent  # or else it was not for this watch
        return Page(changes, after._replace(seq=seq), more=more, held_back=behind)

    async def _check(self, after: Position, deadline: float) -> None:
        """Raise when changes above the position may be gone."""
        info = await self._stream.info(deadline)
        if after.epoch != info.created or after.seq > info.last_seq:
            raise unknown_epoch(after)
        if after.seq == info.last_seq:
            return
        first = await self._stream.first_since(info.now_us - OP_MEMORY_US, deadline)
        if first is None or after.seq < first - 1:
            raise lost_changes(after)

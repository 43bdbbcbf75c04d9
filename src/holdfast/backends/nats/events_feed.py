"""The stream of events as their feed: see facets/events_feed.py.

A position's epoch is when the stream was made. A message may hold several events, so a position
has two numbers: everything up to message `xid` was told, and `seq` events of the one after it.
"""

from __future__ import annotations

from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.runs import KIND, piece_of
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import Place
from holdfast.errors import Corrupt
from holdfast.facets.events import StoredEvent, damaged, lost_events
from holdfast.facets.feed import Page, Position, unknown_epoch

Told = tuple[Position, StoredEvent]


class NatsEventLog:
    """See EventLog. Each feed has its own."""

    def __init__(self, db: NatsDb, stream: Stream) -> None:
        self._db = db
        self._stream = stream
        self._checked = False

    async def start(self) -> Position:
        """See EventLog."""
        return (await self.end())._replace(xid=0)

    async def position(self) -> Position:
        """See EventLog."""
        return await self.end()

    async def end(self) -> Position:
        """See EventLog."""
        return await self._db.run(self._end())

    async def changes(self, namespace: str, *, after: Position, limit: int) -> Page[Told]:
        """See EventLog. Events of a run that is being deleted may be told until it is gone."""
        return await self._db.run(self._changes(namespace, after, limit))

    async def _end(self) -> Position:
        info = await self._stream.info(self._stream.deadline())
        return Position(info.created, info.last_seq, 0)

    async def _changes(self, namespace: str, after: Position, limit: int) -> Page[Told]:
        deadline = self._stream.deadline()
        if not self._checked:
            await self._check(after)
            self._checked = True
        place = Place(self._stream.root, KIND, namespace)
        everything = f"{place.root}>"
        entries, left = await self._stream.log(everything, after.xid, limit, deadline)
        told: list[Told] = []
        position = after
        for entry in entries:
            run_id = place.name(entry.subject)
            try:
                piece = piece_of(entry)
            except Corrupt as exc:
                if len(told) == limit:
                    return Page(told, position, more=True, held_back=False)
                position = Position(after.epoch, entry.seq, 0)
                told.append((position, damaged(run_id, 0, f"cannot be read: {exc}")))
                continue
            skip = after.seq if entry.seq == after.xid + 1 else 0
            for at in range(skip, len(piece.events)):
                if len(told) == limit:
                    return Page(told, position, more=True, held_back=False)
                position = Position(after.epoch, entry.seq - 1, at + 1)
                told.append((position, piece.event(run_id, piece.begin + at)))
            position = Position(after.epoch, entry.seq, 0)
            if told and told[-1][0].xid == entry.seq - 1:
                told[-1] = (position, told[-1][1])
        behind = False
        if not entries:
            await self._check(after)
        if not left and self._stream.replicas > 1:
            behind = await self._stream.next(everything, position.xid, deadline) is not None
        return Page(told, position, more=left > 0, held_back=behind)

    async def _check(self, after: Position) -> None:
        """Raise when the position is of another stream, or of one that has lost its end."""
        end = await self._end()
        if after.epoch != end.epoch:
            raise unknown_epoch(after)
        if after > end._replace(seq=after.seq):
            raise lost_events(after)

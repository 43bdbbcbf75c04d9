"""Cells: one message each, deleted ones too, because their counter goes on.

    version 3 of a cell     ['{"a":1}', 3, updated_at, 41, [[op, 3], [op, 2] …]]
    deleted after that      [null, 3, updated_at, 57, [[op, 3], …]]

41 is the message that this one replaced (see change.py). A cell knows its newest operations, no
more: an id that comes again after that many others is a new operation here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.backends.nats.change import Decided, Writer
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.entries import Entry
from holdfast.backends.nats.names import Names
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.backends.nats.stream import MOST_ATOMIC, Stream
from holdfast.backends.nats.subjects import Place
from holdfast.errors import InvalidArgument, StoreError, Unavailable
from holdfast.facets.cells import ANY, CellKey, CellOutcome, CellWrite, StoredCell

KIND = "cells"
MEMORY = 16
"""Operations that a cell knows."""


class Operation(msgspec.Struct, array_like=True, frozen=True):
    """What an operation came to."""

    op_id: bytes
    version: int


class Body(msgspec.Struct, array_like=True, frozen=True):
    """A cell's message; `payload` is None when it is deleted."""

    payload: str | None
    version: int
    updated_at: int
    base: int
    operations: tuple[Operation, ...]

    @property
    def live(self) -> int:
        """The version that a write can expect, 0 when there is none."""
        return 0 if self.payload is None else self.version


_NOTHING = Body(None, 0, 0, 0, ())
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


def _body(found: Entry | None) -> Body:
    return _decode(found.data) if found is not None and found.data else _NOTHING


class NatsCells:
    """See CellsBackend. There are no branches, and no history."""

    def __init__(
        self, db: NatsDb, stream: Stream, writer: Writer, names: Names, *, namespaces: Namespaces
    ) -> None:
        self._db = db
        self._stream = stream
        self._writer = writer
        self._names = names
        self._namespaces = namespaces

    async def write(self, writes: Sequence[CellWrite], size: int) -> Sequence[CellOutcome]:
        """See CellsBackend."""
        del size
        changes = [CellChange(self._subject(write.key), write) for write in writes]
        if len(changes) > MOST_ATOMIC:
            raise InvalidArgument(
                f"set_many: {len(changes)} cells, at most {MOST_ATOMIC} fit into one commit on NATS"
            )
        return await self._db.run(self._write(changes, {write.key[0] for write in writes}))

    async def get(self, key: CellKey) -> StoredCell | None:
        """See CellsBackend."""
        return await self._db.run(self._get(key))

    async def get_many(
        self, namespace: str, branch: str, names: Sequence[str]
    ) -> dict[str, StoredCell]:
        """See CellsBackend."""
        del branch
        return await self._db.run(self._get_many(namespace, names))

    async def names(
        self, namespace: str, branch: str, *, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """See CellsBackend."""
        del branch
        return await self._db.run(self._live(namespace, prefix, after, limit))

    async def get_at(self, key: CellKey, at_us: int) -> StoredCell | None:
        """See CellsBackend. Never called: the capability is missing, as for the next two."""
        raise NotImplementedError(key, at_us)

    async def history(
        self, key: CellKey, *, before_commit: int | None, limit: int
    ) -> list[StoredCell]:
        """See CellsBackend."""
        raise NotImplementedError(key, before_commit, limit)

    async def prune(
        self, namespace: str, branch: str, *, after: str | None, limit: int
    ) -> tuple[int, str | None]:
        """See CellsBackend."""
        raise NotImplementedError(namespace, branch, after, limit)

    async def _write(
        self, changes: Sequence[CellChange], namespaces: Iterable[str]
    ) -> list[CellOutcome]:
        deadline = self._stream.deadline()
        for namespace in namespaces:
            await self._namespaces.note(namespace, deadline)
        return await self._writer.write_all(changes, deadline)

    async def _get(self, key: CellKey) -> StoredCell | None:
        found = await self._stream.get(self._subject(key), self._stream.deadline())
        body = _body(found)
        if found is None or body.payload is None:
            return None
        return body.payload, body.version, body.updated_at, found.seq

    async def _get_many(self, namespace: str, names: Sequence[str]) -> dict[str, StoredCell]:
        place = Place(self._stream.root, KIND, namespace)
        subjects = {place.subject(name): name for name in names}
        entries = await self._stream.get_many(list(subjects), self._stream.deadline())
        found: dict[str, StoredCell] = {}
        for subject, entry in entries.items():
            body = _body(entry)
            if body.payload is not None:
                cell = (body.payload, body.version, body.updated_at, entry.seq)
                found[subjects[subject]] = cell
        return found

    async def _live(
        self, namespace: str, prefix: str, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        deadline = self._stream.deadline()
        place = Place(self._stream.root, KIND, namespace)
        # A list of cells goes on from a name that the caller gives, maybe much later.
        window = await self._names.above(place, prefix, after, deadline, newest=True)
        names = window.names[window.at : window.at + limit]
        subjects = {place.subject(name): name for name in names}
        live: list[str] = []
        async for some, entries in self._stream.get_pages(list(subjects), deadline):
            live += [subjects[subject] for subject in some if _body(entries.get(subject)).live]
        return live, self._names.keep(place, prefix, window, len(names)) if names else None

    def _subject(self, key: CellKey) -> str:
        namespace, _, name = key
        return Place(self._stream.root, KIND, namespace).subject(name)


class CellChange:
    """A write as change.py carries it out."""

    def __init__(self, subject: str, write: CellWrite) -> None:
        self.subject = subject
        self._write = write

    def known(self, found: Entry | None) -> Decided[CellOutcome] | None:
        """See Change."""
        for operation in _body(found).operations:
            if operation.op_id == self._write.op_id:
                return Decided(CellOutcome(applied=True, version=operation.version))
        return None

    def decide(self, found: Entry | None, now_us: int) -> Decided[CellOutcome]:
        """See Change, and the table in facets/cells.py."""
        write, body = self._write, _body(found)
        if write.expected not in (ANY, body.live) or not (write.payload is not None or body.live):
            return Decided(CellOutcome(applied=False, version=body.live))
        version = body.version + (write.payload is not None)
        operations = (Operation(write.op_id, version), *body.operations[: MEMORY - 1])
        base = found.seq if found else 0
        updated_at = max(now_us, body.updated_at)  # never back, also when the clock was
        after = Body(write.payload, version, updated_at, base, operations)
        return Decided(CellOutcome(applied=True, version=version), _encode(after))

    def surely_undone(self, found: Entry | None, base: int | None) -> bool:
        """See Change."""
        body = _body(found)
        return len(body.operations) < MEMORY or (base is not None and body.base == base)

    def uncertain(self) -> StoreError:
        """See Change."""
        return Unavailable(
            f"cell {self._write.key[-1]!r}: the connection was lost, and what became of the first "
            f"try cannot be told: {MEMORY} others have written to the cell since",
            outcome_unknown=True,
        )

"""Views of runs as they were kept: each is an entry in the store's state.

    holdfast.views.<namespace>.<view>.<run>    [generation of the run, number of its event, view]

One of another generation than the run's is as good as none.
"""

from __future__ import annotations

import msgspec

from holdfast.backends.nats.entries import Entry, Message
from holdfast.backends.nats.runs import Runs
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import namespace_token, to_tokens
from holdfast.backends.nats.swap import swap
from holdfast.facets.events import RunKey, StoredSnapshot

_KIND = "views"


class _Body(msgspec.Struct, array_like=True, frozen=True):
    generation: int
    last_seq: int
    payload: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


class Views:
    """See above."""

    def __init__(self, stream: Stream, runs: Runs) -> None:
        self._stream = stream
        self._runs = runs

    async def get(
        self, run: RunKey, view: str, generation: int, deadline: float
    ) -> StoredSnapshot | None:
        """The view, if there is one of that generation."""
        found = _body_of(await self._stream.get(self._subject(run, view), deadline))
        if found is None or found.generation != generation:
            return None
        return StoredSnapshot(found.last_seq, found.payload)

    async def keep(
        self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot, deadline: float
    ) -> bool:
        """See EventsBackend."""
        subject = self._subject(run, view)
        mine = (generation, snapshot.last_seq)
        data = _encode(_Body(*mine, snapshot.payload))
        seq: int | None = None
        while seq is None:
            entry = await self._stream.get(subject, deadline)
            found = _body_of(entry)
            if found is not None and (found.generation, found.last_seq) > mine:
                break
            if entry is not None and entry.data == data:
                break
            seq = await swap(
                self._stream, [Message(subject, data, entry.seq if entry else 0)], deadline
            )
        # Looked at afterwards: who deletes the run removes what is kept before that.
        head = await self._runs.head(self._runs.subject(run), deadline)
        if head is not None and head.generation == generation:
            return True
        if seq is not None:
            await self._stream.remove(seq, deadline)
        return False

    async def drop(self, run: RunKey, generation: int, deadline: float) -> None:
        """Remove all that are kept of that run."""
        after = 0
        while entry := await self._stream.next(self._subject(run, None), after, deadline):
            found = _body_of(entry)
            if found is None or found.generation <= generation:
                await self._stream.remove(entry.seq, deadline)
            after = entry.seq

    def _subject(self, run: RunKey, view: str | None) -> str:
        namespace, run_id = run
        token = "*" if view is None else namespace_token(view)
        tokens = f"{namespace_token(namespace)}.{token}.{to_tokens(run_id)}"
        return f"{self._stream.root}.{_KIND}.{tokens}"


def _body_of(found: Entry | None) -> _Body | None:
    return _decode(found.data) if found is not None and found.data else None

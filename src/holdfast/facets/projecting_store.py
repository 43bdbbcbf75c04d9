"""What a projector works on, on an engine of this library. See ViewStore.

Marks are records, which every engine has, under a hash, because a run id may be anything:

    holdfast.projector.mark.HASH    run_id, view, kind, run_seq, reason
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from holdfast.errors import Corrupt, ProjectionFailed, Serialization
from holdfast.facets.backend import Facets
from holdfast.facets.daemons import MarkKind, RunMark
from holdfast.facets.events import Event, Keep, RunKey, read_events
from holdfast.facets.following import Loaded, ToSave
from holdfast.facets.names import operation_id
from holdfast.facets.records import NO_TTL, Fields, RecordWrite, uncertain
from holdfast.facets.views import Kept, Projection, from_stored
from holdfast.facets.views_reading import Read, Views, Warned

S = TypeVar("S")
_log = logging.getLogger("holdfast.projector")
PREFIX = "holdfast.projector."
MARKS = f"{PREFIX}mark."
_LONGEST_REASON = 1000


class EngineViews:
    """See ViewStore."""

    def __init__(self, backend: Facets, namespace: str, most_bytes: int) -> None:
        self._backend = backend
        self._namespace = namespace
        self._views = Views(backend, most_bytes, Warned())

    async def load(self, run_id: str, projection: Projection[S]) -> Loaded[S] | None:
        """See ViewStore."""
        state = await self._backend.events.state(self._place(run_id), projection.view)
        if state is None:
            return None
        if state.snapshot is None:
            return Loaded(state.generation, Kept(projection.begin(run_id)))
        try:
            return Loaded(state.generation, from_stored(projection, state.snapshot))
        except Serialization as exc:
            raise ProjectionFailed(
                str(exc), view=projection.view, run_id=run_id, run_seq=state.snapshot.last_seq
            ) from exc

    async def fetch(self, run_id: str, generation: int, after: int, limit: int) -> list[Event]:
        """See ViewStore."""
        found = await self._backend.events.fetch(
            self._place(run_id), after=after, limit=limit, generation=generation
        )
        return list(read_events(found))

    async def save_all(self, views: Sequence[ToSave]) -> list[bool | ProjectionFailed | None]:
        """See ViewStore."""
        outcomes: list[bool | ProjectionFailed | None] = [None] * len(views)
        keeps: dict[int, Keep] = {}
        for at, (run_id, projection, view) in enumerate(views):
            try:
                keep = self._views.to_keep(self._place(run_id), projection, Read(*view))
            except ProjectionFailed as exc:
                outcomes[at] = exc
            else:
                if keep is not None:
                    keeps[at] = keep
        if keeps:
            kept = await self._backend.events.keep_all(list(keeps.values()))
            for at, outcome in zip(keeps, kept, strict=True):
                outcomes[at] = outcome
        return outcomes

    async def mark(self, mark: RunMark) -> None:
        """See ViewStore."""
        _log.warning(
            "run %r: view %r is %s at event %d: %s",
            *(mark.run_id, mark.view, mark.kind, mark.run_seq, mark.reason),
        )
        fields = {
            "run_id": mark.run_id.encode(),
            "view": mark.view.encode(),
            "kind": mark.kind.encode(),
            "run_seq": b"%d" % mark.run_seq,
            "reason": mark.reason[:_LONGEST_REASON].encode(errors="replace"),
        }
        await self._put(mark.run_id, mark.view, fields)

    async def unmark(self, run_id: str, view: str) -> None:
        """See ViewStore."""
        await self._put(run_id, view, {})

    async def _put(self, run_id: str, view: str, fields: Mapping[str, bytes]) -> None:
        name = hashlib.sha256(f"{view}\0{run_id}".encode()).hexdigest()[:32]
        write = RecordWrite(
            (self._namespace, MARKS + name),
            expect={},
            set=fields,
            replace=True,
            must_exist=False,
            ttl_us=NO_TTL,
            op_id=operation_id(None),
            begun=time.monotonic(),
            blind=bool(fields),
        )
        size = sum(len(value) for value in fields.values())
        (done,) = await self._backend.records.write([write], size)
        if done is None:
            raise uncertain(write)

    def _place(self, run_id: str) -> RunKey:
        return self._namespace, run_id


def to_mark(fields: Fields) -> RunMark:
    """The mark that was put so."""
    try:
        return RunMark(
            fields["run_id"].decode(),
            fields["view"].decode(),
            MarkKind(fields["kind"].decode()),
            int(fields["run_seq"]),
            fields["reason"].decode(),
        )
    except (KeyError, ValueError) as exc:
        raise Corrupt(f"a record below {MARKS} is no mark of a projector: {exc}") from exc

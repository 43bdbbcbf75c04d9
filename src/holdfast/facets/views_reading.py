"""How a view is read: what is kept, and the events since then. Also in the middle of an append."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast import codec
from holdfast.errors import Corrupt
from holdfast.facets.backend import EventFacets, OpenTransaction
from holdfast.facets.events import (
    Append,
    Event,
    EventRow,
    Keep,
    Outcome,
    Refused,
    RunKey,
    count_new,
    read_events,
    readable_events,
)
from holdfast.facets.views import Kept, Projection, from_stored, to_stored

S = TypeVar("S")
_log = logging.getLogger("holdfast.events")
_PAGE = 1000  # events that are in memory at a time
_TRANSACTION_SECS = 30.0
_MOST_WARNED = 10_000
_MOST_TRIES = 10
_PAUSE = 0.02  # seconds, more with each try: one in all

Begin = Callable[[float], Awaitable[OpenTransaction]]


class Read(NamedTuple, Generic[S]):
    """A view as it is now, and of which generation of the run; that is None without a run."""

    generation: int | None
    kept: Kept[S]


class Warned:
    """The views that were warned of, of one store and all its namespaces: once is enough."""

    def __init__(self) -> None:
        self._views: set[tuple[RunKey, str]] = set()

    def is_first(self, run: RunKey, view: str) -> bool:
        """True when nobody was warned of the view yet; threads may share this."""
        if (run, view) in self._views:
            return False
        if len(self._views) >= _MOST_WARNED:
            self._views.clear()
        self._views.add((run, view))
        return True


class Views:
    """The views of a store's runs, or of one transaction."""

    def __init__(
        self, on: EventFacets, most_bytes: int, warned: Warned, begin: Begin | None = None
    ) -> None:
        """`begin` makes a transaction; without it this is inside one."""
        self._most_bytes = most_bytes
        self._on = on
        self._warned = warned
        self._begin = begin

    async def read(
        self,
        run: RunKey,
        projection: Projection[S],
        *,
        from_kept: bool = True,
        skip_corrupt: bool = False,
    ) -> Read[S]:
        """The view of the run as it is now; without `from_kept` from its first event on.

        Corrupt when the run has not all the events that it should have, and at one that cannot
        be read, unless `skip_corrupt` passes over those.
        """
        generation, tries = 0, 0
        while True:
            state = await self._on.events.state(run, projection.view)
            kept = Kept(projection.begin(run[1]))
            if state is None:
                return Read(None, kept)
            if state.snapshot is not None and from_kept:
                kept = from_stored(projection, state.snapshot)
            events = readable_events if skip_corrupt else read_events
            kept = await self._folded(run, projection, kept, state.generation, events)
            if kept.last_seq >= state.last_seq:
                return Read(state.generation, kept)
            # It was deleted meanwhile, and is of another generation now or gone; or a replica is
            # behind.
            tries = tries + 1 if state.generation == generation else 0
            generation = state.generation
            if tries == _MOST_TRIES:
                raise Corrupt(
                    f"run {run[1]!r}: should be at event {state.last_seq}, and none is there after "
                    f"{kept.last_seq}",
                    run_id=run[1],
                    last_seq=state.last_seq,
                )
            await self._on.pause(tries * _PAUSE)

    async def keep(self, run: RunKey, projection: Projection[S], read: Read[S]) -> bool:
        """Keep what was read; False when there is no such run any more.

        What is too large for the store is not kept: it is folded anew by whoever asks.
        """
        keep = self.to_keep(run, projection, read)
        if keep is None:
            return read.generation is not None
        return await self._on.events.keep(*keep)

    def to_keep(self, run: RunKey, projection: Projection[S], read: Read[S]) -> Keep | None:
        """How it is kept; None without a run, or when it is too large."""
        if read.generation is None:
            return None
        stored = to_stored(projection, run[1], read.kept)
        size = codec.byte_size(stored.payload)
        if size > self._most_bytes:
            if self._warned.is_first(run, projection.view):
                _log.warning(
                    "view %r of run %r: %d bytes are too many to be kept, at most %d",
                    *(projection.view, run[1], size, self._most_bytes),
                )
            return None
        return Keep(run, projection.view, read.generation, stored)

    async def append(self, append: Append, size: int, inline: Sequence[Projection[Any]]) -> Outcome:
        """Append, and keep these views as they are then: all of it or nothing."""
        if self._begin is None:
            return await self._append(append, size, inline)
        tx = await self._begin(_TRANSACTION_SECS)
        try:
            inside = Views(tx, self._most_bytes, self._warned)
            outcome = await inside._append(append, size, inline)
        except BaseException:
            await tx.rollback()
            raise
        await tx.commit()
        return outcome

    async def _append(
        self, append: Append, size: int, inline: Sequence[Projection[Any]]
    ) -> Outcome:
        (outcome,) = await self._on.events.append([append], size)
        if isinstance(outcome, Refused) or not count_new(outcome):
            return outcome
        for projection in inline:
            await self.keep(append.run, projection, await self.read(append.run, projection))
        return outcome

    async def _folded(
        self,
        run: RunKey,
        projection: Projection[S],
        kept: Kept[S],
        generation: int,
        events: Callable[[Sequence[EventRow]], Iterable[Event]],
    ) -> Kept[S]:
        while True:
            page = await self._on.events.fetch(
                run, after=kept.last_seq, limit=_PAGE, generation=generation
            )
            if page:
                state = projection.advance(kept.state, events(page))
                kept = kept._replace(state=state, last_seq=page[-1][1])
            if len(page) < _PAGE:
                return kept
            await self._on.pause()

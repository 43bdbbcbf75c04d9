"""How a projector brings views up to date: the logic alone, over whatever has events and views.

The feed tells of events; each view of each run has a follower (facets/following.py). When events
are missing the view is STALE until it was resynced, that is, until the run's events themselves
were read. What is missing there too is a gap for good: it is kept with the view, so that it is
looked into once, and so that an event which comes late is told from a known one. After a late
one the run is resynced from its first event on.

State and watermark are saved together. So whatever a crash leaves out is told again, and what is
told twice is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from holdfast.errors import Corrupt, ProjectionFailed
from holdfast.facets.daemons import MarkKind, ProjectTotals, Resync, RunMark
from holdfast.facets.events import Event
from holdfast.facets.following import Follower, Loaded, ToSave, Trouble
from holdfast.facets.views import Kept, Projection

S = TypeVar("S")
_PAGE = 1000  # events of a resync that are in memory at a time
_SAVED_AT_ONCE = 50  # views, which may be large
_MOST_FOLLOWERS = 2000  # their states are in memory, and may be large
_Key = tuple[str, str]  # view and run id


class ViewStore(Protocol):
    """What a projector works on. ProjectionFailed is about that view of that run only."""

    async def load(self, run_id: str, projection: Projection[S]) -> Loaded[S] | None:
        """The view as it is kept, or as it begins; None when there is no such run."""

    async def fetch(self, run_id: str, generation: int, after: int, limit: int) -> list[Event]:
        """The run's next events, in order."""

    async def save_all(self, views: Sequence[ToSave]) -> Sequence[bool | ProjectionFailed | None]:
        """Keep state and watermark of each in one step; False when there is no such run any more.

        Of what cannot be kept why not; None for what is too large, which others fold anew.
        """

    async def mark(self, mark: RunMark) -> None:
        """Let everybody know."""

    async def unmark(self, run_id: str, view: str) -> None:
        """All is well again."""


class Projecting:
    """Brings the views of runs up to date with what it is told."""

    def __init__(self, store: ViewStore, resync: Resync = Resync.FROM_SNAPSHOT) -> None:
        self._store = store
        self._resync = resync
        self._followers: dict[_Key, Follower[Any]] = {}
        self._unsaved: dict[_Key, Follower[Any]] = {}
        self._failed: set[_Key] = set()
        self.totals = ProjectTotals()

    @property
    def waiting_since(self) -> datetime | None:
        """When the oldest event was stored that no saved view has yet."""
        # A copy: whoever asks for the lag may be on another thread.
        waiting = [follower.waiting_since for follower in list(self._unsaved.values())]
        return min((at for at in waiting if at is not None), default=None)

    @property
    def unsaved(self) -> int:
        """How many views are further in memory than in the store."""
        return len(self._unsaved)

    async def take(
        self, projection: Projection[Any], run_id: str, events: Sequence[Event], *, catch_up: bool
    ) -> None:
        """Fold events of the run that were told; with `catch_up` what came after them as well.

        A view whose fold raises is marked, and left alone until `retry`.
        """
        key = (projection.view, run_id)
        if key in self._failed:
            return
        try:
            await self._take(key, projection, events, catch_up=catch_up)
        except (Corrupt, ProjectionFailed) as exc:
            await self._fail(key, exc)

    async def refuse(self, projection: Projection[Any], run_id: str, exc: Corrupt) -> None:
        """Mark a view of a run with an event that cannot be read, and leave it alone."""
        key = (projection.view, run_id)
        if key not in self._failed:
            await self._fail(key, exc)

    async def retry(self, projection: Projection[Any], run_id: str) -> None:
        """Try a view that was marked once more, with all events there are."""
        key = (projection.view, run_id)
        self._failed.discard(key)
        self._drop(key)
        try:
            await self._read_anew(key, projection, (), full=False)
        except (Corrupt, ProjectionFailed) as exc:
            await self._fail(key, exc)
        else:
            await self._save([key] if key in self._unsaved else [])
            if key not in self._failed:
                await self._store.unmark(run_id, projection.view)

    async def flush(self) -> None:
        """Save what is further in memory than in the store."""
        keys = list(self._unsaved)
        for first in range(0, len(keys), _SAVED_AT_ONCE):
            await self._save(keys[first : first + _SAVED_AT_ONCE])
        if len(self._followers) > _MOST_FOLLOWERS:
            self._followers.clear()

    def forget(self, which: Callable[[str], bool]) -> None:
        """Let go of runs, by their ids, without saving anything."""
        for followers in (self._followers, self._unsaved):
            for key in [key for key in followers if which(key[1])]:
                del followers[key]
        self._failed = {key for key in self._failed if not which(key[1])}

    async def _take(
        self, key: _Key, projection: Projection[Any], events: Sequence[Event], *, catch_up: bool
    ) -> None:
        follower = self._followers.get(key)
        just_loaded = follower is None
        if follower is None:
            follower = await self._load(key, projection)
        before = self.totals.events
        trouble = self._taken(key, follower, events)
        first_again = trouble is Trouble.KNOWN and any(event.run_seq == 1 for event in events)
        if first_again and not just_loaded:
            loaded = await self._store.load(key[1], projection)
            if follower is None or loaded is None or loaded.generation != follower.generation:
                # What is in memory is of a run that was deleted; another began with a first event.
                trouble = self._taken(key, await self._load(key, projection), events)
        if trouble in (Trouble.MISSING, Trouble.LATE):
            await self._resynced(key, projection, events, full=trouble is Trouble.LATE)
        elif catch_up and self.totals.events > before:
            await self._read_anew(key, projection, events, full=False)

    def _taken(
        self, key: _Key, follower: Follower[Any] | None, events: Sequence[Event]
    ) -> Trouble | None:
        if follower is None:
            return None
        before = follower.kept
        trouble = follower.take(events)
        self._note(key, follower, before)
        return trouble

    def _note(self, key: _Key, follower: Follower[Any], before: Kept[Any]) -> None:
        if follower.kept is not before:
            self._unsaved[key] = follower
            folded = follower.kept.last_seq - before.last_seq
            new_gaps = follower.kept.gaps[len(before.gaps) :]
            folded -= sum(last - first + 1 for first, last in new_gaps)
            self.totals += ProjectTotals(events=folded, gaps=len(new_gaps))

    async def _resynced(
        self, key: _Key, projection: Projection[Any], events: Sequence[Event], *, full: bool
    ) -> None:
        view, run_id = key
        reason = "an event came late" if full else "events are missing"
        await self._store.mark(RunMark(run_id, view, MarkKind.STALE, events[-1].run_seq, reason))
        await self._read_anew(key, projection, events, full=full or self._resync is Resync.FULL)
        await self._store.unmark(run_id, view)

    async def _read_anew(
        self, key: _Key, projection: Projection[Any], told: Sequence[Event], *, full: bool
    ) -> None:
        """Go on from what is kept, or with `full` from nothing, with the run's own events.

        And with those that were told: a store may tell of them before it lets them be read.
        """
        loaded = await self._store.load(key[1], projection)
        follower = self._followers.get(key)
        if loaded is None:
            return self._drop(key)
        if follower is None or follower.generation != loaded.generation:
            follower = self._begin(key, projection, loaded)
        if full:
            follower.kept = Kept(projection.begin(key[1]))
        if told and follower.waiting_since is None:
            follower.waiting_since = told[0].persisted_at
        more = True
        while more:
            after = follower.kept.last_seq
            page = await self._store.fetch(key[1], follower.generation, after, _PAGE)
            more = len(page) == _PAGE
            found = {event.run_seq: event for event in told if event.run_seq > after}
            if more:
                found = {seq: event for seq, event in found.items() if seq < page[-1].run_seq}
            found.update((event.run_seq, event) for event in page)
            before = follower.kept
            follower.replay([found[seq] for seq in sorted(found)])
            self._note(key, follower, before)
        self.totals += ProjectTotals(resyncs=1)
        return None

    async def _load(self, key: _Key, projection: Projection[Any]) -> Follower[Any] | None:
        self._drop(key)
        loaded = await self._store.load(key[1], projection)
        return None if loaded is None else self._begin(key, projection, loaded)

    def _begin(self, key: _Key, projection: Projection[Any], loaded: Loaded[Any]) -> Follower[Any]:
        self._drop(key)
        self._followers[key] = follower = Follower(projection, loaded)
        return follower

    async def _save(self, keys: Sequence[_Key]) -> None:
        if not keys:
            return
        followers = [self._unsaved[key] for key in keys]
        outcomes = await self._store.save_all(
            [
                (key[1], follower.projection, Loaded(follower.generation, follower.kept))
                for key, follower in zip(keys, followers, strict=True)
            ]
        )
        for key, follower, outcome in zip(keys, followers, outcomes, strict=True):
            if isinstance(outcome, ProjectionFailed):
                await self._fail(key, outcome)
            elif outcome is False:
                self._drop(key)
            else:
                del self._unsaved[key]
                follower.waiting_since = None
                self.totals += ProjectTotals(kept=outcome is True)

    async def _fail(self, key: _Key, exc: Corrupt | ProjectionFailed) -> None:
        run_seq = exc.facts.get("run_seq")
        if not isinstance(run_seq, int):
            raise exc  # it is not about this run alone
        # In memory the state may be half folded: what is kept is right.
        self._drop(key)
        self._failed.add(key)
        self.totals += ProjectTotals(failed=1)
        view, run_id = key
        await self._store.mark(RunMark(run_id, view, MarkKind.FAILED, run_seq, str(exc)))

    def _drop(self, key: _Key) -> None:
        self._followers.pop(key, None)
        self._unsaved.pop(key, None)

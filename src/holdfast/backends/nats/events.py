"""Events on NATS: a stream of their own, in which each run is a subject. See runs.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.backends.nats.append_line import Outcome
from holdfast.backends.nats.appending import Appending
from holdfast.backends.nats.clock import NatsClock
from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.names import Names
from holdfast.backends.nats.namespaces import Namespaces
from holdfast.backends.nats.runs import Runs
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.views import Views
from holdfast.backends.nats.wakes import Wakes
from holdfast.facets.events import (
    Append,
    Refused,
    RunKey,
    RunState,
    StoredEvent,
    StoredSnapshot,
)


class NatsEvents:
    """See EventsBackend."""

    def __init__(
        self,
        db: NatsDb,
        stream: Stream,
        events: Stream,
        clock: NatsClock,
        wakes: Wakes,
        *,
        namespaces: Namespaces,
    ) -> None:
        self._db = db
        self._stream = events
        self._wakes = wakes
        self._namespaces = namespaces
        self._runs = Runs(events, clock)
        self._names = Names(events)
        self._views = Views(stream, self._runs)
        self._appending = Appending(self._runs, clock)

    async def append(self, appends: Sequence[Append], size: int) -> Sequence[Outcome]:
        """See EventsBackend."""
        del size
        return await self._db.run(self._append(appends))

    async def fetch(
        self, run: RunKey, *, after: int, limit: int, generation: int | None = None
    ) -> list[StoredEvent]:
        """See EventsBackend.

        Where a number is in the stream is searched for: some 2·log2(n) questions, unless the
        page before was read here.
        """
        return await self._db.run(self._runs.fetch(run, after, limit, generation))

    async def runs(self, namespace: str, *, after: str | None, limit: int) -> list[str]:
        """See EventsBackend.

        The server lists the names of all runs of the namespace, some 100,000 per second, and
        they are sorted here; for the next page again if something was appended since. Of each
        run in the page the last message is read.
        """
        return await self._db.run(self._list(namespace, after, limit))

    async def delete(
        self, run: RunKey, limit: int, *, generation: int, last_seq: int | None = None
    ) -> bool | None:
        """See EventsBackend. Page by page to its end: there is no transaction to keep short."""
        return await self._db.run(self._delete(run, limit, generation, last_seq))

    async def state(self, run: RunKey, view: str) -> RunState | None:
        """See EventsBackend."""
        return await self._db.run(self._state(run, view))

    async def keep(self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot) -> bool:
        """See EventsBackend."""
        return await self._db.run(self._keep(run, view, generation, snapshot))

    async def _append(self, appends: Sequence[Append]) -> list[Outcome]:
        for namespace in {append.run[0] for append in appends}:
            await self._namespaces.note(namespace, self._stream.deadline())
        if len(appends) == 1:
            outcomes = [await self._appending.append(appends[0])]
        else:
            # Those of one run wait in the same line, in their order.
            tasks = [asyncio.ensure_future(self._appending.append(append)) for append in appends]
            await asyncio.gather(*tasks, return_exceptions=True)
            outcomes = [task.result() for task in tasks]
        told = {
            append.run[0]
            for append, outcome in zip(appends, outcomes, strict=True)
            if not isinstance(outcome, Refused) and any(one.known is None for one in outcome)
        }
        for namespace in told:
            await self._wakes.tell(namespace)
        return outcomes

    async def _list(self, namespace: str, after: str | None, limit: int) -> list[str]:
        place = self._runs.place(namespace)
        found: list[str] = []
        while len(found) < limit:
            deadline = self._stream.deadline()
            window = await self._names.above(place, "", after, deadline, newest=True)
            names = window.names[window.at : window.at + limit - len(found)]
            if not names:
                break
            subjects = [place.subject(name) for name in names]
            there = await self._runs.there(subjects, deadline)
            found += [
                name for name, subject in zip(names, subjects, strict=True) if subject in there
            ]
            after = self._names.keep(place, "", window, len(names))
            if after is None:
                break
        return found

    async def _delete(
        self, run: RunKey, limit: int, generation: int, last_seq: int | None
    ) -> bool | None:
        done = await self._runs.delete(run, limit, generation, last_seq)
        if done:
            await self._views.drop(run, generation, self._stream.deadline())
        return done

    async def _state(self, run: RunKey, view: str) -> RunState | None:
        deadline = self._stream.deadline()
        head = await self._runs.head(self._runs.subject(run), deadline)
        if head is None:
            return None
        kept = await self._views.get(run, view, head.generation, deadline)
        return RunState(head.generation, head.last, kept)

    async def _keep(
        self, run: RunKey, view: str, generation: int, snapshot: StoredSnapshot
    ) -> bool:
        return await self._views.keep(run, view, generation, snapshot, self._stream.deadline())

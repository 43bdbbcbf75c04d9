"""Events on PostgreSQL: a batch is one statement, and another one if not everything was new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import codec
from holdfast.backends.postgres.arrays import bigints, texts, uuids
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.events import EventBatches, EventQueries, Gone, SqlEvents
from holdfast.backends.sql.queries import Dialect, load
from holdfast.facets.events import Append, Appended, Keep, Outcome, Refused


class PostgresEvents(SqlEvents):
    """See EventsBackend and EventLog."""

    def __init__(self, db: PostgresScope, dialect: Dialect) -> None:
        feed = load(__package__, "cells.sql", dialect)
        places = {name: feed[name] for name in ("find_position", "find_end")}
        queries = {**load(__package__, "events.sql", dialect), **places}
        batches = EventBatches(
            append=AppendEvents(queries["append_new"], queries["append_events"]),
            delete=DeleteRuns(queries["delete_run"]),
            put=PutViews(queries["put_view"]),
        )
        super().__init__(db, batches, EventQueries.of(queries))

    async def keep_all(self, keeps: Sequence[Keep]) -> Sequence[bool]:
        """See EventsBackend. One transaction would lock all these runs until its end."""
        return [await self.keep(*each) for each in keeps]


class AppendEvents:
    """Calls; the same run may come many times.

    First as if everything were new, which it nearly always is; else with a look at each event.
    """

    def __init__(self, new: str, any_: str) -> None:
        self._new = new
        self._any = any_

    async def apply(
        self, on: PgConnection, items: Sequence[Append], *, repeat: bool
    ) -> Sequence[Outcome]:
        """See Batch."""
        events = [event for append in items for event in append.events]
        keys, ids, types, emitted, data, more = zip(*events, strict=True)
        params = {
            "namespaces": texts([a.run[0] for a in items for _ in a.events]),
            "run_ids": texts([a.run[1] for a in items for _ in a.events]),
            "expected": bigints(
                None
                if append.expected_seq is None
                else min(append.expected_seq + place, codec.INT64_MAX)
                for append in items
                for place in range(len(append.events))
            ),
            "keys": texts(keys),
            "event_ids": uuids(ids),
            "types": texts(types),
            "emitted": bigints(emitted),
            "data": texts(data),
            "more": texts(more),
        }
        if not repeat:
            ((numbers,),) = await on.fetch(self._new, params)
            if numbers is not None:
                answers = map(Appended, numbers)
                return [[next(answers) for _ in append.events] for append in items]
        calls = bigints(call for call, append in enumerate(items) for _ in append.events)
        return await self._one_by_one(on, len(items), {"calls": calls, **params})

    async def _one_by_one(
        self, on: PgConnection, calls: int, params: Mapping[str, object]
    ) -> list[Outcome]:
        answers: list[list[Appended]] = [[] for _ in range(calls)]
        refused: dict[int, Refused] = {}
        for call, run_seq, kind, data, more, last_seq, twice in await on.fetch(self._any, params):
            if last_seq is not None:
                refused[call] = Refused(last_seq, None if twice is None else twice.bytes)
            else:
                known = None if kind is None else (kind, data, more)
                answers[call].append(Appended(run_seq, known))
        return [refused.get(call, answers[call]) for call in range(calls)]


class DeleteRuns:
    """Hides a run at once and drops its events page by page; True when nothing is left."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[Gone], *, repeat: bool
    ) -> list[bool | None]:
        """See Batch."""
        del repeat  # what is gone is gone
        answers: list[bool | None] = []
        for (namespace, run_id), limit, generation, last_seq in items:
            params = {
                "namespace": namespace,
                "run_id": run_id,
                "limit": limit,
                "generation": generation,
                "last_seq": last_seq,
            }
            ((done,),) = await on.fetch(self._query, params)
            answers.append(done)
        return answers


class PutViews:
    """Keeps views, each unless a later one is there."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(self, on: PgConnection, items: Sequence[Keep], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat  # the same again is no harm
        answers = []
        for (namespace, run_id), view, generation, snapshot in items:
            params = {
                "namespace": namespace,
                "run_id": run_id,
                "view": view,
                "generation": generation,
                **snapshot._asdict(),
            }
            ((kept,),) = await on.fetch(self._query, params)
            answers.append(bool(kept))
        return answers

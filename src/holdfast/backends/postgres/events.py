"""Events on PostgreSQL: each batch is one statement, one round trip, one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.postgres.arrays import plain_array, text_array
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.transaction import PostgresScope
from holdfast.backends.sql.events import EventBatches, EventQueries, Gone, Outcome, Put, SqlEvents
from holdfast.backends.sql.queries import Dialect, load
from holdfast.facets.events import Append, Appended, Refused


class PostgresEvents(SqlEvents):
    """See EventsBackend and EventLog."""

    def __init__(self, db: PostgresScope, dialect: Dialect) -> None:
        feed = load(__package__, "cells.sql", dialect)
        places = {name: feed[name] for name in ("find_position", "find_end")}
        queries = {**load(__package__, "events.sql", dialect), **places}
        batches = EventBatches(
            append=AppendEvents(queries["append_events"]),
            delete=DeleteRuns(queries["delete_run"]),
            put=PutViews(queries["put_view"]),
        )
        super().__init__(db, batches, EventQueries.of(queries))


class AppendEvents:
    """Calls; the same run may come many times."""

    def __init__(self, query: str) -> None:
        self._query = query

    async def apply(
        self, on: PgConnection, items: Sequence[Append], *, repeat: bool
    ) -> list[Outcome]:
        """See Batch."""
        del repeat  # keys tell
        events = [
            (call, append, event) for call, append in enumerate(items) for event in append.events
        ]
        params = {
            "calls": plain_array(call for call, _, _ in events),
            "namespaces": text_array(append.run[0] for _, append, _ in events),
            "run_ids": text_array(append.run[1] for _, append, _ in events),
            "expected": plain_array(_or_null(append.expected_seq) for _, append, _ in events),
            "keys": text_array(event.key for _, _, event in events),
            "event_ids": plain_array(event.event_id.hex() for _, _, event in events),
            "types": text_array(event.event_type for _, _, event in events),
            "emitted": plain_array(_or_null(event.emitted_at) for _, _, event in events),
            "data": text_array(event.data for _, _, event in events),
            "more": text_array(event.more for _, _, event in events),
        }
        answers: list[list[Appended]] = [[] for _ in items]
        refused: dict[int, Refused] = {}
        for call, run_seq, kind, data, last_seq, twice in await on.fetch(self._query, params):
            if last_seq is not None:
                refused[call] = Refused(last_seq, None if twice is None else twice.bytes)
            else:
                known = None if kind is None else (kind, data)
                answers[call].append(Appended(run_seq, known))
        return [refused.get(call, answers[call]) for call in range(len(items))]


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

    async def apply(self, on: PgConnection, items: Sequence[Put], *, repeat: bool) -> list[bool]:
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


def _or_null(number: int | None) -> object:
    return "NULL" if number is None else number

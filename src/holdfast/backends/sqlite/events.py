"""Events on SQLite: the rule of facets/events.py, decided in Python under the one writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.backends.sql.events import EventBatches, EventQueries, Gone, SqlEvents
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.facets.events import Append, Appended, Keep, NewEvent, Refused, RunKey

_OWN = load(__package__, "events.sql", SQLITE)
_FIND_RUN, _FIND_KEY, _FIND_ID = (
    _OWN[name] for name in ("find_run", "find_by_key", "find_by_event_id")
)
_ADD_EVENT, _ADD_IF_NEW = (_OWN[name] for name in ("add_event", "add_if_new"))


Head = tuple[int | None, int]
"""Of a run: its id, None if there is none, and its last number."""


class SqliteEvents(SqlEvents):
    """See EventsBackend and EventLog."""

    def __init__(self, db: SqliteScope) -> None:
        batches = EventBatches(append=AppendEvents(), delete=DeleteRuns(), put=PutViews())
        super().__init__(db, batches, EventQueries.of(_OWN))


class AppendEvents:
    """Calls, one after the other: the same run may come many times."""

    def apply(
        self, on: SqliteConnection, items: Sequence[Append], *, repeat: bool
    ) -> list[list[Appended] | Refused]:
        """See Batch."""
        del repeat  # keys tell
        now, commit_id, *_ = on.moments.begin()
        outcomes: list[list[Appended] | Refused] = []
        heads: dict[RunKey, Head] = on.moments.notes
        for append in items:
            head = heads.get(append.run) or on.execute(_FIND_RUN, append.run).get or (None, 0)
            run, last_seq = head
            outcome: list[Appended] | Refused
            new: Sequence[NewEvent]
            if _added_as_new(on, append, head, (commit_id + 1, now)):
                outcome, new = [Appended(last_seq + 1)], append.events
            else:
                outcome, new = decide(on, append, run, last_seq)
                if new and run is None:
                    on.execute(_OWN["add_run"], append.run)
                    run = on.raw.last_insert_rowid()
                for place, event in enumerate(new, 1):
                    values = (commit_id + place, run, last_seq + place, *_columns(event, now))
                    on.execute(_ADD_EVENT, values)
            outcomes.append(outcome)
            commit_id += len(new)
            heads[append.run] = run, last_seq + len(new)
        on.moments.gave_out(commit_id)
        return outcomes


def _added_as_new(
    on: SqliteConnection,
    append: Append,
    head: Head,
    moment: tuple[int, int],
) -> bool:
    """True when the call was one new event, as nearly all are: then the indexes have looked."""
    run, last_seq = head
    if len(append.events) != 1 or run is None or append.expected_seq not in (None, last_seq):
        return False
    commit_id, now = moment
    on.execute(_ADD_IF_NEW, (commit_id, run, last_seq + 1, *_columns(append.events[0], now)))
    return bool(on.raw.changes())


def _columns(event: NewEvent, now: int) -> tuple[str | bytes | int | None, ...]:
    key, event_id, kind, emitted_at, data, more = event
    return key, event_id, kind, now if emitted_at is None else emitted_at, now, data, more


def decide(
    on: SqliteConnection, append: Append, run: int | None, last_seq: int
) -> tuple[list[Appended] | Refused, Sequence[NewEvent]]:
    """The answer to a call, and which of its events are new."""
    answers: list[Appended] = []
    new: list[NewEvent] = []
    own: dict[str, Appended] = {}  # of this call, by key
    ids: set[bytes] = set()
    for event in append.events:
        known = own.get(event.key) or _known(on, run, event.key)
        if known is not None:
            answers.append(known)
            continue
        if event.event_id in ids or (
            run is not None and on.execute(_FIND_ID, (run, event.event_id)).get is not None
        ):
            return Refused(last_seq, event.event_id), []
        new.append(event)
        ids.add(event.event_id)
        run_seq = last_seq + len(new)
        answers.append(Appended(run_seq))
        own[event.key] = Appended(run_seq, event.said)
    if new and append.expected_seq not in (None, last_seq):
        return Refused(last_seq), []
    return answers, new


def _known(on: SqliteConnection, run: int | None, key: str) -> Appended | None:
    row = None if run is None else on.execute(_FIND_KEY, (run, key)).get
    return None if row is None else Appended(row[0], row[1:])


class DeleteRuns:
    """Hides a run at once and drops its events page by page; True when nothing is left."""

    def apply(
        self, on: SqliteConnection, items: Sequence[Gone], *, repeat: bool
    ) -> list[bool | None]:
        """See Batch."""
        del repeat  # what is gone is gone
        return [self._delete(on, *item) for item in items]

    def _delete(
        self,
        on: SqliteConnection,
        run: RunKey,
        limit: int,
        generation: int,
        last_seq: int | None,
    ) -> bool | None:
        found: Any = on.execute(_FIND_RUN, run).get
        if found is not None and found[0] == generation:
            if last_seq not in (None, found[1]):
                return None
            on.execute(_OWN["hide_run"], (generation,))
        on.execute(_OWN["set_commit_floor"])
        for (gone,) in on.execute(_OWN["list_gone"], (limit,)).fetchall():
            on.execute(_OWN["drop_events"], (gone, limit))
            if on.raw.changes() == limit:
                return False
            on.execute(_OWN["drop_views"], (gone,))
            on.execute(_OWN["drop_run"], (gone,))
        return True


class PutViews:
    """Keeps views, each unless a later one is there."""

    def apply(self, on: SqliteConnection, items: Sequence[Keep], *, repeat: bool) -> list[bool]:
        """See Batch."""
        del repeat  # the same again is no harm
        outcomes = []
        for put in items:
            run: Any = on.execute(_FIND_RUN, put.run).get
            there = run is not None and run[0] == put.generation
            if there:
                on.execute(_OWN["put_view"], (put.generation, put.view, *put.snapshot))
            outcomes.append(there)
        return outcomes

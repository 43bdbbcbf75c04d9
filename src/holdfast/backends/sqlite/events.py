"""Events on SQLite: the rule of facets/events.py, decided in Python under the one writer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.backends.sql.events import EventBatches, EventQueries, Gone, SqlEvents
from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.transaction import SqliteScope
from holdfast.facets.events import (
    Append,
    Appended,
    Keep,
    NewEvent,
    Outcome,
    Refused,
    RunKey,
)

_OWN = load(__package__, "events.sql", SQLITE)
_FIND_RUN, _FIND_KEY, _FIND_ID = (
    _OWN[name] for name in ("find_run", "find_by_key", "find_by_event_id")
)
_ADD_EVENT = _OWN["add_event"]


Head = tuple[int | None, int]
"""Of a run: its id, None if there is none, and its last number."""


class SqliteEvents(SqlEvents):
    """See EventsBackend and EventLog."""

    def __init__(self, db: SqliteScope) -> None:
        batches = EventBatches(append=AppendEvents(), delete=DeleteRuns(), put=PutViews())
        super().__init__(db, batches, EventQueries.of(_OWN))


class AppendEvents:
    """Calls, one after the other: the same run may come many times.

    Nearly all are single new events: as many of those as follow on each other are inserted by one
    statement, and the indexes say where that was wrong. What was inserted before that is right.
    """

    def apply(
        self, on: SqliteConnection, items: Sequence[Append], *, repeat: bool
    ) -> list[Outcome]:
        """See Batch."""
        del repeat  # keys tell
        log = _Log(on)
        outcomes = log.add_singles(items)
        hopeful = True
        while len(outcomes) < len(items):
            append = items[len(outcomes)]
            if len(append.events) > 1 and hopeful:
                outcomes.append(log.add_as_new(append) or log.add(append))
                outcomes += log.add_singles(items[len(outcomes) :])
            else:
                # Something was known or not as expected. So may be the rest.
                hopeful = False
                outcomes.append(log.add(append))
        on.moments.gave_out(log.commit_id)
        return outcomes


class _Log:
    """The ends of the log and its runs, within one batch."""

    def __init__(self, on: SqliteConnection) -> None:
        self._on = on
        self._now, self.commit_id, *_ = on.moments.begin()
        self._heads: dict[RunKey, Head] = on.moments.notes

    def add_singles(self, items: Sequence[Append]) -> list[Outcome]:
        """Append calls of one new event each, up to the first that is anything else."""
        commit_id, now, heads = self.commit_id, self._now, self._heads
        rows: list[tuple[Any, ...]] = []
        numbers: list[Outcome] = []
        for append in items:
            place, events = append.run, append.events
            run, last_seq = heads.get(place) or self._head(place)
            if len(events) > 1 or append.expected_seq not in (None, last_seq):
                break
            if run is None:
                run = self._add_run(place)
            commit_id += 1
            run_seq = last_seq + 1
            heads[place] = run, run_seq
            rows.append((commit_id, run, run_seq, now) + events[0])
            numbers.append(range(run_seq, run_seq + 1))
        added = self._insert(rows)
        self.commit_id += added
        if added < len(rows):
            for append in items[: len(rows)]:
                heads.pop(append.run, None)  # some have not come as far
            del numbers[added:]
        return numbers

    def add_as_new(self, append: Append) -> Outcome | None:
        """Append the call if all its events are new; else nothing, and None."""
        run, last_seq = self._heads.get(append.run) or self._head(append.run)
        if append.expected_seq not in (None, last_seq):
            return None
        self._on.execute("SAVEPOINT appending")
        if run is None:
            run = self._add_run(append.run)
        rows = self._rows(append.events, run, last_seq)
        added = self._insert(rows)
        if added < len(rows):
            self._on.execute("ROLLBACK TO appending")
        self._on.execute("RELEASE appending")
        if added < len(rows):
            return None
        self._advance(append.run, run, last_seq, added)
        return range(last_seq + 1, last_seq + 1 + added)

    def add(self, append: Append) -> Outcome:
        """Append what is new of the call, with a look at each event."""
        run, last_seq = self._heads.get(append.run) or self._head(append.run)
        outcome, new = decide(self._on, append, run, last_seq)
        if new:
            if run is None:
                run = self._add_run(append.run)
            self._on.executemany(_ADD_EVENT, self._rows(new, run, last_seq))
            self._advance(append.run, run, last_seq, len(new))
        return outcome

    def _rows(self, events: Sequence[NewEvent], run: int, last_seq: int) -> list[tuple[Any, ...]]:
        return [
            (self.commit_id + place, run, last_seq + place, self._now, *event)
            for place, event in enumerate(events, 1)
        ]

    def _insert(self, rows: list[tuple[Any, ...]]) -> int:
        """How many were inserted: all, or those before the first that the indexes refuse."""
        before = self._on.raw.total_changes()
        with contextlib.suppress(apsw.ConstraintError):
            self._on.executemany(_ADD_EVENT, rows)
        return self._on.raw.total_changes() - before

    def _advance(self, place: RunKey, run: int, last_seq: int, added: int) -> None:
        self.commit_id += added
        self._heads[place] = run, last_seq + added

    def _head(self, place: RunKey) -> Head:
        return self._on.execute(_FIND_RUN, place).get or (None, 0)

    def _add_run(self, place: RunKey) -> int:
        self._on.execute(_OWN["add_run"], place)
        return self._on.raw.last_insert_rowid()


def decide(
    on: SqliteConnection, append: Append, run: int | None, last_seq: int
) -> tuple[Outcome, Sequence[NewEvent]]:
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

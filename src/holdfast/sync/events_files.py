# GENERATED from holdfast/aio/events_files.py by tools/generate_sync.py: change that file instead.
"""Runs to files and back: export, import, archive.

    store.events.export_runs("runs.jsonl.gz")            # all, or those that are named
    other.events.import_runs("runs.jsonl.gz")            # and again: nothing changes
    path = store.events.archive_run("run-7", "archive")  # to a file, and out of the store

The lines are described in facets/events_lines.py. However much there is, a page of it is in
memory. What an import does is idempotent, so one that failed is repeated from the start.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import BinaryIO
from urllib.parse import quote
from uuid import UUID

from holdfast.archive.lines import LinesReader, LinesWriter, path_of, writer_to
from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.facets.backend import Backend, Capability, require
from holdfast.facets.events import RUN_VIEW, Append, Refused, RunState, StoredEvent, count_new
from holdfast.facets.events_lines import (
    Exported,
    Imported,
    LineReader,
    ReadLine,
    at_line,
    event_line,
    first_line,
    last_line,
)
from holdfast.facets.names import check_name
from holdfast.facets.watch import next_page_size
from holdfast.runtime.blocking import run
from holdfast.sync.events import Events

Told = Callable[[int], None]
"""Called with the events so far."""

_MOST_EVENTS, _MOST_BYTES = 500, 1 << 20  # that go into the store at a time
_LARGEST_PAGE = 100  # events that are read at a time: the next ones may be large
_NAMES = 1000
_LONGEST_NAME = 150  # bytes of a run id in a file's name, which has 255
_ATTEMPTS = 20  # to archive a run that others append to


class StoreEvents(Events):
    """The runs of one namespace, which can also go to files."""

    _backend: Backend

    def export_runs(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        run_ids: Iterable[str] | None = None,
        *,
        progress: Told | None = None,
    ) -> Exported:
        """Write the runs, all or those that are named, as lines of JSON to a file.

        Under a path there is a whole file or none, and one that was there is replaced; a path
        that ends in .gz is gzipped. Its folder must be there. Each run is whole, and as it was
        at one moment.
        """
        require(self._backend, Capability.EVENTS)
        if isinstance(run_ids, str):
            raise InvalidArgument("run ids: wanted several, found a text")
        out, name = run(self._backend.offload(partial(writer_to, file)))
        try:
            run(self._backend.offload(partial(out.write, first_line())))
            runs = events = 0
            if run_ids is None:
                after: str | None = None
                while names := self.list_runs(after=after, limit=_NAMES):
                    for run_id in names:
                        written = self._write_run(out, run_id, events, progress)
                        runs, events = runs + (written > 0), events + written
                    after = names[-1]
            else:
                for run_id in run_ids:
                    written = self._write_run(out, run_id, events, progress)
                    if not written:
                        raise _not_found(run_id)
                    runs, events = runs + 1, events + written
            run(self._backend.offload(partial(out.write, last_line(events))))
            run(self._backend.offload(partial(out.finish, name)))
        finally:
            out.discard()  # nothing is left of it when it is finished
        return Exported(runs, events)

    def import_runs(
        self, file: str | os.PathLike[str] | BinaryIO, *, progress: Told | None = None
    ) -> Imported:
        """Append the events of an export, gzipped or not, under the numbers that they have.

        Events that are there already change nothing. Only `persisted_at` is new: it is when
        this store has persisted them. A file that is damaged or truncated is Corrupt, one of a
        later contract Unsupported, a run that has other events here a Conflict; the error names
        the line, also as `line`. What went in before
        stays, each call of `append_events` as a whole.
        """
        require(self._backend, Capability.EVENTS)
        source = run(self._backend.offload(partial(LinesReader, file)))
        reader = LineReader()
        waiting: list[ReadLine] = []
        size = events = known = 0
        try:
            while lines := run(self._backend.offload(source.read)):
                for line in lines:
                    found = reader.read(line)
                    if found is None:
                        continue
                    waiting.append(found)
                    size += self._line_size(found)
                    if len(waiting) >= _MOST_EVENTS or size >= _MOST_BYTES:
                        new = self._place(waiting, size)
                        events, known = events + new, known + len(waiting) - new
                        waiting, size = [], 0
                        if progress is not None:
                            progress(events + known)
            reader.end()
        finally:
            source.close()
        new = self._place(waiting, size)
        return Imported(events + new, known + len(waiting) - new)

    def archive_run(
        self, run_id: str, folder: str | os.PathLike[str], *, force: bool = False
    ) -> str:
        """Write the run to a file of its own in the folder, then delete it; the file's path.

        The folder is made if missing. The file is durable before anything is deleted: a crash
        leaves the run in the store, in the archive or in both, and to archive it again is right.
        One that has not ended is archived only by `force`. `import_runs` restores it.
        """
        place = path_of(folder)
        if place is None:
            raise InvalidArgument("folder: wanted a path, found a file")
        for _ in range(_ATTEMPTS):
            generation, snapshot = self._to_delete(run_id, force=force)
            last_seq = snapshot.last_event_seq
            out = run(self._backend.offload(partial(LinesWriter, place, packed=True, make=True)))
            try:
                run(self._backend.offload(partial(out.write, first_line())))
                last = self._write_events(out, run_id, RunState(generation, last_seq, None))
                if last is None:  # deleted meanwhile, perhaps by another archiver
                    continue
                name = _file_name(last)
                run(self._backend.offload(partial(out.write, last_line(last_seq))))
                run(self._backend.offload(partial(out.finish, name)))
            finally:
                out.discard()
            if self._deleted(run_id, generation, last_seq):
                return str(place / name)
            # Somebody has appended: what was written lacks the end, and all is in the store.
            run(self._backend.offload(partial((place / name).unlink, missing_ok=True)))
        raise Conflict(
            f"run {run_id!r}: others append to it faster than it is archived", run_id=run_id
        )

    def _write_run(self, out: LinesWriter, run_id: str, before: int, progress: Told | None) -> int:
        """How many events were written: none when there is no such run."""
        place = (self._namespace, check_name(run_id, what="run id"))
        state = run(self._events.state(place, RUN_VIEW))
        if state is None:
            return 0
        told = None if progress is None else lambda seq: progress(before + seq)
        last = self._write_events(out, run_id, state, told)
        return 0 if last is None else last.run_seq

    def _write_events(
        self, out: LinesWriter, run_id: str, state: RunState, told: Told | None = None
    ) -> StoredEvent | None:
        """The last event of the run, which was written; None when the run is gone."""
        place = (self._namespace, run_id)
        limit = next_page_size(0, 0, 0, more=False)
        seq = 0
        while True:
            rows = run(
                self._events.fetch(
                    place,
                    after=seq,
                    limit=min(limit, state.last_seq - seq),
                    generation=state.generation,
                )
            )
            page = list(map(StoredEvent._make, rows))
            if not page:
                if seq == 0:
                    return None
                raise NotFound(f"run {run_id!r}: was deleted while it was read", run_id=run_id)
            run(self._backend.offload(partial(out.write_all, map(event_line, page))))
            seq = page[-1].run_seq
            if told is not None:
                told(seq)
            if seq >= state.last_seq:
                return page[-1]
            size = sum(len(event.data) for event in page)
            limit = min(next_page_size(limit, len(page), size, more=True), _LARGEST_PAGE)

    def _place(self, lines: list[ReadLine], size: int) -> int:
        """How many of the events were new; all are there then."""
        if not lines:
            return 0
        calls = _calls(lines)
        new = 0
        try:
            outcomes = run(self._events.append([self._line_append(call) for call in calls], size))
            for call, outcome in zip(calls, outcomes, strict=True):
                if isinstance(outcome, Refused) or count_new(outcome) < len(call):
                    new += self._place_slowly(call)
                else:
                    new += len(call)
        finally:
            for call in calls:
                self._cache.forget((self._namespace, call[0].run_id))
        return new

    def _place_slowly(self, call: list[ReadLine]) -> int:
        """The same for events that do not all follow on what the store has of their run."""
        new = 0
        while True:
            run_id = call[0].run_id
            stored = run(
                self._events.fetch(
                    (self._namespace, run_id), after=call[0].run_seq - 1, limit=len(call)
                )
            )
            for line, there in zip(call, stored, strict=False):
                if not line.is_stored_as(StoredEvent._make(there)):
                    raise _conflict(line, "is another one here")
            call = call[len(stored) :]
            if not call:
                return new
            (outcome,) = run(self._events.append([self._line_append(call)], 0))
            if not isinstance(outcome, Refused):
                # Compared as well: a key may be known that was none of those that were read.
                new += count_new(outcome)
            elif outcome.event_id is not None:
                event_id = str(UUID(bytes=outcome.event_id))
                raise _conflict(call[0], f"and event {event_id} is here under another key")
            elif outcome.last_seq < call[0].run_seq:
                raise _conflict(call[0], f"does not follow: the run is at {outcome.last_seq} here")

    def _line_append(self, call: list[ReadLine]) -> Append:
        first = call[0]
        place = (self._namespace, first.run_id)
        return Append(place, tuple(line.event for line in call), first.run_seq - 1)

    def _line_size(self, line: ReadLine) -> int:
        try:
            return self._size(line.run_id, (line.event,))
        except InvalidArgument as exc:
            raise at_line(line.number, exc) from exc


def _calls(lines: list[ReadLine]) -> list[list[ReadLine]]:
    """The events that are appended together: of one run, and one after the other."""
    # Where a run's numbers go on, they are as far ahead of the line as before.
    places = ((line, (line.run_id, line.run_seq - at)) for at, line in enumerate(lines))
    return [[line for line, _ in call] for _, call in groupby(places, key=lambda one: one[1])]


def _file_name(last: StoredEvent) -> str:
    """Of a run up to that event: it is the same only for the same events.

    Another run that has the id later has another name, and so has the same one when it is longer.
    """
    name = quote(last.run_id, safe=" ")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:80]}~{hashlib.sha256(last.run_id.encode()).hexdigest()[:32]}"
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    return f"{name}.{UUID(bytes=last.event_id)}.jsonl.gz"


def _not_found(run_id: str) -> NotFound:
    return NotFound(f"run {run_id!r}: not found", run_id=run_id)


def _conflict(line: ReadLine, why: str) -> Conflict:
    return Conflict(
        f"line {line.number}: run {line.run_id!r}: event {line.run_seq} {why}",
        line=line.number,
        run_id=line.run_id,
        run_seq=line.run_seq,
    )

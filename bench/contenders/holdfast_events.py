"""Holdfast's events, blocking; many callers are threads that share the store."""

from typing import Final

import holdfast
from bench.callers import Step
from bench.contenders.holdfast_cells import store_url
from bench.logs import check_log, new_event, past_events
from bench.scenario import Work
from bench.tally import Tally


class Program:
    """Events through `holdfast.open`."""

    colour = "blocking"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)

    def open(self) -> None:
        """Append what is there before the clock starts."""
        self._store = holdfast.open(self._url)
        for page in past_events(self._work):
            self._store.events.append_events(page)
        if self._work.operation == "snapshot":
            self._store.events.keep_snapshot(self._work.cells(0)[0])

    def caller(self, number: int) -> Step:
        """The caller's operation."""
        names, work = self._work.cells(number), self._work
        events = self._store.events

        def append(n: int) -> object:
            return events.append_event(new_event(work, names[n % len(names)], n))

        def append_ten(n: int) -> object:
            run = names[n % len(names)]
            return events.append_events([new_event(work, run, 10 * n + i) for i in range(10)])

        def replay(_: int) -> object:
            found = events.fetch_events(names[0], limit=work.events)
            assert len(found) == work.events
            return found

        def feed(_: int) -> object:
            found: list[object] = []
            with events.feed() as told:
                while len(found) < work.events:
                    found.append(told.next())
            return found

        def snapshot(_: int) -> object:
            found = events.get_snapshot(names[0])
            assert found is not None
            assert found.last_event_seq == work.events
            return found

        return {
            "append": append,
            "append_ten": append_ten,
            "replay": replay,
            "feed": feed,
            "snapshot": snapshot,
        }[work.operation]

    def verify(self, done: int) -> None:
        """Every event is in its run."""
        runs = self._work.all_cells()
        check_log(self._work, sum(self._store.events.last_seq(run) for run in runs), done)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

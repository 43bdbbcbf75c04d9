"""Holdfast's events, async."""

from typing import Final

import holdfast
from bench.callers import AsyncStep
from bench.contenders.holdfast_cells import store_url
from bench.logs import check_log, new_event, past_events
from bench.scenario import Work
from bench.tally import Tally


class Program:
    """Events through `holdfast.open_async`."""

    colour = "async"

    def __init__(
        self, where: str, work: Work, options: dict[str, str], _tally: Tally | None
    ) -> None:
        self._work: Final = work
        self._url: Final = store_url(where, options)

    async def open(self) -> None:
        """Append what is there before the clock starts."""
        self._store = await holdfast.open_async(self._url)
        for page in past_events(self._work):
            await self._store.events.append_events(page)
        if self._work.operation == "snapshot":
            await self._store.events.keep_snapshot(self._work.cells(0)[0])

    def caller(self, number: int) -> AsyncStep:
        """The caller's operation."""
        names, work = self._work.cells(number), self._work
        events = self._store.events

        async def append(n: int) -> object:
            return await events.append_event(new_event(work, names[n % len(names)], n))

        async def append_ten(n: int) -> object:
            run = names[n % len(names)]
            new = [new_event(work, run, 10 * n + i) for i in range(10)]
            return await events.append_events(new)

        async def replay(_: int) -> object:
            found = await events.fetch_events(names[0], limit=work.events)
            assert len(found) == work.events
            return found

        async def feed(_: int) -> object:
            found: list[object] = []
            async with events.feed() as told:
                while len(found) < work.events:
                    found.append(await told.next())
            return found

        async def snapshot(_: int) -> object:
            found = await events.get_snapshot(names[0])
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

    async def verify(self, done: int) -> None:
        """Every event is in its run."""
        found = 0
        for run in self._work.all_cells():
            found += await self._store.events.last_seq(run)
        check_log(self._work, found, done)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

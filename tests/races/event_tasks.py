"""Writers and readers of a race for runs; each function is a task of `holdfast.testing.fleet`."""

import contextlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

import holdfast
from holdfast import Capability, Conflict, Event, FeedEvent
from holdfast.sync.events import Events
from tests.races.event_checker import Acknowledged, Told

PATIENCE = 120
RUNS = [f"run{number}" for number in range(4)]
LONGEST = 0.01  # seconds that a slow transaction stays open between its appends
DONE = "done/"


class CalledOffError(Exception):
    pass


def append(
    gate: Callable[[], None], *, url: str, seed: str, process: int, threads: int, calls: int
) -> list[Acknowledged]:
    """Append to the same runs as everybody, in all the ways there are; what was acknowledged."""
    config = holdfast.StoreConfig(busy_timeout=300)
    with holdfast.open(url, config=config) as store, ThreadPoolExecutor(threads) as pool:
        writers = [
            Writer(store, f"{process}.{thread}", f"{seed}/{process}/{thread}")
            for thread in range(threads)
        ]
        gate()
        for done in [pool.submit(writer.work, calls) for writer in writers]:
            done.result()
        store.events.append_event(Event(f"{DONE}{process}", "Noted", "done"))
    return [one for writer in writers for one in writer.acknowledged]


class Writer:
    """One of the writers, and what it was told."""

    def __init__(self, store: holdfast.Store, name: str, seed: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._store = store
        self._name = name
        self._chance = random.Random(seed)
        self._ways = 10 if Capability.TRANSACTIONS in store.capabilities else 8
        self._number = 0

    def work(self, calls: int) -> None:
        """Make so many calls."""
        for _ in range(calls):
            way = self._chance.randrange(self._ways)
            if way < 2:
                self._note(self._append(self._store.events, 1))
            elif way < 5:
                self._note(self._append(self._store.events, self._chance.randint(2, 6)))
            elif way < 8:
                self._expect()
            else:
                self._transact(regretted=way == 9)

    def _append(
        self, events: Events, count: int, run: str | None = None, expected: int | None = None
    ) -> list[Acknowledged]:
        run = run or self._chance.choice(RUNS)
        new = [Event(run, "Noted", self._key()) for _ in range(count)]
        results = events.append_events(new, expected_seq=expected)
        return [
            (run, event.idempotency_key, result.run_seq, result.persisted)
            for event, result in zip(new, results, strict=True)
        ]

    def _expect(self) -> None:
        """Append if nobody was faster since the look."""
        run = self._chance.choice(RUNS)
        snapshot = self._store.events.get_snapshot(run)
        last = 0 if snapshot is None else snapshot.last_event_seq
        with contextlib.suppress(Conflict):
            done = self._append(self._store.events, 2, run, last)
            new = [seq for _, _, seq, persisted in done if persisted]
            assert new == [*range(last + 1, last + 1 + len(new))], f"{run} was at {last}: {done}"
            self._note(done)

    def _transact(self, *, regretted: bool) -> None:
        """Append to two runs, slowly; what is rolled back was never there."""
        done = []
        with contextlib.suppress(CalledOffError, Conflict):
            with self._store.transaction(timeout=PATIENCE) as tx:
                for run in ("run0", "run1"):  # in their order: nobody waits in a circle
                    done += self._append(tx.events, 2, run)
                    time.sleep(self._chance.uniform(0, LONGEST))
                if regretted:
                    raise CalledOffError
            self._note(done)

    def _key(self) -> str:
        """Mostly its own; some are everybody's, and who comes first wins."""
        if self._chance.random() < 0.2:
            return f"shared{self._chance.randrange(20)}"
        self._number += 1
        return f"{self._name}.{self._number}"

    def _note(self, done: list[Acknowledged]) -> None:
        self.acknowledged += done


def follow(gate: Callable[[], None], *, url: str, seed: str, writers: int, resumed: bool) -> Told:
    """What the feed tells until all writers are done, in its order; with new feeds in between."""
    chance = random.Random(seed)
    told: Told = []
    done: set[str] = set()
    with holdfast.open(url) as store:
        feed = store.events.feed()
        gate()
        due = chance.randint(1, 200)
        while len(done) < writers:
            found = feed.next(timeout=PATIENCE)
            assert found is not None, f"nothing came; {len(done)} writers are done"
            if not isinstance(found, FeedEvent):
                continue
            event = found.event
            told.append((event.run_id, event.run_seq, event.idempotency_key))
            if event.run_id.startswith(DONE):
                done.add(event.run_id)
            due -= 1
            if resumed and due <= 0 and feed.cursor is not None:
                due = chance.randint(1, 200)
                cursor = feed.cursor
                feed.close()
                feed = store.events.feed(after=cursor)
        feed.close()
    return told


def poll(gate: Callable[[], None], *, url: str, writers: int) -> list[Told]:
    """What reading on above the last number gives until all writers are done, page by page."""
    done = [f"{DONE}{process}" for process in range(writers)]
    last = dict.fromkeys((*RUNS, *done), 0)
    pages: list[Told] = []
    with holdfast.open(url) as store:
        gate()
        began, ended = time.monotonic(), False
        while not ended:
            assert time.monotonic() - began < PATIENCE, f"not done: {last}"
            ended = all(last[run] for run in done)  # then once more: they wrote before that
            for run in last:
                page = store.events.fetch_events(run, after_seq=last[run])
                if page:
                    pages.append([(run, one.run_seq, one.idempotency_key) for one in page])
                    last[run] = page[-1].run_seq
    return pages


def follow_naively(gate: Callable[[], None], *, url: str, writers: int) -> Told:
    """The control: remember the largest number seen, and ask for what is above."""
    told: Told = []
    seen, missing = 0, {f"{DONE}{process}" for process in range(writers)}
    with psycopg.connect(url, autocommit=True) as connection:
        gate()
        quiet_since = time.monotonic()
        while missing and time.monotonic() - quiet_since < 5:
            rows = connection.execute(
                "SELECT e.commit_id, r.run_id, e.run_seq, e.key FROM holdfast.events AS e "
                "JOIN holdfast.runs AS r ON r.id = e.run WHERE e.commit_id > %s "
                "ORDER BY e.commit_id LIMIT 1000",
                (seen,),
            ).fetchall()
            for seen, run, seq, key in rows:  # noqa: B007 - the last one counts
                told.append((run, seq, key))
                missing.discard(run)
                quiet_since = time.monotonic()
    return told

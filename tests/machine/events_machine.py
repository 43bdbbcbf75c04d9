"""A machine of random programs on events: appends, snapshots, whole runs that go, the feed.

`at` says which of the open stores and which of the two namespaces a step works on.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast import (
    CAUGHT_UP,
    AppendResult,
    AsyncStore,
    Capability,
    Conflict,
    Event,
    InvalidState,
    NotFound,
)
from holdfast.events import Imported
from holdfast.testing.events_model import ENDS, Answer, Entry, ModelEvent, ModelEvents, Refusal
from holdfast.testing.world import BlockingColour, Colour, LoopColour

COLOURS: dict[str, Callable[[], Colour]] = {"blocking": BlockingColour, "asyncio": LoopColour}
PATIENCE = 30.0

# Few, and some more often than others: steps that have nothing to do with each other find little.
runs = st.sampled_from(["r", "r", "r", "r%", "ä"])
ids = st.sampled_from([None, None, None, str(UUID(int=1)), str(UUID(int=2))])
types = st.sampled_from(["Noted", "Noted", "Noted", "RunStarted", "StepStarted", *ENDS])
data = st.sampled_from([None, 1, 1.5, "ä\0", b"\xff", {"b": 1, "a": [None]}])
made = st.builds(
    ModelEvent, st.integers(1, 40).map(str), types, data, ids
)  # fmt: skip
several = st.lists(made, min_size=1, max_size=4)
places = st.sampled_from([0, 0, 0, 0, 1, 2, 2, 3])


class EventsBench(NamedTuple):
    """What all examples on one engine share."""

    url: Callable[[], str]
    counts: Counter[str]
    events: Callable[[AsyncStore, str], Any] = lambda store, name: store.namespace(name).events
    """The events of a namespace; a planted fault gets in here."""
    last: bool = True
    """Whether each program ends with one of everything; a planted fault is found by chance."""


class CalledOffError(Exception):
    """Rolls a transaction back."""


class EventsMachine(RuleBasedStateMachine):
    """One random program, run on a store and on the model."""

    def __init__(self, bench: EventsBench) -> None:
        super().__init__()
        self.bench = bench
        self.counts = bench.counts
        self.stores: list[tuple[Colour, AsyncStore]] = []
        self.models = [ModelEvents(), ModelEvents()]
        self.followed: list[tuple[str | None, list[Entry]]] = [(None, []), (None, [])]

    @initialize(colour=st.sampled_from(sorted(COLOURS)), second=st.booleans())
    def begin(self, colour: str, second: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        self.counts["examples"] += 1
        url = self.bench.url()
        number = self.counts["examples"]
        self.namespaces = [f"n{number}", f"n{number}%"]
        self._open(COLOURS[colour](), url)
        if second and Capability.SHARED in self.stores[0][1].capabilities:
            self._open(BlockingColour(), url)
            self.counts["second store"] += 1

    def teardown(self) -> None:
        try:
            broke_off = sys.exception() is not None
            if self.bench.last and self.stores and not broke_off:
                self.one_of_everything()
        finally:
            for colour, store in self.stores:
                colour.run(_coroutine(store.close()))
                colour.close()

    def one_of_everything(self) -> None:
        """On what chance has led to: alone it leaves some out for hundreds of steps."""
        noted = ModelEvent("1", "Noted", None)
        self.append(0, "r", [noted._replace(key="63"), noted._replace(key="64")], 1)
        self.repeat(0, "r", [noted], 0, change=True)
        self.fetch(0, "r", 0, 5, [noted])
        self.burst(0, "r", ["1", "61"])
        self.transaction(0, "r", noted._replace(key="62"), regret=True)
        self.snapshot(0, "r", [noted], kept=True)
        # A run goes, and another one takes its name.
        self.delete_run(0, "r", force=False)
        self.delete_run(0, "r", force=True)
        self.append(0, "r", [noted], 0)
        self.follow(0)
        self.look(0)

    @rule(at=places, run=runs, events=several, right=st.sampled_from([None, None, 0, 0, 1, -1]))
    def append(self, at: int, run: str, events: list[ModelEvent], right: int | None) -> None:
        """Append; `right` is how far what is expected is from what is so."""
        last = self._model(at).last_seq(run)
        expected = None if right is None else max(0, last + right)
        self.counts["several"] += len(events) > 1
        wanted = self._model(at).append(run, events, expected)
        given = [_event(run, event) for event in events]
        if isinstance(wanted, Refusal):
            self.counts["refused"] += 1
            with pytest.raises(Conflict) as caught:
                self._call(at, "append_events", given, expected_seq=expected)
            said = "event_id" if "event_id" in caught.value.facts else "expected_seq"
            assert said in wanted.reasons
            assert said == "event_id" or caught.value.last_seq == last
        else:
            found = self._call(at, "append_events", given, expected_seq=expected)
            assert _answers(found) == wanted
            self.counts["new"] += sum(not one.idempotent for one in wanted)
            self.counts["known"] += sum(one.idempotent for one in wanted)
            self.counts["mismatches"] += sum(one.payload_mismatch for one in wanted)
            self._told(at, run, wanted)

    @rule(at=places, run=runs, first=several, which=st.integers(0, 9), change=st.booleans())
    def repeat(
        self,
        at: int,
        run: str,
        first: list[ModelEvent],
        which: int,
        change: bool,  # noqa: FBT001 - drawn
    ) -> None:
        """Append what is there already, some of it with other data."""
        self.append(at, run, first, None)
        kept = self._model(at).runs.get(run, [])
        again = [event._replace(data=2) if change else event for event in kept[which:][:3]]
        self.append(at, run, [event._replace(event_id=None) for event in again] or first, 1)

    @rule(
        at=places,
        run=runs,
        keys=st.lists(st.integers(1, 60).map(str), min_size=1, max_size=4, unique=True),
    )
    def burst(self, at: int, run: str, keys: list[str]) -> None:
        colour, store = self._store(at)
        events = self.bench.events(store, self._namespace(at))

        async def together() -> list[AppendResult]:
            outcomes = await colour.together(
                events.append_event(Event(run, "Noted", key)) for key in keys
            )
            assert all(isinstance(one, AppendResult) for one in outcomes), outcomes
            return outcomes  # type: ignore[return-value]

        found = colour.run(together())
        by_number = sorted(zip(found, keys, strict=True), key=lambda pair: pair[0].run_seq)
        new = [ModelEvent(key, "Noted", None) for _, key in by_number]
        wanted = self._model(at).append(run, new, None)
        assert not isinstance(wanted, Refusal)
        assert _answers([result for result, _ in by_number]) == wanted
        self._told(at, run, wanted)
        self.counts["bursts"] += 1

    @rule(at=places, run=runs, event=made, regret=st.booleans())
    def transaction(self, at: int, run: str, event: ModelEvent, regret: bool) -> None:  # noqa: FBT001 - drawn
        """Append to two runs as one, perhaps only at the second try."""
        colour, store = self._store(at)
        if Capability.TRANSACTIONS not in store.capabilities:
            return
        event = event._replace(event_id=None)

        async def both(*, commit: bool) -> list[AppendResult]:
            async with store.transaction(timeout=30) as tx:
                events = tx.namespace(self._namespace(at)).events
                answers = [await events.append_event(_event(name, event)) for name in (run, "t")]
                if not commit:
                    raise CalledOffError
                return answers

        if regret:
            with pytest.raises(CalledOffError):
                colour.run(both(commit=False))
            self.counts["rolled back"] += 1
        for name, answer in zip((run, "t"), colour.run(both(commit=True)), strict=True):
            wanted = self._model(at).append(name, [event], None)
            assert not isinstance(wanted, Refusal)
            assert _answers([answer]) == wanted
            self._told(at, name, wanted)
        self.counts["transactions"] += 1

    @rule(at=places, run=runs, force=st.booleans())
    def delete_run(self, at: int, run: str, force: bool) -> None:  # noqa: FBT001 - drawn
        model = self._model(at)
        wanted: type[Exception] | None = None
        if run not in model.runs:
            wanted = NotFound
        elif not force and model.status(run) not in ENDS.values():
            wanted = InvalidState
        if wanted is not None:
            with pytest.raises(wanted):
                self._call(at, "delete_run", run, force=force)
            self.counts["not deleted"] += 1
        else:
            self._call(at, "delete_run", run, force=force)
            model.delete(run)
            cursor, waiting = self.followed[at % 2]
            self.followed[at % 2] = cursor, [entry for entry in waiting if entry[0] != run]
            self.counts["deleted"] += 1

    @rule(at=places, run=runs, first=st.one_of(st.just([]), several, several), kept=st.booleans())
    def snapshot(self, at: int, run: str, first: list[ModelEvent], kept: bool) -> None:  # noqa: FBT001 - drawn
        if first:  # or there would seldom be a run
            self.append(at, run, first, None)
        model = self._model(at)
        for method in ("keep_snapshot", "get_snapshot") if kept else ("get_snapshot",):
            found = self._call(at, method, run)
            if run not in model.runs:
                assert found is None
                return
            assert (found.status, found.last_event_seq) == (model.status(run), model.last_seq(run))
            assert found == self._call(at, "project_snapshot", run)
            self.counts[method] += 1

    @rule(at=places, run=runs, after=st.integers(0, 5), limit=st.integers(1, 5), first=several)
    def fetch(self, at: int, run: str, after: int, limit: int, first: list[ModelEvent]) -> None:
        self.append(at, run, first, 0)
        page = self._call(at, "fetch_events", run, after_seq=after, limit=limit)
        found = [(one.run_seq, one.idempotency_key, one.event_type, one.event_data) for one in page]
        assert found == self._model(at).fetch(run, after, limit)
        self.counts["fetched"] += len(found)

    @rule(at=places)
    def follow(self, at: int) -> None:
        """Go on with the feed where it was left, perhaps through another store."""
        cursor, wanted = self.followed[at % 2]
        told, cursor = self._feed(at, cursor)
        assert told == wanted
        self.followed[at % 2] = cursor, []
        self.counts["followed"] += len(told)

    @rule(at=places)
    def look(self, at: int) -> None:
        """Everything that is there, and that an import of it finds all of it known."""
        model = self._model(at)
        assert self._call(at, "list_runs") == sorted(model.runs, key=str.encode)
        for run in model.runs:
            page = self._call(at, "fetch_events", run)
            found = [
                (one.run_seq, one.idempotency_key, one.event_type, one.event_data) for one in page
            ]
            assert found == model.fetch(run, 0, 1000)
        told, _ = self._feed(at, None)
        assert told == model.log
        file = io.BytesIO()
        self._call(at, "export_runs", file)
        file.seek(0)
        assert self._call(at, "import_runs", file) == Imported(0, len(model.log))
        self.counts["looks"] += 1

    def _feed(self, at: int, after: str | None) -> tuple[list[Entry], str | None]:
        colour, store = self._store(at)
        events = self.bench.events(store, self._namespace(at))

        async def read() -> tuple[list[Entry], str | None]:
            feed = events.feed(after=after)
            told = []
            while (found := await feed.next(PATIENCE)) is not CAUGHT_UP:
                assert found is not None, "the feed never caught up"
                event = found.event
                told.append((event.run_id, event.run_seq, event.idempotency_key))
            feed.close()
            return told, feed.cursor or after

        return colour.run(read())

    def _told(self, at: int, run: str, answers: list[Answer]) -> None:
        """What the follower is to hear next."""
        new = [one.run_seq for one in answers if not one.idempotent]
        kept = self._model(at).runs.get(run, [])
        self.followed[at % 2][1].extend((run, seq, kept[seq - 1].key) for seq in new)

    def _open(self, colour: Colour, url: str) -> None:
        self.stores.append((colour, colour.run(colour.open(url, "default", None))))

    def _store(self, at: int) -> tuple[Colour, AsyncStore]:
        return self.stores[at // 2 % len(self.stores)]

    def _namespace(self, at: int) -> str:
        return self.namespaces[at % 2]

    def _model(self, at: int) -> ModelEvents:
        return self.models[at % 2]

    def _call(self, at: int, method: str, *args: object, **options: object) -> Any:  # noqa: ANN401 - the store's answer
        colour, store = self._store(at)
        self.counts["steps"] += 1
        events = self.bench.events(store, self._namespace(at))
        return colour.run(_coroutine(getattr(events, method)(*args, **options)))


def _event(run: str, event: ModelEvent) -> Event:
    return Event(run, event.event_type, event.key, event.data, event_id=event.event_id)


def _answers(found: list[AppendResult]) -> list[Answer]:
    for one in found:
        assert one.persisted is not one.idempotent
    return [Answer(one.run_seq, one.idempotent, one.payload_mismatch) for one in found]


async def _coroutine(awaitable: Any) -> Any:  # noqa: ANN401 - whatever it gives
    return await awaitable

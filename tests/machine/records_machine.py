"""A machine of random programs on records: writes, scans, indexes, a clock that moves on.

`at` says which of the open stores and which of the two namespaces a step works on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast import AsyncStore, Capability, Record, ScanFilter
from holdfast.testing.records_model import ModelRecords
from holdfast.testing.world import BlockingColour, Colour, LoopColour, move_clock

HOUR = 3600.0
COLOURS: dict[str, Callable[[], Colour]] = {"blocking": BlockingColour, "asyncio": LoopColour}
PREFIXES = ["", "a", "a.", "a.b", "a%", "ä"]

# Few, and some more often than others: steps that have nothing to do with each other find little.
keys = st.sampled_from(["a", "a", "a", "a.b", "a.b", "a%", "ä"])
names = st.sampled_from(["x", "y", "z"])
values = st.sampled_from(
    [b"", b"0", b"1", b"-1", b"9", b"10", b"007", b"a", b"\xff", b"\x00", "ä".encode(), b"\x01x"]
)
maybe = st.one_of(values, st.none())
settings = st.one_of(
    st.dictionaries(names, values, min_size=1, max_size=3),
    st.dictionaries(names, maybe, max_size=3),
)
hours = st.sampled_from([None, 0, 1, 1, 3])
places = st.sampled_from([0, 0, 0, 0, 1, 2, 2, 3])
conditions = st.lists(
    st.tuples(names, st.sampled_from(["eq", "ne", "lt", "gt"]), values), max_size=2
)
indexes = st.sampled_from([("", "x"), ("a", "x"), ("a.", "y"), ("", "x", "y")])


class RecordsBench(NamedTuple):
    """What all examples on one engine share."""

    url: Callable[[], str]
    counts: Counter[str]
    records: Callable[[AsyncStore, str], Any] = lambda store, name: store.namespace(name).records
    """The records of a namespace; a planted fault gets in here."""
    last: bool = True
    """Whether each program ends with one of everything; a planted fault is found by chance."""


class CalledOffError(Exception):
    """Rolls a transaction back."""


class RecordsMachine(RuleBasedStateMachine):
    """One random program, run on a store and on the model."""

    def __init__(self, bench: RecordsBench) -> None:
        super().__init__()
        self.bench = bench
        self.counts = bench.counts
        self.stores: list[tuple[Colour, AsyncStore]] = []
        self.models = [ModelRecords(), ModelRecords()]
        self.last: tuple[int, str, tuple[Any, ...], dict[str, Any], object] | None = None

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
        self.index(0, ("a", "x"), make=True)
        self.burst(0, "a", [("x", b"1"), ("y", b"1")])
        self.compare_and_set(0, "a", {"x": None}, {"x": b"2"}, right=False)
        self.compare_and_set(0, "a", {"x": None}, {"x": b"2"}, right=True)
        self.get(0, "a")
        self.scan(0, "a", [("x", "eq", b"2")], None, "")
        self.delete(0, "a", first=False, again=True)
        self.get(0, "a")
        for commit in (False, True):
            self.transaction(0, "a", {"y": b"2"}, commit=commit)
        self.tick(2, purge=True, first=True)
        self.look()

    @rule(at=places, key=keys, fields=settings, ttl=hours)
    def put(self, at: int, key: str, fields: Mapping[str, bytes | None], ttl: int | None) -> None:
        self._model(at).put(key, fields, ttl)
        self._write(at, None, "put", key, fields, ttl=_seconds(ttl))

    @rule(at=places, key=keys, fields=settings)
    def set_fields(self, at: int, key: str, fields: Mapping[str, bytes | None]) -> None:
        self._model(at).set_fields(key, fields)
        self._write(at, None, "set_fields", key, fields)
        self.get(at, key)

    @rule(at=places, key=keys, expect=settings, fields=settings, right=st.booleans())
    def compare_and_set(
        self,
        at: int,
        key: str,
        expect: dict[str, bytes | None],
        fields: Mapping[str, bytes | None],
        right: bool,  # noqa: FBT001 - Hypothesis draws it
    ) -> None:
        if right:  # else next to nothing would ever apply
            now = self._model(at).get(key) or {}
            expect = {name: now.get(name) for name in expect}
        applied = self._model(at).compare_and_set(key, expect, fields)
        self.counts["swaps won" if applied else "swaps lost"] += 1
        self._write(at, applied, "compare_and_set", key, expect=expect, set=fields)

    @rule(at=places, key=keys, first=st.booleans(), again=st.booleans())
    def delete(self, at: int, key: str, first: bool, again: bool) -> None:  # noqa: FBT001 - drawn
        if first:  # or there would seldom be anything to delete
            self.put(at, key, {"x": b"1"}, None)
        there = self._model(at).delete(key)
        self.counts["deleted"] += there
        self._write(at, there, "delete", key)
        if again:
            self.repeat()

    @rule(at=places, key=keys, ttl=hours)
    def expire(self, at: int, key: str, ttl: int | None) -> None:
        there = self._model(at).expire(key, ttl)
        self._write(at, there, "expire", key, _seconds(ttl))

    @rule()
    def repeat(self) -> None:
        """The same operation once more changes nothing and has the first answer."""
        if self.last is not None:
            at, method, args, options, answer = self.last
            assert self._call(at, method, *args, **options) == answer
            self.counts["repeats"] += 1

    @rule(at=places, key=keys)
    def get(self, at: int, key: str) -> None:
        wanted = self._model(at).get(key)
        found: Record | None = self._call(at, "get", key)
        assert (None if found is None else found.fields) == wanted, key
        if found is not None:
            assert (found.ttl is not None) == self._model(at).expires(key)
        self.counts["found" if wanted else "absent"] += 1

    @rule(
        at=places,
        prefix=st.sampled_from(PREFIXES),
        asked=conditions,
        most=st.sampled_from([None, 1, 3]),
        first=st.sampled_from(["", "what is asked for", "9"]),
    )
    def scan(
        self,
        at: int,
        prefix: str,
        asked: list[tuple[str, str, bytes]],
        most: int | None,
        first: str,
    ) -> None:
        if first:  # or there would seldom be anything to find
            same = {name: b"9" if first == "9" else value for name, _, value in asked}
            self.put(at, "a.b", same or {"x": b"1"}, None)
        wanted = self._model(at).scan(prefix, asked, most)
        assert self._scan(at, prefix, asked, most) == wanted, (prefix, asked, most)
        self.counts["scans"] += 1
        self.counts["scanned"] += len(wanted)

    @rule(at=places, index=indexes, make=st.booleans())
    def index(self, at: int, index: tuple[str, ...], make: bool) -> None:  # noqa: FBT001 - drawn
        if Capability.RECORDS_INDEX in self.stores[0][1].capabilities:
            self._call(at, "create_index" if make else "drop_index", *index)
            self.counts["indexes"] += make

    @rule(hours=st.integers(1, 2), purge=st.booleans(), first=st.booleans())
    def tick(self, hours: int, purge: bool, first: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        if first:  # or there would seldom be anything to purge
            self.put(0, "a", {"x": b"1"}, 1)
        colour, store = self.stores[0]
        colour.run(move_clock(store, hours * HOUR))
        for model in self.models:
            model.now += hours
        self.last = None  # a repeat may come after the record has expired, and make it anew
        self.counts["ticks"] += 1
        if purge:
            self.counts["purged"] += self._call(0, "purge")

    @rule(at=places, key=keys, fields=settings, commit=st.booleans())
    def transaction(self, at: int, key: str, fields: dict[str, bytes | None], commit: bool) -> None:  # noqa: FBT001 - drawn
        colour, store = self._store(at)
        if Capability.TRANSACTIONS not in store.capabilities:
            return

        async def both() -> None:
            async with store.transaction(timeout=30) as tx:
                records = tx.namespace(self._namespace(at)).records
                await records.set_fields(key, fields)
                await records.put("a", {"x": "1"})
                if not commit:
                    raise CalledOffError

        try:
            colour.run(both())
        except CalledOffError:
            self.counts["rolled back"] += 1
        else:
            self._model(at).set_fields(key, fields)
            self._model(at).put("a", {"x": b"1"}, None)
            self.counts["transactions"] += 1
        self.last = None

    @rule(
        at=places,
        key=keys,
        fields=st.lists(st.tuples(names, values), max_size=3, unique_by=lambda pair: pair[0]),
    )
    def burst(self, at: int, key: str, fields: list[tuple[str, bytes]]) -> None:
        colour, store = self._store(at)
        records = self.bench.records(store, self._namespace(at))

        async def together() -> None:
            for outcome in await colour.together(
                records.set_field(key, name, value) for name, value in fields
            ):
                assert outcome is None, outcome

        if fields:
            colour.run(together())
            self._model(at).set_fields(key, dict(fields))
            self.last = None
            self.counts["bursts"] += 1

    @rule()
    def look(self) -> None:
        """Everything that is there, through every store."""
        for at in range(2 * len(self.stores)):
            assert self._scan(at, "", [], None) == self._model(at).scan("", [], None)

    def _open(self, colour: Colour, url: str) -> None:
        self.stores.append((colour, colour.run(colour.open(url, "default", None))))

    def _store(self, at: int) -> tuple[Colour, AsyncStore]:
        return self.stores[at // 2 % len(self.stores)]

    def _namespace(self, at: int) -> str:
        return self.namespaces[at % 2]

    def _model(self, at: int) -> ModelRecords:
        return self.models[at % 2]

    def _call(self, at: int, method: str, *args: object, **options: object) -> Any:  # noqa: ANN401 - the store's answer
        colour, store = self._store(at)
        self.counts["steps"] += 1
        records = self.bench.records(store, self._namespace(at))
        return colour.run(_coroutine(getattr(records, method)(*args, **options)))

    def _write(
        self, at: int, wanted: object, method: str, *args: object, **options: object
    ) -> None:
        op_id: UUID = uuid4()
        answer = self._call(at, method, *args, **options, op_id=op_id)
        assert answer == wanted, (method, args, options)
        # What was refused is not remembered: the same may apply later.
        again = None if wanted is False else (at, method, args, {**options, "op_id": op_id}, wanted)
        self.last = again

    def _scan(
        self, at: int, prefix: str, asked: list[tuple[str, str, bytes]], most: int | None
    ) -> list[tuple[str, dict[str, bytes]]]:
        colour, store = self._store(at)
        records = self.bench.records(store, self._namespace(at))
        filters = [ScanFilter(*condition) for condition in asked]

        async def scanned() -> list[tuple[str, dict[str, bytes]]]:
            found = records.scan(prefix, filters=filters, max_results=most)
            return [(key, record.fields) async for key, record in found]

        return colour.run(scanned())


def _seconds(hours: int | None) -> float | None:
    return None if hours is None else (hours + 0.5) * HOUR


async def _coroutine(awaitable: Any) -> Any:  # noqa: ANN401 - whatever it gives
    return await awaitable

"""Any sequence of calls gives the same answers on Redis as on SQLite, which is the double."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import RecordChange, ScanFilter, Stamp, Store
from holdfast.runtime.blocking import run
from holdfast.testing.valkey import ValkeyServer

KEYS = st.sampled_from(["a", "a.b", "b", "ü"])
FIELDS = st.sampled_from(["x", "y", "z"])
VALUES: st.SearchStrategy[Any] = st.sampled_from([0, 7, -3, "", "t", b"\xff\x00", None])
OPS = st.sampled_from([None, *(UUID(int=number) for number in range(1, 4))])
TTLS = st.sampled_from([None, 10, 100])
MAPPING = st.dictionaries(FIELDS, VALUES, max_size=3)

Call = Callable[[Store], object]


def _ttl(record: holdfast.Record | None) -> object:
    """What is the same on both: the fields, and whether and about how long it lives."""
    if record is None:
        return None
    return record.fields, None if record.ttl is None else round(record.ttl / 10)


def _scan(store: Store, prefix: str, field: str, op: str, value: object) -> object:
    chosen = () if op == "-" else (ScanFilter(field, op, value or ""),)  # type: ignore[arg-type]
    return [(key, _ttl(record)) for key, record in store.records.scan(prefix, filters=chosen)]


CALLS: st.SearchStrategy[Call] = st.one_of(
    st.builds(
        lambda k, f, t, o: lambda s: s.records.put(k, f, ttl=t, op_id=o), KEYS, MAPPING, TTLS, OPS
    ),
    st.builds(lambda k, f, o: lambda s: s.records.set_fields(k, f, op_id=o), KEYS, MAPPING, OPS),
    st.builds(
        lambda k, f, e, n, o: lambda s: s.records.compare_and_swap(k, f, e, n, op_id=o),
        KEYS, FIELDS, VALUES, VALUES, OPS,
    ),
    st.builds(
        lambda k, e, n, o: lambda s: s.records.compare_and_set(k, expect=e, set=n, op_id=o),
        KEYS, MAPPING, MAPPING, OPS,
    ),
    st.builds(lambda k, o: lambda s: s.records.delete(k, op_id=o), KEYS, OPS),
    st.builds(lambda k, t, o: lambda s: s.records.expire(k, t, op_id=o), KEYS, TTLS, OPS),
    st.builds(lambda k: lambda s: _ttl(s.records.get(k)), KEYS),
    st.builds(lambda k, f: lambda s: s.records.get_field(k, f), KEYS, FIELDS),
    st.builds(
        lambda p, f, o, v: lambda s: _scan(s, p, f, o, v),
        st.sampled_from(["", "a", "a."]), FIELDS,
        st.sampled_from(["-", "eq", "lt", "gt", "ne"]), VALUES,
    ),
    st.builds(lambda p, f: lambda s: s.records.create_index(p, *f),
              st.sampled_from(["", "a"]), st.sampled_from([("x",), ("x", "y"), ("y", "z", "x")])),
    st.builds(lambda p, f: lambda s: s.records.drop_index(p, *f),
              st.sampled_from(["", "a"]), st.sampled_from([("x",), ("x", "y")])),
    st.just(lambda s: s.records.list_indexes()),
    st.builds(lambda by: lambda s: run(s._backend.move_clock(by * 1_000_000)),  # noqa: SLF001
              st.sampled_from([5, 50, 500])),
    st.just(lambda s: s.records.purge() and None),
    st.builds(lambda k, v, o: lambda s: s.cells.set(k, v, op_id=o), KEYS, st.integers(0, 3), OPS),
    st.builds(lambda k, e, o: lambda s: s.cells.cas(k, e, "c", op_id=o),
              KEYS, st.sampled_from([None, 1, 2, 3]), OPS),
    st.builds(lambda k, o: lambda s: s.cells.init(k, "i", op_id=o), KEYS, OPS),
    st.builds(lambda k, o: lambda s: s.cells.delete(k, op_id=o), KEYS, OPS),
    st.builds(lambda o: lambda s: s.cells.set_many({"a": 1, "b": 2}, op_id=o), OPS),
    st.builds(lambda k: lambda s: s.cells.get(k), KEYS),
    st.just(lambda s: s.cells.list()),
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer({"appendfsync": "no"}) as server:
        yield server


def _watched(store: Store) -> dict[str, object]:
    """What a watch from the start tells, by key."""
    found: dict[str, object] = {}
    with store.records.watch() as watch:
        while isinstance(change := watch.next(20), RecordChange):
            assert change.key not in found
            found[change.key] = _ttl(change.record)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(CALLS, max_size=25))
def test_the_same_calls_give_the_same_answers(server: ValkeyServer, calls: list[Call]) -> None:
    with (
        holdfast.open("sqlite://:memory:") as wanted,
        holdfast.open(server.fresh_url(durability="standard")) as store,
        store.records.watch() as watch,
    ):
        assert watch.next(20) is holdfast.CAUGHT_UP
        for call in calls:
            assert call(store) == call(wanted)
        assert _watched(store) == _watched(wanted)
        # A watch that was there all the time knows the same in the end.
        store.records.put("last", {"at": Stamp()})
        known: dict[str, object] = {}
        while (change := watch.next(20)) is not None:
            assert isinstance(change, RecordChange)
            if change.key == "last":
                break
            known[change.key] = change.record
        there = {key for key, _ in store.records.scan()} - {"last"}
        assert there <= {key for key, record in known.items() if record is not None}

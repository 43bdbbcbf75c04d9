"""The cache of snapshots: what it hands out, and what it never does."""

from __future__ import annotations

from holdfast.events import RUN, RunSnapshot
from holdfast.facets.snapshot_cache import SnapshotCache, TransactionCache
from holdfast.facets.views import Kept
from holdfast.facets.views_reading import Read

RUN_7 = ("default", "run-7")


def _read(seq: int) -> Read[RunSnapshot]:
    return Read(1, Kept(RUN.begin("run-7"), seq))


def test_what_was_read_lately_is_handed_out() -> None:
    cache = SnapshotCache()
    assert cache.get(RUN_7, 3600) is None
    cache.put(RUN_7, cache.begin(), _read(1))
    assert cache.get(RUN_7, 3600) == _read(1)
    assert cache.get(RUN_7, 0) is None
    assert cache.get(("other", "run-7"), 3600) is None


def test_a_slow_reader_hides_no_write() -> None:
    cache = SnapshotCache()
    begun = cache.begin()
    cache.forget(RUN_7)  # somebody has appended
    cache.put(RUN_7, begun, _read(1))
    assert cache.get(RUN_7, 3600) is None
    cache.put(RUN_7, cache.begin(), _read(2))
    assert cache.get(RUN_7, 3600) == _read(2)


def test_it_stays_small_and_hides_nothing_then_either() -> None:
    cache = SnapshotCache()
    slow = cache.begin()
    cache.forget(RUN_7)
    remembered = 0
    for number in range(12_000):
        run = ("default", f"{number}")
        cache.put(run, cache.begin(), _read(number))
        remembered += cache.get(run, 3600) == _read(number)
        cache.forget(("default", f"w{number}"))
    assert remembered > 11_900  # some are forgotten with all others, when there are too many
    found = [cache.get(("default", f"{number}"), 3600) for number in range(12_000)]
    assert 0 < sum(one is not None for one in found) <= 1000
    cache.put(RUN_7, slow, _read(1))  # of its write nothing is known any more
    assert cache.get(RUN_7, 3600) is None


def test_a_transaction_is_seen_when_it_has_been_committed() -> None:
    cache = SnapshotCache()
    inside = TransactionCache(cache)
    inside.put(RUN_7, inside.begin(), _read(1))
    assert inside.get(RUN_7, 3600) is None
    inside.forget(RUN_7)
    cache.put(RUN_7, cache.begin(), _read(1))  # before its commit
    assert cache.get(RUN_7, 3600) == _read(1)
    inside.committed()
    assert cache.get(RUN_7, 3600) is None

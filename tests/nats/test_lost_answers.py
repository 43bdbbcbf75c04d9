"""Connections that are cut in the middle of a write: one effect, or an honest "unknown"."""

from __future__ import annotations

import os
import random

import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.backends.nats.records import RecordChange
from holdfast.sync.store import Store
from holdfast.testing.nats import NatsServer
from holdfast.testing.ports import ADDRESS
from holdfast.testing.proxy import FaultProxy

CUTS = int(os.environ.get("HOLDFAST_CUTS", "20"))
SEED = os.environ.get("HOLDFAST_SEED", "1")
PATIENCE = 15.0
WRITE = b"Nats-Expected-Last-Subject-Sequence"


def test_a_write_whose_answer_is_lost_has_one_effect(store: Store, proxy: FaultProxy) -> None:
    store.records.put("a", {"n": 0})
    for number in range(CUTS):
        proxy.cut_before_reply(WRITE)
        assert store.records.compare_and_swap("a", "n", number, number + 1) is True
        assert store.records.get_field("a", "n") == b"%d" % (number + 1)
    assert proxy.counts.cuts == CUTS


def test_a_write_that_never_arrived_is_done_again(store: Store, proxy: FaultProxy) -> None:
    store.cells.init("c", 0)
    for number in range(CUTS):
        proxy.cut_before_server(WRITE)
        assert store.cells.cas("c", number + 1, number + 1) == number + 2
    assert proxy.counts.cuts == CUTS


def test_a_set_many_whose_answer_is_lost_has_one_effect(store: Store, proxy: FaultProxy) -> None:
    for number in range(1, CUTS + 1):
        proxy.cut_before_reply(b"Nats-Batch-Commit")
        assert store.cells.set_many({"a": number, "b": number}) == {"a": number, "b": number}
    assert proxy.counts.cuts == CUTS


def test_a_lost_delete_tells_the_truth(store: Store, proxy: FaultProxy) -> None:
    for _ in range(CUTS):
        store.records.put("a", {"n": 0})
        proxy.cut_before_reply(WRITE)
        assert store.records.delete("a") is True
        assert store.records.delete("a") is False


def test_without_operation_ids_the_truth_would_be_lost(
    store: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a store that does not look at its operation ids fails the tests above."""
    monkeypatch.setattr(RecordChange, "known", lambda *_: None)
    store.records.put("a", {"n": 0})
    proxy.cut_before_reply(WRITE)
    assert store.records.compare_and_swap("a", "n", 0, 1) is False
    assert store.records.get_field("a", "n") == b"1"


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_cuts_anywhere_lose_and_double_nothing(
    store: Store, proxy: FaultProxy, direction: str
) -> None:
    chance = random.Random(f"{SEED} {direction}")
    store.records.put("a", {"n": 0})
    done = 0
    for _ in range(CUTS):
        proxy.cut_after(**{direction: chance.randrange(1, 1500)})
        for _ in range(5):
            assert store.records.get_field("a", "n") == b"%d" % done, f"seed {SEED}"
            assert store.records.compare_and_swap("a", "n", done, done + 1), f"seed {SEED}"
            done += 1
    proxy.heal()
    assert store.records.get_field("a", "n") == b"%d" % done
    assert proxy.counts.cuts > CUTS // 2


def test_a_write_that_nobody_answers_is_a_timeout_with_an_unknown_outcome(
    server: NatsServer, proxy: FaultProxy
) -> None:
    url = proxy.through(server.fresh_url(call_timeout="0.5"))
    with holdfast.open(url) as store:
        store.records.put("a", {"n": 0})
        for write in (
            lambda: store.records.set_field("a", "n", 1),
            lambda: store.cells.set("c", 1),
        ):
            proxy.black_hole_at(WRITE)
            with pytest.raises(holdfast.Timeout) as caught:
                write()
            assert caught.value.outcome_unknown
            proxy.heal()
            proxy.cut()
            assert store.records.get_field("a", "n") in {b"0", b"1"}


def test_what_others_wrote_over_cannot_be_told(server: NatsServer) -> None:
    """Our write is stored, its answer lost, and somebody writes before we look."""
    url = server.fresh_url()
    with (
        FaultProxy(ADDRESS, server.port, answered=bool) as proxy,
        holdfast.open(proxy.through(url), config=StoreConfig(call_timeout=20)) as store,
        holdfast.open(url) as other,
    ):
        store.records.put("a", {"n": 0})
        proxy.cut_before_reply(WRITE)
        backend = store._backend  # noqa: SLF001 - to come between two of its steps
        assert hasattr(backend, "_db")
        connection = backend._db.connection  # noqa: SLF001
        reconnected = connection.on_reconnect

        def meanwhile() -> None:
            other.records.set_field("a", "n", "theirs")
            other.records.set_field("a", "n", "theirs again")
            reconnected()

        connection.on_reconnect = meanwhile
        with pytest.raises(holdfast.Unavailable, match="cannot be told") as caught:
            store.records.set_field("a", "n", "ours")
        assert caught.value.outcome_unknown
        assert store.records.get_field("a", "n") == b"theirs again"


def test_a_write_that_others_came_before_is_done(server: NatsServer) -> None:
    """Our write was refused, its answer lost: what is there proves it, so it is done again."""
    url = server.fresh_url()
    with (
        FaultProxy(ADDRESS, server.port, answered=bool) as proxy,
        holdfast.open(proxy.through(url)) as store,
        holdfast.open(url) as other,
    ):
        store.records.put("a", {"n": 0})
        proxy.cut_before_server(WRITE)
        backend = store._backend  # noqa: SLF001 - to come between two of its steps
        assert hasattr(backend, "_db")
        connection = backend._db.connection  # noqa: SLF001
        reconnected = connection.on_reconnect

        def meanwhile() -> None:
            other.records.set_field("a", "m", "theirs")
            reconnected()

        connection.on_reconnect = meanwhile
        store.records.set_field("a", "n", "ours")
        found = store.records.get("a")
        assert found is not None
        assert found.fields == {"n": b"ours", "m": b"theirs"}


def test_a_record_that_expired_before_anybody_looked_cannot_be_told(server: NatsServer) -> None:
    """Our write is stored, its answer lost, and the server removes the record: what it leaves
    does not prove that there was none."""
    url = server.fresh_url()
    with (
        FaultProxy(ADDRESS, server.port, answered=bool) as proxy,
        holdfast.open(proxy.through(url), config=StoreConfig(call_timeout=20)) as store,
        holdfast.open(url) as other,
    ):
        store.records.put("before", {"n": 0})
        proxy.cut_before_reply(WRITE)
        backend = store._backend  # noqa: SLF001 - to come between two of its steps
        assert hasattr(backend, "_db")
        connection = backend._db.connection  # noqa: SLF001
        reconnected = connection.on_reconnect
        removed: list[str] = []

        def meanwhile() -> None:
            with other.records.watch() as watch:
                while (change := watch.next(PATIENCE)) is not None:
                    if isinstance(change, holdfast.RecordChange) and change.record is None:
                        removed.append(change.key)
                        break
            reconnected()

        connection.on_reconnect = meanwhile
        with pytest.raises(holdfast.Unavailable, match="cannot be told") as caught:
            store.records.put("a", {"n": 1}, ttl=0.05)
        assert caught.value.outcome_unknown
        assert removed == ["a"]
        assert store.records.get("a") is None

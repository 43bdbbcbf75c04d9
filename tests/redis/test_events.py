"""Events on Redis whose keys somebody has taken away: an eviction, or a hand."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast import CAUGHT_UP, Corrupt, Event
from holdfast.runtime.blocking import run
from holdfast.sync.store import Store
from holdfast.testing.valkey import ValkeyServer

NOTED = [Event("r", "Noted", f"{number}") for number in range(5)]


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def store(server: ValkeyServer) -> Iterator[Store]:
    """A store with one run, whose events are gone."""
    with contextlib.closing(server.client()) as client, holdfast.open(server.fresh_url()) as store:
        client.flushall()
        store.events.append_events(NOTED)
        (key,) = client.keys("*:v:r")
        client.delete(key)
        yield store


@pytest.mark.parametrize(
    "call",
    [
        lambda events: events.fetch_events("r"),
        lambda events: events.get_snapshot("r"),
        lambda events: events.project_snapshot("r"),
        lambda events: events.append_event(NOTED[2]),
        lambda events: events.delete_run("r"),
    ],
    ids=["fetch", "snapshot", "project", "append", "delete"],
)
def test_events_that_are_gone_are_told(store: Store, call: Callable[[object], object]) -> None:
    with pytest.raises(Corrupt, match=r"run '?r'?: its event \d is gone"):
        call(store.events)


def test_a_run_without_its_events_can_be_deleted(store: Store) -> None:
    store.events.delete_run("r", force=True)
    assert store.events.list_runs() == []
    assert store.events.append_event(NOTED[2]).run_seq == 1


def test_an_eviction_while_a_run_is_deleted_harms_no_other(server: ValkeyServer) -> None:
    with contextlib.closing(server.client()) as client, holdfast.open(server.fresh_url()) as store:
        client.flushall()
        for run_id in ("r", "s"):
            store.events.append_events(
                [Event(run_id, "Noted", f"{number}") for number in range(300)]
            )
        backend = store._backend.events  # noqa: SLF001 - one page of it only
        place = ("default", "r")
        state = run(backend.state(place, "run"))
        assert state is not None
        assert run(backend.delete(place, 100, generation=state.generation)) is False
        (key,) = client.keys("*:w:*")
        client.delete(key)
        store.events.delete_run("s", force=True)
        assert store.events.list_runs() == []


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x93\x01\x02", b"\x07"])
def test_an_event_of_a_foreign_hand_that_cannot_be_read_fails_alone(
    server: ValkeyServer, value: bytes
) -> None:
    with contextlib.closing(server.client()) as client, holdfast.open(server.fresh_url()) as store:
        client.flushall()
        store.events.append_events(NOTED)
        store.events.append_event(Event("other", "Noted", "1"))
        (key,) = client.keys("*:v:r")
        client.hset(key, "3", value)
        with pytest.raises(Corrupt, match="run 'r': its event 3 cannot be read") as caught:
            store.events.fetch_events("r")
        assert (caught.value.run_id, caught.value.run_seq) == ("r", 3)
        assert len(store.events.fetch_events("r", after_seq=3)) == 2
        with store.events.feed(skip_corrupt=True, marker=True) as feed:
            told = list(itertools.takewhile(lambda one: one is not CAUGHT_UP, feed))
        assert len(told) == 5
        assert feed.skipped == 1
        store.events.delete_run("r", force=True)
        assert store.events.list_runs() == ["other"]

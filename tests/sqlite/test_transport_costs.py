"""What the transport costs on SQLite, counted: as much as it does, not as much as there is."""

from __future__ import annotations

from pathlib import Path

import holdfast
from tests.daemons.processes import pass_time
from tests.sqlite.spent import Spent, counted

FEW, MANY = 100, 5_000
OLD = 50


def _publish(store: holdfast.Store, namespace: str, count: int) -> None:
    with store.transaction(60) as tx:
        transport = tx.namespace(namespace).transport
        for number in range(count):
            transport.publish("a.b", number)


def _purging(folder: Path, waiting: int, young: int, old: int) -> int:
    """The steps of a purge that removes OLD messages, or `old` of them, among others."""
    url = f"sqlite:///{folder}/{waiting}-{young}-{old}.db?durability=cache"
    with counted() as spent, holdfast.open(url) as store:
        store.namespace("behind").transport.create_group("g", "a.b")
        _publish(store, "behind", waiting)
        _publish(store, "done", old)
        pass_time(url, 1000)
        _publish(store, "done", young)
        spent.take()
        assert store.transport.purge(older_than=500) == old
        return spent.take()[1]


def test_purge_costs_what_it_removes(tmp_path: Path) -> None:
    steps = _purging(tmp_path, FEW, FEW, OLD)
    assert _purging(tmp_path, MANY, FEW, OLD) == steps
    assert _purging(tmp_path, FEW, MANY, OLD) == steps
    assert _purging(tmp_path, FEW, FEW, 2 * OLD) > 1.5 * steps


def test_a_page_of_a_purge_costs_what_it_removes(tmp_path: Path) -> None:
    steps = []
    for old in (FEW, MANY):
        url = f"sqlite:///{tmp_path}/{old}.db?durability=cache"
        with counted() as spent, holdfast.open(url) as store:
            _publish(store, "default", old)
            pass_time(url, 1000)
            spent.take()
            assert store.transport.purge(older_than=500, limit=OLD) == OLD
            steps.append(spent.take()[1])
    assert steps[0] == steps[1]


def test_messages_of_other_namespaces_cost_a_group_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db?durability=cache"
    with counted() as spent, holdfast.open(url) as store:
        store.transport.create_group("g", "a.b")
        _publish(store, "default", 1)
        _looking(store, spent)  # the first time it does a little more
        found = []
        for others in (FEW, MANY):
            _publish(store, "other", others)
            found.append(_looking(store, spent))
    assert found[0] == found[1]


def _looking(store: holdfast.Store, spent: Spent) -> int:
    spent.take()
    status = store.transport.status("g")
    assert status.waiting == 1
    delivery = store.transport.fetch("g")
    assert delivery is not None
    assert delivery.nak() is True
    statements, steps = spent.take()
    assert len(statements) > 0
    store.transport.delete_group("g")
    store.transport.create_group("g", "a.b", from_start=True)
    return steps

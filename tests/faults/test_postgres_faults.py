"""Connections cut at every point of a write: the right answer or a typed error, and one effect.

HOLDFAST_CUTS says how many cuts, HOLDFAST_SEED where they fall.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import psycopg
import pytest

from holdfast import AsyncStore
from holdfast.testing.proxy import Direction, FaultProxy
from holdfast.testing.world import Colour
from tests.faults.cut_calls import (
    AT_THE_EDGES,
    CELLS,
    CUTS,
    OPERATIONS,
    SEED,
    SHARE,
    VALUE,
    Trials,
    place,
    spread,
    zone_of,
)

OpenStore: TypeAlias = Callable[..., AsyncStore]


@pytest.fixture(params=OPERATIONS)
def trials(
    request: pytest.FixtureRequest, colour: Colour, proxy: FaultProxy, database: str, namespace: str
) -> Iterator[Trials]:
    print(f"HOLDFAST_SEED={SEED} HOLDFAST_CUTS={CUTS}")  # noqa: T201 - a failure must tell it
    with psycopg.connect(database, autocommit=True, application_name="test") as direct:
        trials = Trials(
            OPERATIONS[request.param],
            colour=colour,
            proxy=proxy,
            direct=direct,
            namespace=namespace,
        )
        yield trials
        print(dict(trials.zones))  # noqa: T201 - how many cuts landed where


@pytest.mark.parametrize(
    ("trials", "op_given"),
    [
        *(pytest.param(name, True, id=f"{name}, own id") for name in OPERATIONS),
        *(pytest.param(name, False, id=f"{name}, store's id") for name in CELLS),
    ],
    indirect=["trials"],
)
def test_one_cut_anywhere_is_mended_by_the_store(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str, *, op_given: bool
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    for direction, part in spread(trials.random):
        target, totals = trials.aim(store)
        op = trials.new_op() if op_given else None
        proxy.cut_after(**{direction: place(part, totals[direction])})
        zone = zone_of(direction, part)
        assert trials.cut(zone, store, target, op) is None
        assert trials.effects(target) == 1, zone
        if op_given:
            assert trials.call(store, target, op, again=True) is None
    trials.audit(store)
    for zone in ("whole request", "no reply", "whole reply"):
        assert trials.zones[zone] >= AT_THE_EDGES
    for zone in ("part of the request", "part of the reply"):
        assert trials.zones[zone] >= SHARE - 2 * AT_THE_EDGES


@pytest.mark.parametrize("trials", CELLS, indirect=True)
def test_cut_of_a_new_connection_is_told_truthfully(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    helper = open_store(database)
    first = open_store(proxy.through(database), listen_url=database)
    proxy.wait_until_closed()
    totals = trials.bytes_of_a_call(first, trials.new_target(helper))
    trials.do(first.close())
    for direction, part in spread(trials.random):
        target, op = trials.new_target(helper), trials.new_op()
        store = open_store(proxy.through(database), listen_url=database)
        proxy.wait_until_closed()
        proxy.cut_after(**{direction: place(part, totals[direction])})
        error = trials.cut("new connection", store, target, op)
        if error is not None:
            assert not error.outcome_unknown, "nothing was sent: there is nothing to be unsure of"
            trials.zones["while connecting"] += 1
        assert trials.call(store, target, op) is None
        trials.do(store.close())
    trials.audit(helper)
    assert trials.zones["while connecting"] >= 4
    assert trials.zones["new connection"] - trials.zones["while connecting"] >= 4


def test_two_cuts_leave_the_outcome_unknown_until_the_repeat(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str, namespace: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    sure: list[tuple[str, Direction, float]] = [
        ("before reply", "to_client", 0),
        ("before server", "to_server", 0),
    ]
    anywhere = [("anywhere", direction, part) for direction, part in spread(trials.random)]
    for zone, direction, part in sure * trials.sure_pairs + anywhere:
        target, totals = trials.aim(store)
        op = trials.new_op()
        if zone == "before reply":
            proxy.cut_before_reply(namespace.encode(), times=2)
        elif zone == "before server":
            proxy.cut_before_server(namespace.encode(), times=2)
        else:
            # A whole reply is an answer: there would be no second cut.
            unfinished = totals[direction] - (direction == "to_client")
            proxy.cut_after(**{direction: place(part, unfinished)}, times=2)
        error = trials.cut(zone, store, target, op, cuts=2)
        assert error is not None
        assert error.outcome_unknown
        if zone != "anywhere":
            assert trials.effects(target) == (1 if zone == "before reply" else 0)
        assert trials.call(store, target, op, again=True) is None
        assert trials.effects(target) == 1, zone
    trials.audit(store)


@pytest.mark.parametrize("trials", ["set"], indirect=True)
def test_control_repeat_under_another_id_doubles_the_effect(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    for _ in range(4):
        target = trials.new_target(store)
        name = target.name
        proxy.cut_before_reply(name.encode(), times=2)
        error = trials.cut("before reply", store, target, trials.new_op(), cuts=2)
        assert error is not None
        assert trials.do(store.cells.set(name, VALUE, op_id=trials.new_op())) == 2
        assert [cell.version for cell in trials.do(store.cells.getv(name))] == [2, 1]
    with pytest.raises(AssertionError):
        trials.audit(store)
    trials.audit(store, expected_effects=2)

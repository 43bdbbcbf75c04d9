"""Connections cut at every point of a write: the right answer or a typed error, and one effect.

HOLDFAST_CUTS says how many cuts, HOLDFAST_SEED where they fall.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import psycopg
import pytest

from holdfast import AsyncStore, StoreError, Unavailable
from holdfast.testing.proxy import Direction, FaultProxy
from holdfast.testing.world import Colour

CUTS = int(os.environ.get("HOLDFAST_CUTS", "1000"))
SEED = int(os.environ.get("HOLDFAST_SEED", random.randrange(2**32)))
VALUE = "the value"
DIRECTIONS: tuple[Direction, ...] = ("to_server", "to_client")

OpenStore: TypeAlias = Callable[..., AsyncStore]


class Operation(NamedTuple):
    call: Callable[[AsyncStore, str, UUID | None], Coroutine[Any, Any, object]]
    answer: object
    rows_before: int = 0


OPERATIONS = {
    "set": Operation(lambda store, name, op: store.cells.set(name, VALUE, op_id=op), 1),
    "cas": Operation(lambda store, name, op: store.cells.cas(name, None, VALUE, op_id=op), 1),
    "delete": Operation(lambda store, name, op: store.cells.delete(name, op_id=op), True, 1),
}
# Each operation and colour makes 14 cuts per place: 4 alone, 2 while connecting, 4 in pairs.
SHARE = max(8, -(-CUTS // (len(OPERATIONS) * 2 * 14)))
# Before the first byte and after the last one: there answers get lost.
AT_THE_EDGES = SHARE // 4


class Trials:
    """One operation, each time on a cell of its own, with a cut in its way."""

    def __init__(
        self,
        operation: Operation,
        *,
        colour: Colour,
        proxy: FaultProxy,
        direct: psycopg.Connection,
        namespace: str,
    ) -> None:
        self.zones: Counter[str] = Counter()
        self.random = random.Random(SEED)
        self.do = colour.run
        self._operation = operation
        self._proxy = proxy
        self._direct = direct
        self._namespace = namespace
        self._cells = 0

    def new_cell(self, store: AsyncStore) -> str:
        self._cells += 1
        name = f"cell-{self._cells:06}"
        if self._operation.rows_before:
            self.do(store.cells.set(name, VALUE))
        return name

    def new_op(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def call(self, store: AsyncStore, name: str, op: UUID | None) -> StoreError | None:
        """Check the answer and return None, or return the error."""
        try:
            answer = self.do(self._operation.call(store, name, op))
        except StoreError as error:
            return error
        assert answer == self._operation.answer
        return None

    def bytes_of_a_call(self, store: AsyncStore, name: str) -> dict[Direction, int]:
        before = self._proxy.counts
        assert self.call(store, name, self.new_op()) is None
        after = self._proxy.counts
        return {way: getattr(after, way) - getattr(before, way) for way in DIRECTIONS}

    def warm_up(self, store: AsyncStore, totals: dict[Direction, int]) -> None:
        """Call until it takes the usual bytes: on a live connection, with all prepared."""
        for _ in range(5):
            if self.bytes_of_a_call(store, self.new_cell(store)) == totals:
                return
        raise AssertionError(f"no call took the {totals} bytes of the first ones")

    def cut(
        self, zone: str, store: AsyncStore, name: str, op: UUID | None, *, cuts: int = 1
    ) -> StoreError | None:
        """Call into the cuts that the proxy is armed with; the error, checked to be truthful."""
        before = self._proxy.counts.cuts
        error = self.call(store, name, op)
        self._proxy.heal()
        assert self._proxy.counts.cuts - before == cuts, f"{zone}: the cut missed the call"
        self.zones[zone] += 1
        if error is not None:
            assert type(error) is Unavailable
            assert error.retryable
            effects_possible = 1 if error.outcome_unknown else 0
            assert self.effects(name) <= effects_possible, f"{zone}, {name}: {error}"
        return error

    def effects(self, name: str) -> int:
        query = "SELECT count(*) FROM holdfast.cell_versions WHERE namespace = %s AND name = %s"
        ((rows,),) = self._direct.execute(query, [self._namespace, name]).fetchall()
        return int(rows) - self._operation.rows_before

    def audit(self, store: AsyncStore, expected_effects: int = 1) -> None:
        """Every cell has its effects, also when the server is done with cut connections."""
        self.do(store.close())
        self._wait_until_the_server_is_idle()
        query = """
            SELECT name, count(*) FROM holdfast.cell_versions WHERE namespace = %s GROUP BY name
        """
        rows: dict[str, int] = dict(self._direct.execute(query, [self._namespace]).fetchall())
        expected = expected_effects + self._operation.rows_before
        assert len(rows) == self._cells
        assert {name: found for name, found in rows.items() if found != expected} == {}

    def _wait_until_the_server_is_idle(self) -> None:
        connected = """
            SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'holdfast' AND datname = current_database()
        """
        for _ in range(600):
            if self._direct.execute(connected).fetchone() == (0,):
                return
            self._direct.execute("SELECT pg_sleep(0.05)")
        raise AssertionError("the server still holds connections of a closed store")


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


@pytest.mark.parametrize("op_given", [True, False], ids=["own id", "store's id"])
def test_one_cut_anywhere_is_mended_by_the_store(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str, *, op_given: bool
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    trials.bytes_of_a_call(store, trials.new_cell(store))  # the first call also prepares
    totals = trials.bytes_of_a_call(store, trials.new_cell(store))
    for direction, passed in spread(totals, trials.random):
        name = trials.new_cell(store)
        op = trials.new_op() if op_given else None
        trials.warm_up(store, totals)
        proxy.cut_after(**{direction: passed})
        zone = zone_of(direction, passed, totals)
        assert trials.cut(zone, store, name, op) is None
        assert trials.effects(name) == 1, zone
        if op_given:
            assert trials.call(store, name, op) is None
    trials.audit(store)
    for zone in ("whole request", "no reply", "whole reply"):
        assert trials.zones[zone] >= AT_THE_EDGES
    for zone in ("part of the request", "part of the reply"):
        assert trials.zones[zone] >= SHARE - 2 * AT_THE_EDGES


def test_cut_of_a_new_connection_is_told_truthfully(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    helper = open_store(database)
    first = open_store(proxy.through(database), listen_url=database)
    proxy.wait_until_closed()
    totals = trials.bytes_of_a_call(first, trials.new_cell(helper))
    trials.do(first.close())
    for direction, passed in spread(totals, trials.random):
        name, op = trials.new_cell(helper), trials.new_op()
        store = open_store(proxy.through(database), listen_url=database)
        proxy.wait_until_closed()
        proxy.cut_after(**{direction: passed})
        error = trials.cut("new connection", store, name, op)
        if error is not None:
            assert not error.outcome_unknown, "nothing was sent: there is nothing to be unsure of"
            trials.zones["while connecting"] += 1
        assert trials.call(store, name, op) is None
        trials.do(store.close())
    trials.audit(helper)
    assert trials.zones["while connecting"] >= 4
    assert trials.zones["new connection"] - trials.zones["while connecting"] >= 4


def test_two_cuts_leave_the_outcome_unknown_until_the_repeat(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    trials.bytes_of_a_call(store, trials.new_cell(store))
    totals = trials.bytes_of_a_call(store, trials.new_cell(store))
    # A whole reply is an answer: there would be no second cut.
    unfinished = {**totals, "to_client": totals["to_client"] - 1}
    anywhere = [("anywhere", {way: passed}) for way, passed in spread(unfinished, trials.random)]
    sure: list[tuple[str, dict[Direction, int]]] = [("before reply", {}), ("before server", {})]
    for zone, limit in sure * SHARE + anywhere:
        name, op = trials.new_cell(store), trials.new_op()
        trials.warm_up(store, totals)
        if zone == "before reply":
            proxy.cut_before_reply(name.encode(), times=2)
        elif zone == "before server":
            proxy.cut_before_server(name.encode(), times=2)
        else:
            proxy.cut_after(**limit, times=2)
        error = trials.cut(zone, store, name, op, cuts=2)
        assert error is not None
        assert error.outcome_unknown
        if zone != "anywhere":
            assert trials.effects(name) == (1 if zone == "before reply" else 0)
        assert trials.call(store, name, op) is None
        assert trials.effects(name) == 1, zone
    trials.audit(store)


@pytest.mark.parametrize("trials", ["set"], indirect=True)
def test_control_repeat_under_another_id_doubles_the_effect(
    trials: Trials, open_store: OpenStore, proxy: FaultProxy, database: str
) -> None:
    store = open_store(proxy.through(database), listen_url=database)
    for _ in range(4):
        name = trials.new_cell(store)
        proxy.cut_before_reply(name.encode(), times=2)
        error = trials.cut("before reply", store, name, trials.new_op(), cuts=2)
        assert error is not None
        assert trials.do(store.cells.set(name, VALUE, op_id=trials.new_op())) == 2
        assert [cell.version for cell in trials.do(store.cells.getv(name))] == [2, 1]
    with pytest.raises(AssertionError):
        trials.audit(store)
    trials.audit(store, expected_effects=2)


def spread(totals: dict[Direction, int], rng: random.Random) -> list[tuple[Direction, int]]:
    """SHARE places for a cut in each direction: the edges, and between them evenly by chance."""
    places: list[tuple[Direction, int]] = []
    for direction, total in totals.items():
        inner = SHARE - 2 * AT_THE_EDGES
        steps = [1 + number * (total - 1) // inner for number in range(inner + 1)]
        between = [rng.randrange(low, max(high, low + 1)) for low, high in pairwise(steps)]
        passed = [0, total] * AT_THE_EDGES + between
        places += [(direction, number) for number in passed]
    return places


def zone_of(direction: Direction, passed: int, totals: dict[Direction, int]) -> str:
    whole = passed == totals[direction]
    if direction == "to_server":
        return "whole request" if whole else "part of the request"
    return "whole reply" if whole else "part of the reply" if passed else "no reply"

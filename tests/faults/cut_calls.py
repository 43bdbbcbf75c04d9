"""Calls on PostgreSQL with a cut in their way, and what became of them on the server.

HOLDFAST_CUTS says how many cuts, HOLDFAST_SEED where they fall.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from holdfast import AsyncStore, Event, StoreError, Unavailable
from holdfast.aio.transport import AsyncDelivery
from holdfast.testing.proxy import Direction, FaultProxy
from holdfast.testing.world import Colour, move_clock

CUTS = int(os.environ.get("HOLDFAST_CUTS", "1000"))
SEED = int(os.environ.get("HOLDFAST_SEED", random.randrange(2**32)))
VALUE = "the value"
PATIENCE = 30
DIRECTIONS: tuple[Direction, ...] = ("to_server", "to_client")


class Target(NamedTuple):
    """What one call is about: a name of its own, and what was prepared for it."""

    name: str
    held: Any = None


async def _nothing(store: AsyncStore, name: str) -> None:
    del store, name


class Operation(NamedTuple):
    """A call, and how its effects on a name are counted: rows of `effects`, less those before."""

    call: Callable[[AsyncStore, Target, UUID | None], Coroutine[Any, Any, object]]
    answer: object
    effects: str
    prepare: Callable[[AsyncStore, str], Coroutine[Any, Any, object]] = _nothing
    rows_before: int = 0
    answers_again: tuple[object, ...] = ()
    """What else it answers to a caller who makes the call again."""


async def _set(store: AsyncStore, name: str) -> None:
    await store.cells.set(name, VALUE)


async def _put(store: AsyncStore, name: str) -> None:
    await store.records.put(name, {"field": VALUE})
    # A repeat can be sure of what it finds if that is older than the call by some time.
    await move_clock(store, 2)


async def _deliver(store: AsyncStore, name: str) -> AsyncDelivery:
    async with store.transport.consumer("group", ">", ack_timeout=3600 * 24 * 30) as consumer:
        await store.transport.publish("subject", VALUE, message_id=name)
        delivery = await consumer.next(PATIENCE)
    assert delivery is not None
    assert delivery.message.message_id == name
    return delivery


async def _publish(store: AsyncStore, target: Target, op: UUID | None) -> bool:
    del op  # the message's id stands for it
    name = target.name
    return await store.transport.publish("subject", VALUE, message_id=name) == name


async def _ack(store: AsyncStore, target: Target, op: UUID | None) -> object:
    del store, op  # the delivery knows where it came from
    return await target.held.ack()


async def _append(store: AsyncStore, target: Target, op: UUID | None) -> list[int]:
    del op  # the keys stand for it
    events = [Event(target.name, "Noted", key, VALUE) for key in ("a", "b", "c")]
    appended = await store.events.append_events(events, expected_seq=0)
    return [one.run_seq for one in appended]


_VERSIONS = "SELECT name, count(*) FROM holdfast.cell_versions WHERE namespace = %s GROUP BY 1"
_CHANGES = "SELECT key, count(*) FROM holdfast.record_changes WHERE namespace = %s GROUP BY 1"
_MESSAGES = "SELECT message_id, count(*) FROM holdfast.messages WHERE namespace = %s GROUP BY 1"
_DONE = """
    SELECT m.message_id, count(*) FILTER (WHERE d.group_id IS NULL)
    FROM holdfast.messages AS m
    LEFT JOIN holdfast.deliveries AS d USING (feed_xid, commit_id)
    WHERE m.namespace = %s
    GROUP BY 1
"""

# Half of a call is no effect, and no number of effects either.
_EVENTS = """
    SELECT r.run_id, CASE count(*) WHEN 3 THEN 1 ELSE 100 END
    FROM holdfast.events AS e
    JOIN holdfast.runs AS r ON r.id = e.run
    WHERE r.namespace = %s
    GROUP BY 1
"""

CELLS = {
    "set": Operation(lambda store, on, op: store.cells.set(on.name, VALUE, op_id=op), 1, _VERSIONS),
    "cas": Operation(
        lambda store, on, op: store.cells.cas(on.name, None, VALUE, op_id=op), 1, _VERSIONS
    ),
    "delete": Operation(
        lambda store, on, op: store.cells.delete(on.name, op_id=op), True, _VERSIONS, _set, 1
    ),
}
OTHERS = {
    "put": Operation(
        lambda store, on, op: store.records.put(on.name, {"a": VALUE}, op_id=op), None, _CHANGES
    ),
    "swap": Operation(
        lambda store, on, op: store.records.compare_and_swap(
            on.name, "field", VALUE, "other", op_id=op
        ),
        True,
        _CHANGES,
        _put,
        1,
    ),
    "remove": Operation(
        lambda store, on, op: store.records.delete(on.name, op_id=op), True, _CHANGES, _put, 1
    ),
    "publish": Operation(_publish, True, _MESSAGES),
    "ack": Operation(_ack, True, _DONE, _deliver, answers_again=(False,)),
    "append": Operation(_append, [1, 2, 3], _EVENTS),
}
OPERATIONS = CELLS | OTHERS
# In each colour there are 14 cuts per place for an operation of cells (4 alone, 2 while
# connecting, 4 in pairs), and 7 for the others (2 alone, 2 in pairs, and some pairs at the edges).
SHARE = max(8, -(-CUTS // (2 * (14 * len(CELLS) + 7 * len(OTHERS)))))
# Before the first byte and after the last one: there answers get lost.
AT_THE_EDGES = SHARE // 4


class Trials:
    """One operation, each time on a target of its own, with a cut in its way."""

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
        self.sure_pairs = SHARE if operation in CELLS.values() else AT_THE_EDGES
        self.random = random.Random(SEED)
        self.do = colour.run
        self._operation = operation
        self._proxy = proxy
        self._direct = direct
        self._namespace = namespace
        self._targets = 0

    def new_target(self, store: AsyncStore) -> Target:
        self._targets += 1
        name = f"name-{self._targets:06}"
        return Target(name, self.do(self._operation.prepare(store, name)))

    def new_op(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def call(
        self, store: AsyncStore, target: Target, op: UUID | None, *, again: bool = False
    ) -> StoreError | None:
        """Check the answer and return None, or return the error."""
        try:
            answer = self.do(self._operation.call(store, target, op))
        except StoreError as error:
            return error
        also = self._operation.answers_again if again else ()
        assert answer in (self._operation.answer, *also)
        return None

    def bytes_of_a_call(self, store: AsyncStore, target: Target) -> dict[Direction, int]:
        before = self._proxy.counts
        assert self.call(store, target, self.new_op()) is None
        after = self._proxy.counts
        return {way: getattr(after, way) - getattr(before, way) for way in DIRECTIONS}

    def aim(self, store: AsyncStore) -> tuple[Target, dict[Direction, int]]:
        """A target, and the bytes of a call about it on a live connection, with all prepared.

        Numbers that grow by a digit make a call longer, now and then: so they are those of calls
        about a target made before this one and about one made after it, if they are the same.
        """
        self.bytes_of_a_call(store, self.new_target(store))  # the first one prepares
        for _ in range(6):
            before, target, after = [self.new_target(store) for _ in range(3)]
            usual = self.bytes_of_a_call(store, before)
            if usual == self.bytes_of_a_call(store, after):
                return target, usual
            self.bytes_of_a_call(store, target)
        raise AssertionError("no two calls took the same bytes")

    def cut(
        self, zone: str, store: AsyncStore, target: Target, op: UUID | None, *, cuts: int = 1
    ) -> StoreError | None:
        """Call into the cuts that the proxy is armed with; the error, checked to be truthful."""
        before = self._proxy.counts.cuts
        error = self.call(store, target, op)
        self._proxy.heal()
        assert self._proxy.counts.cuts - before == cuts, f"{zone}: the cut missed the call"
        self.zones[zone] += 1
        if error is not None:
            assert type(error) is Unavailable
            assert error.retryable
            effects_possible = 1 if error.outcome_unknown else 0
            assert self.effects(target) <= effects_possible, f"{zone}, {target.name}: {error}"
        return error

    def effects(self, target: Target) -> int:
        return self._rows().get(target.name, 0) - self._operation.rows_before

    def audit(self, store: AsyncStore, expected_effects: int = 1) -> None:
        """Every target has its effects, also when the server is done with cut connections."""
        self.do(store.close())
        self._wait_until_the_server_is_idle()
        rows = self._rows()
        expected = expected_effects + self._operation.rows_before
        assert len(rows) == self._targets
        assert {name: found for name, found in rows.items() if found != expected} == {}

    def _rows(self) -> dict[str, int]:
        return dict(self._direct.execute(self._operation.effects, [self._namespace]).fetchall())

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


def spread(rng: random.Random) -> list[tuple[Direction, float]]:
    """SHARE places for a cut in each direction: the edges, and between them evenly by chance."""
    inner = SHARE - 2 * AT_THE_EDGES
    between = [(number + rng.random()) / inner for number in range(inner)]
    parts = [0.0, 1.0] * AT_THE_EDGES + between
    return [(direction, part) for direction in DIRECTIONS for part in parts]


def place(part: float, total: int) -> int:
    """After how many bytes of so many the cut comes; between the edges not at one of them."""
    return round(part) * total if part in {0, 1} else 1 + int(part * (total - 1))


def zone_of(direction: Direction, part: float) -> str:
    """In words."""
    whole = part == 1
    if direction == "to_server":
        return "whole request" if whole else "part of the request"
    return "whole reply" if whole else "part of the reply" if part else "no reply"

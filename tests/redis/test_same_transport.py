"""Any sequence of calls to the transport gives the same answers on Redis as on SQLite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Store
from holdfast.runtime.blocking import run
from holdfast.sync.transport import Delivery
from holdfast.testing.valkey import ValkeyServer

GROUPS = st.sampled_from(["g", "g", "g", "h"])
WORDS = st.sampled_from(["a", "a", "aa", "%a", "a+", "ü"])
SUBJECTS = st.lists(WORDS, min_size=1, max_size=3).map(".".join)
PATTERNS = st.builds(
    lambda words, tail: ".".join([*words, *tail]),
    st.lists(WORDS | st.just("*"), min_size=1, max_size=2),
    st.sampled_from([[], [">"]]),
) | st.sampled_from([">", ">", "*", "a.>", "*.*"])
IDS = st.sampled_from(["m", "n"])
NUMBERS = st.sampled_from([0, 0, 1, 2])


class Side:
    """A store, and what was fetched from it, newest first."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.held: list[Delivery] = []

    def fetch(self, group: str) -> object:
        delivery = self.store.transport.fetch(group)
        if delivery is None:
            return None
        self.held.insert(0, delivery)
        message = delivery.message
        return message.subject, message.payload, delivery.number

    def fetch_in_vain(self, group: str) -> object:
        """A message that is given back at once, as often as the group takes it."""
        found = []
        while (one := self.fetch(group)) is not None and one not in found:
            found.append(one)
            self.held[0].nak()
        return found

    def answer(self, number: int, answer: Callable[[Delivery], bool]) -> object:
        return answer(self.held[number]) if number < len(self.held) else None

    def dead(self, group: str) -> object:
        letters = self.store.transport.dead_letters(group)
        return [(letter.message.payload, letter.deliveries) for letter in letters]

    def bury(self, group: str, number: int, *, revive: bool) -> object:
        transport = self.store.transport
        letters = transport.dead_letters(group)
        if number >= len(letters):
            return None
        return (transport.revive if revive else transport.drop_dead)(group, letters[number].place)

    def status(self, group: str) -> object:
        status = self.store.transport.status(group)
        return status.waiting, status.delivered, status.dead, status.oldest_at is None


Call = Callable[[Side], object]

CALLS: st.SearchStrategy[Call] = st.one_of(
    st.builds(lambda s, i: lambda side: side.store.transport.publish(s, i, message_id=i),
              SUBJECTS, IDS),
    st.builds(lambda s: lambda side: side.store.transport.publish(s, s) and None, SUBJECTS),
    st.builds(
        lambda g, p, f, t, m: lambda side: side.store.transport.create_group(
            g, p, from_start=f, ack_timeout=t, max_deliveries=m
        ),
        GROUPS, st.lists(PATTERNS, min_size=1, max_size=2), st.booleans(),
        st.sampled_from([20, 100]), st.integers(1, 3),
    ),
    st.builds(lambda g: lambda side: side.fetch(g), GROUPS),
    st.builds(lambda g: lambda side: side.fetch(g), GROUPS),
    st.builds(lambda g: lambda side: side.fetch_in_vain(g), GROUPS),
    st.builds(lambda n: lambda side: side.answer(n, lambda d: d.ack()), NUMBERS),
    st.builds(lambda n, t: lambda side: side.answer(n, lambda d: d.nak(t)),
              NUMBERS, st.sampled_from([0, 0, 30])),
    st.builds(lambda n: lambda side: side.answer(n, lambda d: d.extend(60)), NUMBERS),
    st.builds(lambda by: lambda side: run(side.store._backend.move_clock(by * 1_000_000)),  # noqa: SLF001
              st.sampled_from([5, 50, 500])),
    st.builds(lambda g, n, r: lambda side: side.bury(g, n, revive=r),
              GROUPS, st.integers(0, 1), st.booleans()),
    st.builds(lambda g: lambda side: side.store.transport.delete_group(g), st.just("h")),
    st.just(lambda side: side.store.transport.list_groups()),
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer({"appendfsync": "no"}) as server:
        yield server


def _outcome(call: Call, side: Side) -> object:
    try:
        return call(side)
    except holdfast.NotFound as exc:
        return str(exc)


@settings(max_examples=100, deadline=None)
@given(st.lists(PATTERNS, min_size=1, max_size=2), st.lists(CALLS, min_size=10, max_size=40))
def test_the_same_calls_give_the_same_answers(
    server: ValkeyServer, patterns: list[str], calls: list[Call]
) -> None:
    with contextlib.ExitStack() as stack:
        wanted, found = (
            Side(stack.enter_context(holdfast.open(url)))
            for url in ("sqlite://:memory:", server.fresh_url(durability="standard"))
        )
        for side in (wanted, found):
            side.store.transport.create_group("g", patterns, ack_timeout=20, max_deliveries=2)
        for call in calls:
            assert _outcome(call, found) == _outcome(call, wanted)
            for look in (Side.status, Side.dead):
                assert look(found, "g") == look(wanted, "g")

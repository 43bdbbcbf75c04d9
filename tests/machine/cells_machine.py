"""A machine of random programs: writes, reads, a moved clock, stores that come and go.

`at` says which of the open stores, which of the two namespaces and which branch a step works on.
"""

from __future__ import annotations

import sys
from itertools import permutations
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.machine import strategies as draw
from tests.machine.lockstep import BRANCHES, COLOURS, Bench, Call, Lockstep
from tests.machine.sessions import MOST, Sessions
from tests.machine.watches import Watched

LOOK_EVERY = 5

places = st.sampled_from([0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 8, 9])
branches = st.sampled_from([*BRANCHES, "b", "b"])
made = st.sampled_from(["b", "b", "c", "d"])
sides = st.sampled_from(
    [*[("b", "main"), ("main", "b"), ("b", "main")] * 3, *permutations(BRANCHES, 2)]
)
strategies = st.sampled_from(["strict", "source_wins", "target_wins"])
colours = st.sampled_from(sorted(COLOURS))
# Hours that pass before a write; some clocks are set back.
moves = st.sampled_from([0, 0, 1, 4, -2])
changes = st.tuples(
    st.sampled_from(["set", "init", "cas", "delete"]),
    draw.names,
    draw.values,
    draw.guesses,
    draw.op_ids,
)

SessionCalls = list[tuple[str, tuple[Any, ...]]]


class CellsMachine(RuleBasedStateMachine):
    """One random program, run on a store and on the model."""

    pair: Lockstep
    sessions: Sessions
    watches: list[Watched]

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.steps = 0

    @initialize(
        colour=colours,
        keep=st.sampled_from([None, None, 1, 2]),
        forked=st.sampled_from([0, 2, 2]),
        # Not always: they need time at the end, and a connection of their own on PostgreSQL.
        watched=st.sampled_from([False, True]),
        last=st.sampled_from([None, None, "branch made anew", "merges", "pruned"]),
    )
    def open_first(
        self,
        colour: str,
        keep: int | None,
        forked: int,
        watched: bool,  # noqa: FBT001 - it is drawn
        last: str | None,
    ) -> None:
        self.pair = Lockstep(self.bench, colour, keep)
        self.sessions = Sessions(self.pair)
        for source, name in [("main", "b"), ("b", "c")][:forked]:  # or branches come late
            self.both(0, "set", "a", name)
            for at in (0, 1):
                self.fork(at, name, source, None)
        self.watches = []
        self.last = last
        if watched:
            branch = 4 if forked else 0
            self.watches.append(Watched(self.pair, 0, cursor=True))
            self.watches.append(Watched(self.pair, branch, cursor=False))

    @invariant()
    def everything_is_alike(self) -> None:
        self.steps += 1
        self.bench.counts["steps"] += 1
        if self.steps % LOOK_EVERY == 0:
            self.pair.look(self.steps // LOOK_EVERY)
            for watch in self.watches[self.steps % 2 :]:
                watch.read()

    def teardown(self) -> None:
        if not self.steps:
            return
        try:
            if sys.exception() is None:  # else the program broke off somewhere
                self.end_everything()
        finally:
            for opened in self.pair.stores:
                self.sessions.leave(opened)
                self.pair.close(opened)

    def end_everything(self) -> None:
        if self.sessions.open:
            while self.sessions.open:
                self.sessions.commit(0)
            self.pair.look(0)
        # Chance alone leads here too seldom: a branch ends before its watch and its session, ...
        self.fork(4, "b", "main", None)
        if self.last == "branch made anew":
            self.session_meets_others(4, ("get", ("a",)), "make the branch anew")
        elif self.last == "merges":
            self.merge(4, ("b", "main"), "strict", "a", ("delete", None))
            self.merge(4, ("b", "main"), "strict", "a", ("set", "set"))
        elif self.last == "pruned" and self.pair.shared:
            self.prune(0, 1)
        if self.bench.last:
            self.one_of_everything()
        for watch in self.watches:
            watch.read()
            watch.close()

    def one_of_everything(self) -> None:
        """What chance leaves out for hundreds of steps, on what it has led to."""
        if self.pair.shared:
            self.reopen("blocking")
        self.both(4, "set", "a", "b's own")
        self.cas(4, "a", 1, 0, None)
        self.diff(4, ("b", "main"))
        self.session(4, 0, [("get", ("a",))], "roll back")
        self.session_meets_others(4, ("get", ("a",)), "make the branch anew")

    # Writes

    @rule(at=places, name=draw.names, value=draw.values, op_id=draw.op_ids, hours=moves)
    def set(self, at: int, name: str, value: object, op_id: UUID | None, hours: int) -> None:
        if hours:
            self.pair.move_clock(hours)
        self.both(at, "set", name, value, op_id=op_id)
        self.both(at, "get", name)

    @rule(at=places, name=draw.any_names, value=draw.any_values)
    def set_anything(self, at: int, name: str, value: object) -> None:
        self.both(at, "set", name, value)
        self.both(at, "get", name)

    @rule(at=places, name=draw.names, value=draw.values, op_id=draw.op_ids)
    def init(self, at: int, name: str, value: object, op_id: UUID | None) -> None:
        self.both(at, "init", name, value, op_id=op_id)

    @rule(at=places, name=draw.names, value=draw.values, guess=draw.guesses, op_id=draw.op_ids)
    def cas(self, at: int, name: str, value: object, guess: int | None, op_id: UUID | None) -> None:
        self.both(at, "cas", name, self.expected(at, name, guess), value, op_id=op_id)

    @rule(at=places, name=draw.names, op_id=draw.op_ids)
    def delete(self, at: int, name: str, op_id: UUID | None) -> None:
        self.both(at, "delete", name, op_id=op_id)

    @rule(
        at=places,
        values=st.dictionaries(draw.names, draw.values, max_size=4),
        op_id=draw.op_ids,
    )
    def set_many(self, at: int, values: dict[str, object], op_id: UUID | None) -> None:
        self.both(at, "set_many", values, op_id=op_id)

    @rule(at=places, burst=st.lists(changes, min_size=2, max_size=5))
    def burst(self, at: int, burst: list[tuple[str, str, object, int | None, UUID | None]]) -> None:
        calls = []
        for method, name, value, guess, op_id in burst:
            args: tuple[object, ...] = (name, value)
            if method == "delete":
                args = (name,)
            elif method == "cas":
                args = (name, self.expected(at, name, guess), value)
            calls.append(Call(method, args, {"op_id": op_id}))
        self.pair.burst(at, calls)

    # Reads

    @rule(at=places, name=draw.names, default=draw.values)
    def get(self, at: int, name: str, default: object) -> None:
        self.both(at, "get", name, default)
        self.both(at, "get_versioned", name)

    @rule(at=places, name=draw.names, limit=draw.limits)
    def getv(self, at: int, name: str, limit: int | None) -> None:
        self.both(at, "getv", name, limit)

    @rule(at=places, prefix=draw.prefixes, after=draw.starts, limit=draw.limits)
    def list(self, at: int, prefix: str, after: str | None, limit: int | None) -> None:
        self.both(at, "list", prefix, after=after, limit=limit)

    @rule(at=places, name=draw.names, back=st.integers(-1, 8))
    def get_at_the_end_of_an_hour(self, at: int, name: str, back: int) -> None:
        self.pair.get_at_hour(at, name, self.pair.model.now - back)

    @rule(at=places, name=draw.names, which=st.integers(0, 3), earlier=st.sampled_from([0, 0, 1]))
    def get_at_the_moment_of_a_write(self, at: int, name: str, which: int, earlier: int) -> None:
        self.pair.get_at_write(at, name, which, earlier)

    # Branches

    @rule(at=places, name=made, source=branches, op_id=draw.op_ids)
    def fork_branch(self, at: int, name: str, source: str, op_id: UUID | None) -> None:
        self.fork(at, name, source, op_id)

    def fork(self, at: int, name: str, source: str, op_id: UUID | None) -> None:
        self.pair.on_branches(at, Call("fork", (name,), {"source": source, "op_id": op_id}))

    @rule(at=places, name=st.sampled_from(["b", "c", "d"]))
    def delete_branch(self, at: int, name: str) -> None:
        if self.steps % 3 == 0:  # or there is seldom one to work on
            self.pair.on_branches(at, Call("delete", (name,), {}))

    @rule(
        at=places,
        sides=sides,
        strategy=strategies,
        name=st.sampled_from(["a", "a", "a%"]),
        # What each side does first, or there is seldom anything to merge.
        first=st.tuples(
            st.sampled_from(["set", "delete", "delete", None]),
            st.sampled_from(["set", "set", "delete", None, None]),
        ),
    )
    def merge(
        self,
        at: int,
        sides: tuple[str, str],
        strategy: str,
        name: str,
        first: tuple[str | None, str | None],
    ) -> None:
        if first[0] == "delete":  # both have it first, so that the delete may be merged
            self.both(at % 4 + 4 * BRANCHES.index(sides[0]), "set", name, "both")
            self.pair.on_branches(at, Call("merge", sides, {"strategy": "source_wins"}))
        for side, method in zip(sides, first, strict=True):
            if method is not None:
                place = at % 4 + 4 * BRANCHES.index(side)
                self.both(place, method, name, *([side] if method == "set" else []))
        for tried in ("strict", strategy):  # the second has something to do if the first had not
            self.pair.on_branches(at, Call("merge", sides, {"strategy": tried}))

    @rule(at=places, sides=sides)
    def diff(self, at: int, sides: tuple[str, str]) -> None:
        self.pair.on_branches(at, Call("diff", sides, {}))

    # Sessions

    @rule(
        at=places,
        which=st.integers(0, MOST - 1),
        calls=st.lists(draw.session_calls, min_size=1, max_size=4),
        end=st.sampled_from([None, None, "commit", "commit", "roll back"]),
    )
    def session(self, at: int, which: int, calls: SessionCalls, end: str | None) -> None:
        """Work in an open session, or in a new one; it may stay open."""
        if which >= len(self.sessions.open):
            which = len(self.sessions.open)
            self.sessions.begin(at)
        if self.work(which, calls) and end == "commit":
            self.sessions.commit(which)
        elif end == "roll back" and self.sessions.open:
            self.sessions.roll_back(which)

    @precondition(lambda self: len(self.sessions.open) < MOST)
    @rule(
        at=places,
        read=draw.session_reads,
        others=st.sampled_from(["set", "set", "delete", "make the branch anew"]),
    )
    def session_meets_others(self, at: int, read: tuple[str, tuple[Any, ...]], others: str) -> None:
        """Others change what a session has read, and it writes something else."""
        branch = BRANCHES[at // 4]
        if others == "make the branch anew" and branch == "main":
            at, branch = at + 4, "b"
        self.sessions.begin(at)
        session = len(self.sessions.open) - 1
        if not self.work(session, [read]):
            return
        if others == "set":
            self.both(at, "set", draw.touched(read), "others")
        elif others == "delete":
            self.both(at, "delete", draw.touched(read))
        else:
            self.pair.on_branches(at, Call("delete", (branch,), {}))
            self.fork(at, branch, "main", None)
        if self.work(session, [read, ("set", ("mine", 1)), ("set", ("mine", 2))]):
            self.sessions.commit(session)

    def work(self, which: int, calls: SessionCalls) -> bool:
        """False if the session is over, because there is no such branch."""
        sessions = self.sessions
        before = len(sessions.open)
        for method, args in calls:
            given = args
            if method == "cas":
                name, guess, value = args
                live = sessions.live_version(which, name)
                given = (name, None if guess is None else max(1, live + guess), value)
            options = {"after": given[1], "limit": given[2]} if method == "list" else {}
            sessions.work(which, Call(method, given[:1] if options else given, options))
            if len(sessions.open) < before:
                return False
        return True

    # What surrounds them

    @rule(at=places, call=draw.illegal_calls)
    def refuse(self, at: int, call: tuple[str, tuple[object, ...]]) -> None:
        method, args = call
        self.both(at, method, *args)

    @precondition(lambda self: self.may_open)
    @rule(colour=colours)
    def reopen(self, colour: str) -> None:
        store = self.pair.stores.pop(0)
        self.pair.open(colour)
        self.sessions.leave(store)
        for watch in self.watches:
            watch.leave(store)
        self.pair.close(store)
        self.bench.counts["reopened"] += 1

    @precondition(lambda self: self.may_open and len(self.pair.stores) == 1)
    @rule(colour=colours)
    def open_second(self, colour: str) -> None:
        self.pair.open(colour)
        self.bench.counts["second store"] += 1

    @precondition(lambda self: self.may_open)
    @rule(at=st.sampled_from([0, 1, 2, 3]), keep=st.integers(1, 2))
    def prune(self, at: int, keep: int) -> None:
        for value in range(3):  # or there is seldom anything to throw away
            self.both(at, "set", "a", value)
        self.pair.prune(at, keep)

    @property
    def may_open(self) -> bool:
        """Not at every step: to open a store takes as long as twenty of them."""
        return self.steps % 4 == 0 and self.pair.shared

    def expected(self, at: int, name: str, guess: int | None) -> int | None:
        return None if guess is None else max(1, self.pair.live_version(at, name) + guess)

    def both(self, at: int, method: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
        self.pair.both(at, Call(method, args, options))

"""Decide whether sessions of several processes could have run one after the other.

Each session is recorded with the states that it saw and the states that it made. A state of
a cell is its version and whether it is there: within a cell states follow each other, so the
history of every cell is known exactly. What must not be, and how it shows:

    dirty read    a value is read whose session did not commit it
    lost update   two sessions made the same version, or one wrote over what it never saw
    write skew    a committed session had read a cell that was no longer so when it committed
    phantom       the same for a list
    torn read     no moment existed at which everything that a session read was there

Commit ids give the order of those who wrote: every commit locks what it read before it draws
them. That order is replayed. Those who only read, or gave up, are placed by a graph: who
must come before whom, from what was seen and from what was not; a ring has no order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

Outcome: TypeAlias = Literal["committed", "conflict", "rolled back"]
Kind: TypeAlias = Literal["dirty read", "lost update", "write skew", "phantom", "torn read"]


class State(NamedTuple):
    """A cell at some time; a deleted one has the version of the value that was deleted."""

    version: int
    there: bool


NEVER = State(0, there=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One session as its caller saw it. A tag is in a value, and names the set that made it."""

    name: str
    outcome: Outcome
    reads: Mapping[str, State] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)  # of the values that were read
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)  # names by prefix
    writes: Mapping[str, State] = field(default_factory=dict)
    made: Mapping[str, str] = field(default_factory=dict)  # the last tag set in each cell
    commit_id: int = 0

    @property
    def committed(self) -> bool:
        """True if it wrote."""
        return self.outcome == "committed" and bool(self.writes)


class Violation(NamedTuple):
    """What cannot have happened."""

    kind: Kind
    text: str


class History:
    """All attempts on one set of cells, which began empty."""

    def __init__(self, attempts: Iterable[Attempt]) -> None:
        self.attempts = list(attempts)
        self.writers = sorted(
            (attempt for attempt in self.attempts if attempt.committed),
            key=lambda attempt: attempt.commit_id,
        )
        self.makers: dict[str, dict[State, list[Attempt]]] = defaultdict(lambda: defaultdict(list))
        for writer in self.writers:
            for cell, state in writer.writes.items():
                self.makers[cell][state].append(writer)
        # (3, there) before (3, deleted) before (4, there)
        self.states = {
            cell: [NEVER, *sorted(made, key=lambda state: (state.version, not state.there))]
            for cell, made in self.makers.items()
        }
        self._places = {
            cell: {state: at for at, state in enumerate(states)}
            for cell, states in self.states.items()
        }

    def violations(self) -> list[Violation]:
        """Everything that cannot have happened; empty if all of it can."""
        return [*self._dirty(), *self._lost(), *self._replayed(), *self._torn()]

    def _dirty(self) -> Iterable[Violation]:
        tags = {
            tag for attempt in self.attempts if attempt.committed for tag in attempt.made.values()
        }
        for attempt in self.attempts:
            for cell, tag in attempt.tags.items():
                if tag not in tags:
                    yield Violation("dirty read", f"{attempt.name} read {tag} in {cell}")

    def _lost(self) -> Iterable[Violation]:
        for writer in self.writers:
            if not writer.commit_id:
                yield Violation("lost update", f"nothing is left of what {writer.name} wrote")
        for cell, states in self.states.items():
            for before, state in pairwise(states):
                makers = [maker.name for maker in self.makers[cell][state]]
                if len(makers) > 1:
                    yield Violation("lost update", f"{cell} {state} was made by {makers}")
                for maker in self.makers[cell][state]:
                    base = maker.reads[cell]
                    if base != before:
                        text = f"{maker.name} made {state} of {cell} from {base}, not {before}"
                        yield Violation("lost update", text)

    def _replayed(self) -> Iterable[Violation]:
        now: dict[str, State] = defaultdict(lambda: NEVER)
        for writer in self.writers:
            for cell, state in writer.reads.items():
                # A cell that it also wrote is the business of lost updates.
                if now[cell] != state and cell not in writer.writes:
                    text = f"{writer.name} read {state} of {cell}, and {now[cell]} was there"
                    yield Violation("write skew", text)
            for prefix, names in writer.lists.items():
                there = sorted(c for c, s in now.items() if s.there and c.startswith(prefix))
                if there != list(names):
                    missed = sorted(set(there).symmetric_difference(names))
                    yield Violation("phantom", f"{writer.name} listed {prefix} without {missed}")
            now.update(writer.writes)

    def _torn(self) -> Iterable[Violation]:
        edges: dict[str, set[str]] = defaultdict(set)
        for cell, states in self.states.items():
            for before, state in pairwise(states[1:]):
                self._order(edges, self.makers[cell][before], self.makers[cell][state])
        for attempt in self.attempts:
            for cell, state in attempt.reads.items():
                self._place(edges, attempt, cell, state)
            for prefix, names in attempt.lists.items():
                for cell, state in self._seen_in_list(prefix, names):
                    self._place(edges, attempt, cell, state)
        only_read = {attempt.name for attempt in self.attempts if not attempt.committed}
        for ring in _rings(edges):
            if only_read.intersection(ring):
                yield Violation("torn read", f"no order of {sorted(ring)[:8]}")

    def _seen_in_list(self, prefix: str, names: Sequence[str]) -> Iterable[tuple[str, State]]:
        """The states that a list tells of, of cells that are created once."""
        for cell, states in self.states.items():
            if not cell.startswith(prefix):
                continue
            if cell in names:
                yield cell, states[1]
            elif states[-1].there:  # never deleted, so not created yet
                yield cell, NEVER

    def _place(self, edges: dict[str, set[str]], attempt: Attempt, cell: str, state: State) -> None:
        states = self.states.get(cell, [NEVER])
        at = self._places.get(cell, {}).get(state)
        if at is None:
            return  # nobody ever wrote it, or one who did not commit: a dirty read
        if at > 0:
            self._order(edges, self.makers[cell][state], [attempt])
        if at + 1 < len(states):
            self._order(edges, [attempt], self.makers[cell][states[at + 1]])

    @staticmethod
    def _order(
        edges: dict[str, set[str]], before: Sequence[Attempt], after: Sequence[Attempt]
    ) -> None:
        for one in before:
            edges[one.name].update(other.name for other in after if other is not one)


def _rings(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups whose members all come before each other (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    rings: list[set[str]] = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = path.index(node)
                    ring = set(path[at:])
                    del path[at:]
                    on_path -= ring
                    if len(ring) > 1:
                        rings.append(ring)
    return rings

"""Decide whether a concurrent history could have come from a store that does one thing at a time.

A history is linearizable when every operation can be given one instant between its start
and its end such that the operations, run alone in that order, give the recorded results.
The search places one operation after another (Wing and Gong), remembers where it has been
(Lowe), and gives up only when nothing is left to try: its answer is exact.

An operation without an answer (`end` infinite) may have happened at any time after its
start, or never. Operations on different cells do not constrain each other, so each cell
is searched alone. `CellModel` is the sequential model of plain cells.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Operation:
    """One call that a process made; `end` is infinite when the process never heard the answer."""

    process: int
    call: str
    args: tuple[Any, ...]
    result: Any
    start: float
    end: float = math.inf

    @property
    def unknown(self) -> bool:
        """True when nobody knows the result, or whether the operation took place."""
        return self.end == math.inf


class Model(Protocol[S]):
    """What one partition of the store may answer when it is used by one caller at a time."""

    def partition(self, op: Operation) -> Hashable:
        """The part of the store that the operation touches."""

    def initial(self) -> S:
        """The state before the first operation."""

    def step(self, state: S, op: Operation) -> tuple[bool, S]:
        """Whether the result fits the state, and the state after; an unknown result always fits."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The shortest run of operations that no order explains, ending with the one that is stuck."""

    partition: Hashable
    window: tuple[Operation, ...]
    stuck: Operation
    reached: tuple[Hashable, ...]

    def __str__(self) -> str:
        origin = min(op.start for op in self.window[-_SHOWN:])
        shown = [f"{self.partition!r}: no order of these operations explains their results"]
        if hidden := self.window[:-_SHOWN]:
            shown.append(f"  … {len(hidden)} operations before these")
        for op in sorted(self.window[-_SHOWN:], key=lambda op: op.start):
            ended = "?" if op.unknown else f"{(op.end - origin) / 1000:.1f}"
            answer = "no answer" if op.unknown else repr(op.result)
            call = f"{op.call}({', '.join(map(repr, op.args[1:]))})"
            span = f"{(op.start - origin) / 1000:.1f}..{ended} us"
            mark = "   <- cannot be placed" if op is self.stuck else ""
            shown.append(f"  process {op.process:<3} {span:>22}  {call} -> {answer}{mark}")
        shown.append(f"  states tried before it: {', '.join(map(repr, self.reached))}")
        return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found: true when every partition is linearizable."""

    operations: int
    partitions: int
    violations: tuple[Violation, ...]

    def __bool__(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if self:
            return f"{self.operations} operations on {self.partitions} cells are linearizable"
        return "\n".join(map(str, self.violations))


def check(history: Iterable[Operation], model: Model[S]) -> Verdict:
    """The verdict on a history, with one readable violation for each partition at fault."""
    parts: defaultdict[Hashable, list[Operation]] = defaultdict(list)
    for op in history:
        parts[model.partition(op)].append(op)
    violations = []
    for partition, ops in parts.items():
        known = [op for op in ops if not op.unknown]
        search = _Search(model, known, [op for op in ops if op.unknown])
        if not search.explains([model.initial()]):
            violations.append(_shortest(partition, ops, search))
    return Verdict(sum(map(len, parts.values())), len(parts), tuple(violations))


class CellState(NamedTuple):
    """A cell as one caller sees it; `version` is the counter, which a delete leaves as it is."""

    version: int = 0
    exists: bool = False
    value: Hashable = None


class CellModel:
    """Plain cells: `args` as in the call; the result of get_versioned is (version, value)."""

    def partition(self, op: Operation) -> str:
        """The cell's name."""
        return str(op.args[0])

    def initial(self) -> CellState:
        """A cell that nobody has written yet."""
        return CellState()

    def step(self, state: CellState, op: Operation) -> tuple[bool, CellState]:
        """Run the operation alone; a stale or missing version makes `cas` answer None."""
        answer: object
        version, exists, value = after = state
        match op.call, op.args:
            case "set", (_, new):
                after = CellState(answer := version + 1, True, new)
            case "init", (_, new):
                answer = version if exists else version + 1
                after = state if exists else CellState(version + 1, True, new)
            case "cas", (_, expected, new):
                wins = expected == (version if exists else None)
                answer = version + 1 if wins else None
                after = CellState(version + 1, True, new) if wins else state
            case "delete", (_,):
                answer = exists
                after = CellState(version)
            case "get_versioned", (_,):
                answer = (version, value) if exists else None
            case _:
                raise ValueError(f"the cell model knows no {op.call!r} of {len(op.args)} arguments")
        return op.unknown or op.result == answer, after


class _Place(NamedTuple, Generic[S]):
    """Where a search stands: which operations are placed, and the state after them.

    Operations are numbered by their start. All below `base` are placed; bit i of `ahead` says
    that number `base + i` is too. Histories have few operations in flight, so `ahead` is short
    however long the history is.
    """

    base: int
    ahead: int
    optional: int
    state: S


class _Search(Generic[S]):
    """One depth-first search for an order that explains every `known` operation.

    `optional` operations are placed where that helps and left out otherwise.
    """

    def __init__(
        self, model: Model[S], known: Sequence[Operation], optional: Sequence[Operation]
    ) -> None:
        self.model = model
        self.known = sorted(known, key=lambda op: op.start)
        self.optional = sorted(optional, key=lambda op: op.start)
        self.seen: set[_Place[S]] = set()
        self.stuck: Operation | None = None
        self.reached: list[S] = []

    def explains(self, states: Iterable[S], *, budget: float = math.inf) -> bool:
        """True when some order works from one of the states, or the budget of places is spent."""
        todo = [_Place(0, 0, 0, state) for state in states]
        while todo:
            place = todo.pop()
            if place in self.seen:
                continue
            self.seen.add(place)
            if place.base == len(self.known) or len(self.seen) > budget:
                return True
            todo += self._next(place)
        return False

    def _next(self, place: _Place[S]) -> list[_Place[S]]:
        base, ahead, taken, state = place
        stuck, ready = self._ready(base, ahead)
        self._note(stuck, state)
        found = []
        for number, op in ready:
            fits, after = self.model.step(state, op)
            if not fits:
                continue
            placed = ahead | 1 << (number - base)
            # Drop the run of ones at the bottom: those operations lie below the new base.
            run = (~placed & (placed + 1)).bit_length() - 1
            following = _Place(base + run, placed >> run, taken, after)
            if after == state:
                # It changes nothing, so placing it now never spoils another order: the other
                # branches need no visit.
                return [following]
            found.append(following)
        for bit, op in enumerate(self.optional):
            if op.start > stuck.end:
                break
            if not taken >> bit & 1:
                fits, after = self.model.step(state, op)
                if fits and after != state:
                    found.append(_Place(base, ahead, taken | 1 << bit, after))
        found.reverse()
        return found

    def _ready(self, base: int, ahead: int) -> tuple[Operation, list[tuple[int, Operation]]]:
        """The unplaced operation that ends first, and all that began before it ended."""
        stuck = self.known[base]
        ready = []
        free = ~ahead  # endless ones above: the numbers not placed yet
        while True:
            low = free & -free
            free ^= low
            number = base + low.bit_length() - 1
            if number == len(self.known) or self.known[number].start > stuck.end:
                break
            op = self.known[number]
            ready.append((number, op))
            if op.end < stuck.end:
                stuck = op
        return stuck, [(number, op) for number, op in ready if op.start <= stuck.end]

    def _note(self, stuck: Operation, state: S) -> None:
        if self.stuck is None or stuck.end > self.stuck.end:
            self.stuck = stuck
            self.reached = []
        if stuck is self.stuck:
            self.reached.append(state)


def _shortest(partition: Hashable, ops: Sequence[Operation], search: _Search[S]) -> Violation:
    """The violation with the fewest operations: from no state seen anywhere do they make sense."""
    stuck = search.stuck
    if stuck is None:
        raise AssertionError("only a failed search has a violation")
    states = {place.state for place in search.seen}
    ended = sorted((op for op in ops if op.end <= stuck.end), key=lambda op: op.end)
    window = ended
    budget = 500_000
    for size in (*range(1, 16), *(2**n for n in range(4, 12)), len(ended)):
        window = ended[-size:]
        first = min(op.start for op in window)
        beside = [op for op in ops if op.end >= first and op.start <= stuck.end]
        attempt = _Search(search.model, window, [op for op in beside if op not in window])
        # Many unknown outcomes make a window dear to refute: then the whole history is the proof.
        if not attempt.explains(states, budget=budget):
            break
        budget -= len(attempt.seen)
        if budget <= 0 or size >= len(ended):
            window = ended
            break
    return Violation(partition, tuple(window), stuck, tuple(dict.fromkeys(search.reached))[:8])

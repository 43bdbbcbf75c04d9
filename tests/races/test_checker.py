"""The checker itself: what it accepts, what it refuses, and how it says so."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.testing.linearizability import CellModel, CellState, Operation, check

NAME = "c"


def op(
    process: int, span: tuple[float, float], call: str, *args: object, gives: object = None
) -> Operation:
    return Operation(process, call, (NAME, *args), gives, *span)


def accepts(*ops: Operation) -> bool:
    return bool(check(ops, CellModel()))


def test_an_operation_takes_effect_anywhere_between_its_start_and_its_end() -> None:
    write = op(0, (0, 10), "set", "x", gives=1)
    assert accepts(write, op(1, (1, 2), "get_versioned", gives=None))
    assert accepts(write, op(1, (1, 2), "get_versioned", gives=(1, "x")))
    assert accepts(
        write,
        op(1, (1, 2), "get_versioned", gives=None),
        op(2, (3, 4), "get_versioned", gives=(1, "x")),
    )


def test_a_read_after_another_read_is_never_older() -> None:
    assert not accepts(
        op(0, (0, 10), "set", "x", gives=1),
        op(1, (1, 2), "get_versioned", gives=(1, "x")),
        op(2, (3, 4), "get_versioned", gives=None),
    )


def test_a_stale_read_is_refused() -> None:
    assert not accepts(
        op(0, (0, 1), "set", "x", gives=1),
        op(0, (2, 3), "set", "y", gives=2),
        op(1, (4, 5), "get_versioned", gives=(1, "x")),
    )


def test_a_lost_update_is_refused() -> None:
    assert not accepts(
        op(0, (0, 1), "set", "x", gives=1),
        op(0, (2, 5), "cas", 1, "a", gives=2),
        op(1, (3, 6), "set", "b", gives=2),
        op(2, (7, 8), "get_versioned", gives=(2, "b")),
    )


def test_two_winners_of_one_cas_are_refused() -> None:
    assert not accepts(
        op(0, (0, 1), "set", "x", gives=1),
        op(0, (2, 5), "cas", 1, "a", gives=2),
        op(1, (3, 6), "cas", 1, "b", gives=2),
    )
    assert not accepts(
        op(0, (0, 5), "cas", None, "a", gives=1), op(1, (1, 6), "cas", None, "b", gives=1)
    )


def test_a_value_that_nobody_wrote_is_refused() -> None:
    assert not accepts(
        op(0, (0, 5), "set", "x", gives=1), op(1, (1, 2), "get_versioned", gives=(1, "zzz"))
    )


def test_the_counter_continues_past_a_delete() -> None:
    story = [
        op(0, (0, 1), "set", "x", gives=1),
        op(0, (2, 3), "delete", gives=True),
        op(0, (4, 5), "delete", gives=False),
        op(0, (6, 7), "cas", 1, "y", gives=None),
    ]
    assert accepts(*story, op(0, (8, 9), "init", "y", gives=2))
    assert accepts(*story, op(0, (8, 9), "cas", None, "y", gives=2))
    assert not accepts(*story, op(0, (8, 9), "init", "y", gives=1))
    assert not accepts(*story, op(0, (8, 9), "set", "y", gives=3))


def test_init_of_an_existing_cell_changes_nothing() -> None:
    first = op(0, (0, 1), "init", "x", gives=1)
    again = op(0, (2, 3), "init", "y", gives=1)
    assert accepts(first, again, op(0, (4, 5), "get_versioned", gives=(1, "x")))
    assert not accepts(first, again, op(0, (4, 5), "get_versioned", gives=(1, "y")))


def test_a_call_without_an_answer_may_have_happened_or_not() -> None:
    lost = op(0, (0, math.inf), "set", "x")
    assert accepts(lost)
    assert accepts(lost, op(1, (5, 6), "get_versioned", gives=None))
    assert accepts(lost, op(1, (5, 6), "get_versioned", gives=(1, "x")))
    assert accepts(
        lost,
        op(1, (5, 6), "get_versioned", gives=None),
        op(1, (7, 8), "get_versioned", gives=(1, "x")),
    )
    assert not accepts(
        lost,
        op(1, (5, 6), "get_versioned", gives=(1, "x")),
        op(1, (7, 8), "get_versioned", gives=None),
    )
    assert not accepts(
        op(1, (0, 1), "get_versioned", gives=(1, "x")), op(0, (2, math.inf), "set", "x")
    )


def test_cells_are_judged_one_by_one() -> None:
    good = Operation(0, "set", ("good", "x"), 1, 0, 1)
    bad = Operation(0, "set", ("bad", "x"), 7, 2, 3)
    verdict = check([good, bad], CellModel())
    assert [violation.partition for violation in verdict.violations] == ["bad"]


def test_a_violation_shows_only_the_operations_that_matter() -> None:
    calm = [op(0, (10 * n, 10 * n + 5), "set", n, gives=n + 1) for n in range(200)]
    stale = op(1, (1500, 1501), "get_versioned", gives=(100, 99))
    verdict = check([*calm, stale], CellModel())
    (violation,) = verdict.violations
    assert violation.stuck is stale
    assert stale in violation.window
    assert len(violation.window) <= 2
    assert "get_versioned() -> (100, 99)   <- cannot be placed" in str(verdict)


def brute_force(ops: Sequence[Operation]) -> bool:
    """The definition itself: some subset of the unknown, in some order that keeps real time."""
    known = [op for op in ops if not op.unknown]
    unknown = [op for op in ops if op.unknown]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(unknown, n) for n in range(len(unknown) + 1)
    )
    return any(
        _runs(order)
        for some in chosen
        for order in itertools.permutations([*known, *some])
        if all(a.start <= b.end for a, b in itertools.combinations(order, 2))
    )


def _runs(order: Sequence[Operation]) -> bool:
    model, state = CellModel(), CellState()
    for one in order:
        fits, state = model.step(state, one)
        if not fits:
            return False
    return True


def test_the_search_agrees_with_the_definition_on_small_histories() -> None:
    rng = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        ops = []
        for process in range(rng.randint(2, 5)):
            start = rng.randrange(8)
            end = math.inf if rng.random() < 0.2 else start + rng.randrange(8)
            guess: dict[str, tuple[list[Any], list[Any]]] = {
                "set": ([process], [1, 2, 3]),
                "init": ([process], [1, 2]),
                "cas": ([rng.choice([None, 1, 2]), process], [None, 1, 2, 3]),
                "delete": ([], [True, False]),
                "get_versioned": ([], [None, (1, rng.randrange(3)), (2, rng.randrange(3))]),
            }
            call = rng.choice(list(guess))
            args, answers = guess[call]
            ops.append(op(process, (start, end), call, *args, gives=rng.choice(answers)))
        expected = brute_force(ops)
        seen[expected] += 1
        assert accepts(*ops) is expected, ops
    assert min(seen.values()) > 300, f"void: one-sided histories, {seen}"


def simulated(rng: random.Random, *, operations: int, processes: int) -> list[Operation]:
    """What `processes` callers of a correct cell record."""
    model, state = CellModel(), CellState()
    free_at = [0] * processes
    spans = []
    for number in range(operations):
        process = number % processes
        start = free_at[process] + rng.randint(1, 30)
        instant = start + rng.randint(1, 100)
        free_at[process] = instant + rng.randint(1, 100)
        spans.append((instant, process, start, free_at[process]))
    ops = []
    for number, (_, process, start, end) in enumerate(sorted(spans)):
        live = state.version if (existed := state.exists) else None
        calls: list[tuple[str, tuple[Any, ...], Callable[[CellState], Any]]] = [
            ("set", (number,), lambda after: after.version),
            ("init", (number,), lambda after: after.version),
            ("cas", (live, number), lambda after: after.version),
            ("cas", (live + 1 if live else 1, number), lambda _: None),
            ("delete", (), lambda _: existed),
            ("get_versioned", (), lambda after: (after.version, after.value) if existed else None),
        ]
        call, args, answer = rng.choice(calls)
        _, state = model.step(state, Operation(process, call, (NAME, *args), None, start))
        ops.append(op(process, (start, end), call, *args, gives=answer(state)))
    return ops


@pytest.mark.parametrize("processes", [8, 16])
def test_ten_thousand_operations_are_accepted(processes: int) -> None:
    assert accepts(*simulated(random.Random(1), operations=10_000, processes=processes))


def test_one_stale_read_among_ten_thousand_operations_is_found() -> None:
    ops = simulated(random.Random(2), operations=10_000, processes=8)
    reads = [n for n, one in enumerate(ops) if one.call == "get_versioned" and one.result]
    index = reads[len(reads) // 2]
    spoilt, older = ops[index], ops[reads[len(reads) // 4]]
    ops[index] = op(spoilt.process, (spoilt.start, spoilt.end), spoilt.call, gives=older.result)
    verdict = check(ops, CellModel())
    assert [violation.stuck for violation in verdict.violations] == [ops[index]]

"""Every unit of a failed batch gets its own, true outcome."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from holdfast import Conflict, Database, InvalidArgument, StoreError, Timeout, Unavailable
from holdfast.backends.batching import NotBegun, apply_grouped, settle
from holdfast.runtime.blocking import run
from holdfast.runtime.contract import Unit

LOST = Unavailable("connection lost", outcome_unknown=True)
REFUSED = Unavailable("starting up")
SILENT = Timeout("no answer", outcome_unknown=True)
POISON = InvalidArgument("poison")


class Script:
    """Attempts that end as told: by the next error of the list, or by a poison unit."""

    def __init__(
        self, *ends: Exception | None, poison: dict[str, StoreError] | None = None
    ) -> None:
        self._ends = list(ends)
        self._poison = poison or {}
        self.tries: list[tuple[str, bool]] = []
        self.patience: list[bool] = []

    async def __call__(self, units: list[Unit], *, repeat: bool, patient: bool) -> None:
        self.patience.append(patient)
        self.tries.append(("".join(unit.items[0] for unit in units), repeat))
        end = self._ends.pop(0) if self._ends else None
        for unit in units:
            end = end or self._poison.get(unit.items[0])
        if isinstance(end, NotBegun):
            raise NotBegun(copy.copy(end.error))
        if end is not None:
            raise copy.copy(end)  # a driver never raises the same error twice
        for unit in units:
            unit.answers = list(unit.items)
            unit.settled = True


def settled(script: Script, names: str = "abc") -> dict[str, str]:
    """What each caller got: "done", or its error and whether it says that nobody knows."""
    units = {name: Unit(None, [name]) for name in names}
    run(settle(list(units.values()), script))
    return {name: outcome(unit) for name, unit in units.items()}


def outcome(unit: Unit) -> str:
    try:
        assert unit.result() == unit.items
    except StoreError as exc:
        return f"{exc}, who knows" if exc.outcome_unknown else str(exc)
    return "done"


def test_good_batch_is_tried_once() -> None:
    script = Script()
    assert settled(script) == dict.fromkeys("abc", "done")
    assert script.tries == [("abc", False)]


def test_poison_item_harms_no_neighbour() -> None:
    script = Script(poison={"b": POISON})
    assert settled(script) == {"a": "done", "b": "poison", "c": "done"}
    # The batch was undone, so there is nothing to look up.
    assert script.tries == [("abc", False), ("a", False), ("b", False), ("c", False)]


def test_error_of_a_single_unit_is_its_own() -> None:
    script = Script(poison={"a": POISON})
    assert settled(script, "a") == {"a": "poison"}
    assert script.tries == [("a", False)]


def test_lost_connection_is_repeated_once_with_the_operation_ids_looked_up() -> None:
    script = Script(LOST)
    assert settled(script) == dict.fromkeys("abc", "done")
    assert script.tries == [("abc", False), ("abc", True)]


def test_connection_lost_twice_is_an_unknown_outcome_for_everybody() -> None:
    script = Script(LOST, LOST)
    assert settled(script) == dict.fromkeys("abc", "connection lost, who knows")
    assert len(script.tries) == 2


def test_connection_refused_twice_is_known_not_to_have_happened() -> None:
    script = Script(REFUSED, REFUSED)
    assert settled(script) == dict.fromkeys("abc", "starting up")
    assert len(script.tries) == 2


def test_doubt_stays_when_the_repeat_is_refused() -> None:
    assert settled(Script(LOST, REFUSED)) == dict.fromkeys("abc", "starting up, who knows")


def test_doubt_stays_when_the_repeat_does_not_begin() -> None:
    script = Script(LOST, NotBegun(Timeout("no connection was free")))
    assert settled(script) == dict.fromkeys("abc", "no connection was free, who knows")


@pytest.mark.parametrize(
    "error", [Timeout("locked"), Database("disk full"), Conflict("deadlock"), POISON], ids=str
)
def test_doubt_stays_when_the_repeat_fails(error: StoreError) -> None:
    script = Script(LOST, error)
    assert settled(script, "a") == {"a": f"{error}, who knows"}
    assert script.tries == [("a", False), ("a", True)]


def test_poison_item_harms_no_neighbour_after_a_lost_connection() -> None:
    script = Script(LOST, poison={"b": POISON})
    assert settled(script) == {"a": "done", "b": "poison, who knows", "c": "done"}
    # Each may have been done by the first try, whose answer was lost.
    assert script.tries == [
        ("abc", False),
        ("abc", True),
        ("a", True),
        ("b", True),
        ("c", True),
    ]


def test_batch_that_never_began_fails_for_all_at_once() -> None:
    script = Script(NotBegun(Timeout("the writer was busy")))
    assert settled(script) == dict.fromkeys("abc", "the writer was busy")
    assert script.tries == [("abc", False)]


@pytest.mark.parametrize("end", [NotBegun(Timeout("busy")), LOST], ids=["busy", "lost"])
def test_callers_raise_errors_of_their_own(end: Exception) -> None:
    units = [Unit(None, [name]) for name in "abc"]
    run(settle(units, Script(end, end)))
    assert len({id(unit.error) for unit in units}) == 3


def test_unit_alone_that_loses_its_connection_is_repeated_too() -> None:
    script = Script(Database("the batch failed"), None, LOST, None)
    assert settled(script) == dict.fromkeys("abc", "done")
    assert script.tries == [("abc", False), ("a", False), ("b", False), ("b", True), ("c", False)]


def test_units_that_waited_for_a_lock_in_vain_do_not_wait_again_one_by_one() -> None:
    script = Script(Timeout("a row is locked"))
    assert settled(script) == {"a": "done", "b": "done", "c": "done"}
    assert script.patience == [True, False, False, False]


def test_silent_server_is_not_asked_again_for_a_single_unit() -> None:
    script = Script(SILENT)
    assert settled(script, "a") == {"a": "no answer, who knows"}
    assert script.tries == [("a", False)]


def test_silent_server_is_not_waited_for_unit_by_unit() -> None:
    script = Script(SILENT)
    silence = "no answer, who knows"
    assert settled(script) == {"a": silence, "b": silence, "c": silence}
    assert script.tries == [("abc", False)]


def test_defect_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        settled(Script(ZeroDivisionError()))


# Grouping


class Doubling:
    """A batch that answers each item with its double, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[list[int], bool]] = []

    async def apply(self, on: object, items: Sequence[int], *, repeat: bool) -> list[int]:
        assert on == "connection"
        self.given.append((list(items), repeat))
        return [item * 2 for item in items]


def test_units_of_one_batch_are_applied_as_one_list() -> None:
    one, other = Doubling(), Doubling()
    units = [Unit(one, [1, 2]), Unit(other, [3]), Unit(one, []), Unit(one, [4])]
    run(apply_grouped(units, "connection", repeat=True))
    assert one.given == [([1, 2, 4], True)]
    assert other.given == [([3], True)]
    for unit in units:
        assert not unit.settled  # not before the transaction is durable
        unit.settled = True
    assert [list(unit.result()) for unit in units] == [[2, 4], [6], [], [8]]

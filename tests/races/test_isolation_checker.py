"""The checker of sessions: what is fine passes, and each thing that must not be is found."""

import pytest

from holdfast.testing.isolation import NEVER, Attempt, History, State


def at(version: int) -> State:
    return State(version, there=True)


def gone(version: int) -> State:
    return State(version, there=False)


def wrote(name: str, commit_id: int, cells: dict[str, State], **more: object) -> Attempt:
    """A session that made these states; it had seen the version before each, if not told."""
    reads = {
        cell: State(state.version, there=True)
        if not state.there
        else (at(state.version - 1) if state.version > 1 else NEVER)
        for cell, state in cells.items()
    } | more.pop("reads", {})  # type: ignore[operator]
    made = {cell: f"{name}#{cell}" for cell, state in cells.items() if state.there}
    return Attempt(
        name,
        "committed",
        reads,
        writes=cells,
        made=made,
        commit_id=commit_id,
        **more,  # type: ignore[arg-type]
    )


def kinds(*attempts: Attempt) -> list[str]:
    return [violation.kind for violation in History(attempts).violations()]


FINE = (
    wrote("one", 1, {"x": at(1), "y": at(1)}),
    wrote("two", 2, {"x": at(3)}, reads={"x": at(1), "y": at(1)}),  # two sets, one state
    wrote("three", 3, {"seat/a": at(1)}, lists={"seat/": []}, reads={"z": NEVER}),
    wrote("four", 5, {"x": gone(3), "seat/b": at(1)}, lists={"seat/": ["seat/a"]}),
)


def test_sessions_one_after_the_other_are_fine() -> None:
    assert kinds(*FINE) == []


def test_readers_of_any_moment_are_fine() -> None:
    readers = (
        Attempt("r0", "committed", {"x": NEVER, "y": NEVER}, lists={"seat/": []}),
        Attempt("r1", "conflict", {"x": at(1), "y": at(1)}, {"x": "one#x"}),
        Attempt("r2", "rolled back", {"x": at(3), "y": at(1)}, lists={"seat/": ["seat/a"]}),
        Attempt("r3", "committed", {"x": gone(3)}, lists={"seat/": ["seat/a", "seat/b"]}),
    )
    assert kinds(*FINE, *readers) == []


def test_a_reader_need_not_follow_the_commit_ids_of_strangers() -> None:
    early = wrote("early", 1, {"x": at(1)})
    late = wrote("late", 2, {"y": at(1)})  # became visible first
    reader = Attempt("r", "committed", {"x": NEVER, "y": at(1)})
    assert kinds(early, late, reader) == []


def test_a_value_of_a_session_that_did_not_commit_is_a_dirty_read() -> None:
    undone = Attempt("undone", "rolled back", writes={"x": at(1)}, made={"x": "undone#1"})
    reader = Attempt("r", "committed", {"x": at(1)}, {"x": "undone#1"})
    assert kinds(undone, reader) == ["dirty read"]


def test_a_value_that_was_set_over_before_the_commit_is_a_dirty_read() -> None:
    reader = Attempt("r", "committed", {"x": at(2)}, {"x": "two#first"})
    assert kinds(*FINE, reader) == ["dirty read"]


@pytest.mark.parametrize("version", [2, 3])
def test_two_writes_on_the_same_state_are_a_lost_update(version: int) -> None:
    one = wrote("one", 1, {"x": at(1)})
    two = wrote("two", 2, {"x": at(2)})
    three = wrote("three", 3, {"x": at(version)}, reads={"x": at(1)})
    assert "lost update" in kinds(one, two, three)


def test_a_commit_of_which_nothing_is_left_is_a_lost_update() -> None:
    assert kinds(wrote("one", 0, {"x": at(1)})) == ["lost update"]


def test_two_that_read_what_the_other_wrote_are_a_write_skew() -> None:
    one = wrote("one", 1, {"x": at(1), "y": at(1)})
    two = wrote("two", 2, {"x": at(2)}, reads={"y": at(1)})
    three = wrote("three", 3, {"y": at(2)}, reads={"x": at(1)})
    assert kinds(one, two, three) == ["write skew"]


def test_two_that_found_the_same_absence_are_a_write_skew() -> None:
    two = wrote("two", 2, {"x": at(1)}, reads={"y": NEVER})
    three = wrote("three", 3, {"y": at(1)}, reads={"x": NEVER})
    assert kinds(two, three) == ["write skew"]


@pytest.mark.parametrize("names", [[], ["seat/a", "seat/b"]])
def test_a_list_that_was_no_longer_so_is_a_phantom(names: list[str]) -> None:
    one = wrote("one", 1, {"seat/a": at(1)})
    two = wrote("two", 2, {"x": at(1)}, lists={"seat/": names})
    assert kinds(one, two) == ["phantom"]


def test_half_of_a_commit_is_a_torn_read() -> None:
    one = wrote("one", 1, {"x": at(1), "y": at(1)})
    reader = Attempt("r", "committed", {"x": at(1), "y": NEVER})
    assert kinds(one, reader) == ["torn read"]


def test_a_list_of_another_moment_is_a_torn_read() -> None:
    one = wrote("one", 1, {"x": at(1), "seat/a": at(1)})
    reader = Attempt("r", "conflict", {"x": at(1)}, lists={"seat/": []})
    assert kinds(one, reader) == ["torn read"]


def test_two_readers_who_saw_strangers_in_different_order_are_a_torn_read() -> None:
    one, two = wrote("one", 1, {"x": at(1)}), wrote("two", 2, {"y": at(1)})
    readers = (
        Attempt("r", "committed", {"x": at(1), "y": NEVER}),
        Attempt("s", "committed", {"x": NEVER, "y": at(1)}),
    )
    assert kinds(one, two, *readers) == ["torn read"]

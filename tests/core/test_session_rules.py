"""The pure part of sessions: what is read on top of a snapshot, and what a commit must check."""

from __future__ import annotations

import pytest

from holdfast import InvalidArgument
from holdfast.facets import sessions
from holdfast.facets.branches import Operation
from holdfast.facets.cells import ABSENT, ANY, CellOutcome, CellWrite
from holdfast.facets.sessions import NEVER_SEEN, Checked, Listed, Order, Overlay, Seen, changed

ORDER = Order("space", "main", 30, Operation(b"x" * 16, given=False))
HERE = Seen('"old"', 4, 40, 1000, 40)
DELETED = Seen(None, 6, 60, 1000, 60)
INHERITED = Seen('"theirs"', 2, 0, 500, 7)


def write(name: str, payload: str | None, expected: int = ANY) -> CellWrite:
    return CellWrite(("space", "main", name), expected, payload, b"", op_given=False)


@pytest.fixture
def overlay() -> Overlay:
    overlay = Overlay()
    overlay.see({"here": HERE, "deleted": DELETED, "inherited": INHERITED, "never": NEVER_SEEN})
    return overlay


def test_a_first_look_is_the_last(overlay: Overlay) -> None:
    overlay.see({"here": Seen('"newer"', 5, 50, 2000, 50)})
    assert overlay.get("here") == ('"old"', 4, 1000, 40)
    assert overlay.unseen(["here", "other", "other"]) == ["other"]


@pytest.mark.parametrize(
    ("name", "payload", "expected", "outcome"),
    [
        ("here", "1", ANY, CellOutcome(applied=True, version=5)),
        ("here", "1", 4, CellOutcome(applied=True, version=5)),
        ("here", "1", 3, CellOutcome(applied=False, version=4)),
        ("here", "1", ABSENT, CellOutcome(applied=False, version=4)),
        ("here", None, ANY, CellOutcome(applied=True, version=4)),
        ("deleted", "1", ANY, CellOutcome(applied=True, version=7)),
        ("deleted", "1", ABSENT, CellOutcome(applied=True, version=7)),
        ("deleted", "1", 6, CellOutcome(applied=False, version=0)),
        ("deleted", None, ANY, CellOutcome(applied=False, version=0)),
        ("inherited", "1", 2, CellOutcome(applied=True, version=3)),
        ("never", "1", ABSENT, CellOutcome(applied=True, version=1)),
        ("never", None, ANY, CellOutcome(applied=False, version=0)),
    ],
)
def test_writes_follow_the_one_rule(
    overlay: Overlay, name: str, payload: str | None, expected: int, outcome: CellOutcome
) -> None:
    before = overlay.get(name)
    assert overlay.write([write(name, payload, expected)]) == [outcome]
    wanted = before
    if outcome.applied:
        wanted = None if payload is None else (payload, outcome.version, 0, 0)
    assert overlay.get(name) == wanted


def test_a_commit_checks_all_that_was_touched_by_the_branchs_own_commits(overlay: Overlay) -> None:
    overlay.write([write("here", "1"), write("here", "2"), write("never", "3")])
    assert overlay.names("d", "e", ["deep"]) == ["deep"]
    commit = overlay.commit(ORDER, 9)
    assert commit is not None
    assert list(commit.cells) == [
        Checked("deleted", 60, write=False, payload=None, version=0),
        Checked("here", 40, write=True, payload="2", version=6),
        Checked("inherited", 0, write=False, payload=None, version=0),
        Checked("never", 0, write=True, payload="3", version=1),
    ]
    assert list(commit.lists) == [Listed("d", "e", ["deep"])]
    assert commit.versions == {"here": 6, "never": 1}
    assert (commit.namespace, commit.branch, commit.branch_id) == ("space", "main", 9)


def test_nothing_written_is_nothing_to_commit(overlay: Overlay) -> None:
    overlay.write([write("here", "1", 3), write("deleted", None)])
    overlay.names("a", "b", [])
    assert overlay.commit(ORDER, 0) is None


@pytest.mark.parametrize(
    ("name", "listed", "exclusive"),
    [("here", False, False), ("deleted", False, False), ("inherited", False, True),
     ("never", False, True), ("here", True, True)],
)  # fmt: skip
def test_a_commit_that_rests_on_absence_needs_the_branch_for_itself(
    name: str, *, listed: bool, exclusive: bool
) -> None:
    known = {"here": HERE, "deleted": DELETED, "inherited": INHERITED, "never": NEVER_SEEN}
    overlay = Overlay()
    overlay.see({name: known[name]})
    overlay.write([write(name, "1")])
    if listed:
        overlay.names("a", "b", [])
    commit = overlay.commit(ORDER, 0)
    assert commit is not None
    assert commit.exclusive == exclusive


def test_own_names_are_listed_in_order_and_own_deletes_are_not(overlay: Overlay) -> None:
    overlay.write([write("here", None), write("never", "1"), write("deleted", "1")])
    assert overlay.names("", "~", ["a", "here", "inherited"]) == [
        "a", "deleted", "inherited", "never",
    ]  # fmt: skip
    assert overlay.names("e", "n", ["here", "inherited"]) == ["inherited"]


def test_too_much_for_one_commit_is_refused_as_a_whole(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_COMMIT_BYTES", 10)
    overlay.write([write("here", "123456")])
    with pytest.raises(InvalidArgument, match="13 bytes"):
        overlay.write([write("never", "1"), write("deleted", "123456")])
    assert overlay.size == 6
    assert overlay.get("never") is None
    overlay.write([write("here", "1234567890")])
    assert overlay.size == 10


def test_a_conflict_names_a_few_cells_and_carries_all() -> None:
    names = [f"c{number}" for number in range(9)]
    error = changed(names)
    assert error.cells == names
    assert "'c4', …" in str(error)
    assert "c5" not in str(error)

"""The rules of a watch, on a log made by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from holdfast import codec
from holdfast.errors import InvalidArgument, InvalidState, Unavailable
from holdfast.facets import watch as rules
from holdfast.facets.cells import ListedCell, StoredChange
from holdfast.facets.cells_watch import CellSource
from holdfast.facets.feed import Page, Position, from_cursor, to_cursor
from holdfast.facets.watch import CAUGHT_UP, Present, Seen, Watching
from holdfast.runtime.blocking import run

START = Position(1, 0, 0)


def change(seq: int, name: str = "a") -> Seen[str]:
    return Seen(name, seq, Position(1, 0, seq), f"{name}{seq}")


class Log:
    """A source whose pages and errors are given; after them nothing is new."""

    def __init__(
        self, *pages: Page[Seen[str]] | Exception, present: Sequence[Present[str]] = ()
    ) -> None:
        self.pages = list(pages)
        self.listed = list(present)
        self.asked: list[Position] = []

    async def position(self) -> Position:
        return START

    async def end(self) -> Position:
        return Position(1, 0, 3)

    async def present(self, after: str | None, since: Position) -> Present[str]:
        assert since == START
        del after
        return self.listed.pop(0)

    async def changes(self, after: Position) -> Page[Seen[str]]:
        self.asked.append(after)
        if not self.pages:
            return Page([], after, more=False, held_back=False)
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    def cursor(self, position: Position) -> str:
        return str(position)


class Ear:
    """A listener that never sleeps, and remembers how long it would have."""

    def __init__(self, most: int = 20) -> None:
        self.waits: list[float] = []
        self.most = most
        self.woken = 0

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) > self.most:
            raise TimeoutError("it waits and waits")

    def wake(self) -> None:
        self.woken += 1


def page(*changes: Seen[str], more: bool = False, held_back: bool = False) -> Page[Seen[str]]:
    end = changes[-1].position if changes else START
    assert end is not None
    return Page(list(changes), end, more=more, held_back=held_back)


def take(watching: Watching[str], timeout: float | None = 0) -> object:
    found = run(watching.next(timeout))
    return found.change if isinstance(found, Seen) else found


def test_who_waits_without_limit_waits_long_each_time_also_after_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ear = Ear(most=3)
    watching = Watching(Log(), ear, START)
    assert take(watching) is CAUGHT_UP
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(hours)))
    with pytest.raises(TimeoutError):
        take(watching, None)
    assert min(ear.waits) > 60


def test_a_held_back_change_is_looked_for_ever_less_often() -> None:
    ear = Ear()
    log = Log(*[page(held_back=True)] * 10, page(change(1)))
    watching = Watching(log, ear, START)
    assert take(watching, None) == "a1"
    assert ear.waits == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25, 0.25]
    assert take(watching, None) is CAUGHT_UP


def test_there_is_no_marker_while_something_is_held_back() -> None:
    watching = Watching(Log(page(change(1), held_back=True)), Ear(), START)
    assert take(watching) == "a1"
    assert not watching.caught_up
    assert take(watching) is CAUGHT_UP


def test_the_marker_comes_also_while_others_never_stop_writing() -> None:
    pages = [page(change(seq), held_back=True) for seq in range(1, 6)]
    watching = Watching(Log(*pages), Ear(), START)
    assert [take(watching) for _ in range(5)] == ["a1", "a2", "a3", CAUGHT_UP, "a4"]
    pages = [page(change(seq), more=True) for seq in range(1, 6)]
    watching = Watching(Log(*pages), Ear(), START)
    assert [take(watching) for _ in range(5)] == ["a1", "a2", "a3", CAUGHT_UP, "a4"]


def test_pages_are_read_one_after_the_other_without_waiting() -> None:
    ear = Ear()
    log = Log(page(change(1), more=True), page(change(2), more=True), page(change(3)))
    watching = Watching(log, ear, START)
    assert [take(watching) for _ in range(4)] == ["a1", "a2", "a3", CAUGHT_UP]
    assert sum(ear.waits) == 0
    assert [asked.seq for asked in log.asked] == [0, 1, 2]


def test_a_position_is_behind_the_change_that_was_handed_out() -> None:
    last = Position(1, 0, 9)  # what lies between is not for this watch
    log = Log(Page([change(1), change(5)], last, more=False, held_back=False))
    watching = Watching(log, Ear(), START)
    assert watching.cursor == str(START)
    take(watching)
    assert watching.cursor == str(Position(1, 0, 1))
    take(watching)
    assert watching.cursor == str(last)


def test_what_the_replay_showed_is_left_out_of_the_log() -> None:
    listed = Present(
        [Seen("a", 3, None, "a now"), Seen("b", 1, None, "b now")], recent={"a": 3}, after=None
    )
    log = Log(page(change(2), change(3), change(4), change(5, "b")), present=[listed])
    watching = Watching(log, Ear(), None)
    assert [take(watching) for _ in range(2)] == ["a now", "b now"]
    assert take(watching) is CAUGHT_UP
    assert watching.cursor is None  # the log must pass what was shown first
    assert [take(watching) for _ in range(2)] == ["a4", "b5"]
    assert watching.cursor == str(Position(1, 0, 5))


def test_there_is_no_position_before_what_the_replay_has_shown() -> None:
    listed = Present([Seen("a", 3, None, "a now")], recent={"a": 3}, after=None)
    log = Log(page(change(2, "b"), change(3), change(4, "b")), present=[listed])
    watching = Watching(log, Ear(), None)
    assert [take(watching) for _ in range(2)] == ["a now", CAUGHT_UP]
    assert take(watching) == "b2"
    assert watching.cursor is None  # from there on "a" would be told again
    assert take(watching) == "b4"
    assert watching.cursor == str(Position(1, 0, 4))


def test_a_server_that_is_away_is_tried_again_for_a_while() -> None:
    ear = Ear()
    away = Unavailable("away")
    watching = Watching(Log(away, away, page(change(1))), ear, START)
    assert take(watching, None) == "a1"
    assert ear.waits == list(rules._RECONNECT[:2])  # noqa: SLF001
    watching = Watching(Log(*[away] * 10), ear, START)
    with pytest.raises(Unavailable):
        take(watching, None)
    # And then again, as if nothing had been.
    watching = Watching(Log(*[away] * 6, page(change(1))), Ear(), START)
    with pytest.raises(Unavailable):
        take(watching, None)
    assert take(watching, None) == "a1"


def test_a_server_that_is_away_is_not_waited_for_beyond_the_timeout() -> None:
    ear = Ear()
    watching = Watching(Log(*[Unavailable("away")] * 10), ear, START)
    with pytest.raises(Unavailable):
        take(watching, 0.05)
    assert ear.waits == []


def test_closing_while_the_server_is_away_just_ends_the_watch() -> None:
    class Closing(Ear):
        async def wait(self, seconds: float) -> None:
            await super().wait(seconds)
            watching.close()

    watching = Watching(Log(*[Unavailable("away")] * 10), Closing(most=1), START)
    assert take(watching, None) is None

    class Closed(Log):
        async def changes(self, after: Position) -> Page[Seen[str]]:
            watching.close()
            return await super().changes(after)

    watching = Watching(Closed(Unavailable("away")), Ear(most=0), START)
    assert take(watching, None) is None


class Interrupt(BaseException):
    """What a signal handler raises, such as Ctrl-C."""


class Interrupted(list[Seen[str]]):
    """Changes, and an interrupt behind the first of them."""

    def __iter__(self) -> Iterator[Seen[str]]:
        yield self[0]
        raise Interrupt


def test_an_interrupt_in_the_middle_of_a_page_loses_and_doubles_nothing() -> None:
    changes = [change(2), change(3, "b"), change(4, "b")]
    items = Interrupted([Seen("a", 2, None, "a now"), Seen("b", 3, None, "b now")])
    listed = Present(items, recent={"a": 2, "b": 3}, after=None)
    log = Log(
        page(*changes)._replace(changes=Interrupted(changes)),
        page(*changes),
        present=[listed, listed._replace(items=list(items[:]))],
    )
    watching = Watching(log, Ear(), None)
    with pytest.raises(Interrupt):
        take(watching)
    assert [take(watching) for _ in range(3)] == ["a now", "b now", CAUGHT_UP]
    with pytest.raises(Interrupt):
        take(watching)
    assert take(watching) == "b4"
    assert log.asked == [START, START]
    assert watching.cursor == str(Position(1, 0, 4))


def test_an_error_leaves_the_watch_as_it_was() -> None:
    log = Log(page(change(1)), ValueError("once"), page(change(2)))
    watching = Watching(log, Ear(), START)
    assert [take(watching) for _ in range(2)] == ["a1", CAUGHT_UP]
    with pytest.raises(ValueError, match="once"):
        take(watching)
    assert take(watching) == "a2"


def test_closing_wakes_and_ends() -> None:
    ear = Ear()
    watching = Watching(Log(page(change(1))), ear, START)
    watching.close()
    assert ear.woken == 1
    assert take(watching, None) is None


def test_one_reader_at_a_time() -> None:
    watching = Watching(Log(), Ear(), START)

    class Nosy(Ear):
        async def wait(self, seconds: float) -> None:
            del seconds
            await watching.next(0)

    watching._listener = Nosy()  # noqa: SLF001
    assert take(watching) is CAUGHT_UP
    with pytest.raises(InvalidState, match="somebody else"):
        take(watching, 1)
    assert take(watching) is None


class Shelf:
    """A log of cells whose values are all of one size, and of which there is always more."""

    def __init__(self, length: int) -> None:
        self.payload = codec.encode("x" * length).decode()
        self.limits: list[int] = []

    async def position(self) -> Position:
        return START

    async def end(self) -> Position:
        return START

    async def page(
        self,
        namespace: str,
        branch: str,
        *,
        prefix: str,
        exact: bool,
        after: str | None,
        limit: int,
        since: Position,
    ) -> tuple[int, list[ListedCell], str | None]:
        del namespace, branch, prefix, exact, after, since
        self.limits.append(limit)
        return 0, [ListedCell("a", self.payload, 1, 0, 1, recent=False)] * limit, "a"

    async def changes(
        self, namespace: str, branch: str, *, prefix: str, exact: bool, after: Position, limit: int
    ) -> tuple[int, Page[StoredChange]]:
        del namespace, branch, prefix, exact
        self.limits.append(limit)
        changes = [StoredChange(after, "a", self.payload, 1, 0)] * limit
        return 0, Page(changes, after, more=True, held_back=False)


@pytest.mark.parametrize(
    ("length", "limits"),
    [(10, [25, 50, 100, 200, 400, 500, 500]), (400_000, [25, 10, 20, 10]), (10**7, [25, 1, 1])],
)
def test_pages_are_as_large_as_the_values_in_them_allow(length: int, limits: list[int]) -> None:
    for replay in (True, False):
        shelf = Shelf(length)
        source = CellSource(shelf, "default", "main", "")
        for _ in limits:
            run(source.present(None, START) if replay else source.changes(START))
        assert shelf.limits == limits


def test_cursors_are_text_and_come_back_as_they_were() -> None:
    for position in (START, Position(3, 2**60, 7), Position(1, 0, 2**63 - 1)):
        for part in (0, 1, 2**63 - 1):
            assert from_cursor("cells", to_cursor("cells", position, part)) == (position, part)


@pytest.mark.parametrize(
    "cursor",
    [
        *["", "cells", "cells:1.0", "cells:1.0.g", "cells:1.0.-1", "events:1.0.0", None, 7],
        *["cells@:1.0.0", "cells@g:1.0.0", "@1:1.0.0"],
    ],
)
def test_other_texts_are_no_cursors(cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        from_cursor("cells", cursor)


@pytest.mark.parametrize("cursor", ["cells:1.0.ffffffffffffffff", "cells@ffffffffffffffff:1.0.0"])
def test_a_cursor_beyond_what_engines_count_to_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="no such place"):
        from_cursor("cells", cursor)

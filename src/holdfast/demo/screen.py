"""What the run looks like: a live table on a terminal, lines now and then in a log."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.demo.crew import Member
from holdfast.demo.orders import COUNTER, item_cell
from holdfast.demo.worker import Report, State

WIDE = 76  # columns that the two tables need side by side
LOG_SECS = 2.0
_COLOURS = {
    State.STARTING: "dim",
    State.SELLING: "green",
    State.HALTED: "yellow",
    State.DONE: "default",
    State.FAILED: "bold red",
    State.KILLED: "bold red",
}


class View(NamedTuple):
    """One look at the run."""

    members: list[Member]
    items: dict[str, dict[str, int]]
    start: int
    counter: int
    elapsed: float
    selling: float

    @property
    def sold(self) -> int:
        """Units sold, of all items."""
        return sum(item["sold"] for item in self.items.values())

    @property
    def writes_per_sec(self) -> float:
        """Durable writes: three for an order (item, counter, journal)."""
        return 3 * self.counter / self.selling if self.selling else 0.0


class Screen:
    """Shows frames and events; a context manager that leaves the terminal as it was."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        self._title = title
        self._events: list[Text] = []
        self._next_line = 0.0
        # FORCE_COLOR makes rich take a pipe for a terminal; moving the cursor in one is noise.
        live = sys.stdout.isatty() and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False) if live else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        else:
            self.console.print(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def frame(self, view: View) -> None:
        """Show how things stand; in a log only every two seconds."""
        if self._live:
            self._live.update(self._picture(view), refresh=True)
        elif view.elapsed >= self._next_line:
            self.console.print(_foot(view))
            self._next_line = view.elapsed + LOG_SECS

    def last_frame(self, view: View) -> None:
        """Show how things stand at the end."""
        if self._live:
            self.frame(view)
        else:
            picture = Group(Text(), _tables(view, self.console.width), Text(), _foot(view))
            self.console.print(picture)

    def killed(self, member: Member) -> None:
        """Tell that a worker was killed, and what it left undone."""
        order = member.report.order
        if order is not None:
            self._tell(
                "bold red",
                f"Worker {member.worker} was killed (SIGKILL) in the middle of order {order.id}:",
                f"a unit of {order.item} has left the stock, but the order is not counted yet",
            )

    def resumed(self, member: Member, report: Report) -> None:
        """Tell how the replacement found and finished the open order."""
        order = report.order
        if order is not None:
            cells = (item_cell(order.item), COUNTER)
            known = [f"{cell}: done before, known by its op_id" for cell in report.before]
            new = [f"{cell}: done now" for cell in cells if cell not in report.before]
            self._tell(
                "green",
                f"Worker {member.worker} is back as pid {member.pid} and repeated order "
                f"{order.id}:",
                "; ".join([*known, *new]),
            )

    def _tell(self, style: str, head: str, rest: str) -> None:
        text = Text.assemble((head, style), "\n  ", rest)
        self._events.append(text)
        if not self._live:
            self.console.print(text)

    def _picture(self, view: View) -> RenderableType:
        tables = _tables(view, self.console.width)
        events = [Text(), *self._events] if self._events else []
        return Group(Text(self._title, style="bold"), Text(), tables, *events, Text(), _foot(view))


def _tables(view: View, width: int) -> RenderableType:
    workers, items = _workers(view), _items(view)
    if width < WIDE:
        return Group(workers, Text(), items)
    grid = Table.grid(padding=(0, 3))
    grid.add_row(workers, items)
    return grid


def _workers(view: View) -> Table:
    table = _table("worker", "pid", "state", "orders", "lost races", text=("state",))
    for one in sorted(view.members, key=lambda one: one.worker):
        report = one.report
        state = Text(report.state, style=_COLOURS[report.state])
        cells = (str(one.worker), str(one.pid), state, f"{report.orders:,}")
        table.add_row(*cells, f"{report.lost_races:,}")
    return table


def _items(view: View) -> Table:
    table = _table("item", "start", "stock", "sold", text=("item",))
    for name, item in view.items.items():
        table.add_row(name, f"{view.start:,}", f"{item['stock']:,}", f"{item['sold']:,}")
    return table


def _table(*columns: str, text: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        # As wide as its widest content will be, so that nothing jumps during the run.
        least = len(State.HALTED) if column == "state" else None
        justify: JustifyMethod = "left" if column in text else "right"
        table.add_column(column, justify=justify, min_width=least, no_wrap=True)
    return table


def _foot(view: View) -> Text:
    return Text.assemble(
        ("orders counted ", "dim"),
        (f"{view.counter:,}", "bold"),
        ("   units sold ", "dim"),
        (f"{view.sold:,}", "bold"),
        ("   elapsed ", "dim"),
        f"{view.elapsed:.1f} s",
        ("   durable writes/s ", "dim"),
        f"{view.writes_per_sec:,.0f}",
    )

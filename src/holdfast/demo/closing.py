"""The closing words: whether the sums are right, and what to look at next."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple, Self

from rich.console import Console

from holdfast.demo.books import Books
from holdfast.demo.show import Show

_MOST_FAULTS = 10
_NEXT = (
    ("README.md", "cells in ten lines, blocking and async"),
    ("docs/demo.md", "what you just saw, and why it is right"),
    ("docs/quickstart.md", "a first program of your own; then docs/concepts.md"),
    ("make test", "the same on PostgreSQL, with power cuts and full disks"),
    ("make bench", "how fast it is beside the raw drivers"),
)
_NEWEST = "SELECT name, version, value FROM holdfast_cell_versions ORDER BY commit_id DESC LIMIT 9"


class Outcome(NamedTuple):
    """The numbers worth telling."""

    books: Books
    killed_order: str
    lost_races: int
    writes_per_sec: float

    @classmethod
    def of(cls, show: Show, books: Books) -> Self:
        """The numbers of a run that came to its end."""
        order = show.victim.report.order if show.victim else None
        rate = books.versions / show.selling_secs if show.selling_secs else 0.0
        return cls(books, order.id if order else "", show.crew.lost_races, rate)


def say_right(console: Console, outcome: Outcome) -> None:
    """Say that everything adds up, and what that means."""
    books = outcome.books
    console.print("\nThe sums are right.", style="bold green")
    console.print(
        f"  {books.issued:,} orders issued = {books.counted:,} counted = {books.sold:,} sold "
        f"= {books.gone:,} gone from stock.\n"
        f"  Order {outcome.killed_order}, cut in two by the kill, was repeated and counts once.\n"
        f"  {books.versions:,} versions of {len(list(books.histories()))} cells: "
        "no gap, and every step is one order.\n"
        f"  {outcome.lost_races:,} lost races were run again. "
        f"{outcome.writes_per_sec:,.0f} durable writes/s on this machine."
    )


def say_wrong(console: Console, faults: list[str]) -> None:
    """Say what does not add up."""
    console.print("\nThe sums are WRONG.", style="bold red")
    for fault in faults[:_MOST_FAULTS]:
        console.print(f"  {fault}", markup=False)
    if len(faults) > _MOST_FAULTS:
        console.print(f"  and {len(faults) - _MOST_FAULTS} more")


def say_next(console: Console, file: Path | None, namespace: str, *, kept: bool) -> None:
    """Say what to look at next."""
    console.print("\nLook at next", style="bold")
    for name, what in _NEXT:
        console.print(f"  {name:18}  {what}")
    python = _python()
    if file and kept:
        console.print(f"\nLook inside {file}", style="bold", markup=False, soft_wrap=True)
        console.print(
            f'  {python} -m apsw {shlex.quote(str(file))} "{_NEWEST}"', markup=False, soft_wrap=True
        )
    elif file:
        console.print(f"  {python} -m holdfast.demo --keep   keeps the file, to look inside")
    else:
        console.print(f"  The cells of this run stay in the namespace {namespace}.")


def _python() -> str:
    """How to call this interpreter from here, in few letters."""
    executable = Path(sys.executable)
    here = Path.cwd()
    return os.fspath(executable.relative_to(here) if executable.is_relative_to(here) else "python")

"""The options of the demo, the store it runs on, and what it comes to in the end."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rich.console import Console

import holdfast
from holdfast.demo.books import faults, read_books
from holdfast.demo.closing import Outcome, say_next, say_right, say_wrong
from holdfast.demo.crew import Crew
from holdfast.demo.screen import Screen
from holdfast.demo.show import Show, ShowFailed
from holdfast.facets.backend import require
from holdfast.sync.store import Store
from holdfast.url import MEMORY, parse, redacted

_ORDERS_PER_SHARE = 10  # fewer, and a worker may be through before it can be killed


class Place(NamedTuple):
    """Where the run keeps its cells. Its namespace is new, so it never meets older data."""

    url: str
    namespace: str
    file: Path | None
    kept: bool


def run(arguments: Sequence[str], *, began_at: float) -> int:
    """Play the demo, whose time counts from `began_at`; 0 when the sums are right."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.stock < _ORDERS_PER_SHARE * options.workers:
        parser.error(f"--stock: {options.workers} workers need {_ORDERS_PER_SHARE} units each")
    console = Console(highlight=False)
    try:
        with _place(options) as place, holdfast.open(place.url, place.namespace) as store:
            require(store, holdfast.Capability.CELLS_HISTORY)  # which the check goes through
            return _play(place, store, options, console, began_at)
    except (ShowFailed, holdfast.StoreError) as exc:
        console.print(f"The demo failed: {exc}", style="bold red", markup=False)
        return 1


def _play(
    place: Place,
    store: Store,
    options: argparse.Namespace,
    console: Console,
    began_at: float,
) -> int:
    share = options.stock // options.workers
    crew = Crew(place.url, place.namespace, share=share)
    with crew, Screen(console, _title(place, options.workers)) as screen:
        show = Show(
            store=store,
            crew=crew,
            screen=screen,
            workers=options.workers,
            stock=options.stock,
            seconds=options.seconds,
            began_at=began_at,
        )
        try:
            show.play()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one: we are on it
            raise
        screen.last_frame(show.view())
    books = read_books(store.cells, issued=crew.orders)
    wrong = faults(books)
    if wrong:
        say_wrong(console, wrong)
    else:
        say_right(console, Outcome.of(show, books))
    say_next(console, place.file, place.namespace, kept=place.kept)
    return 1 if wrong else 0


@contextlib.contextmanager
def _place(options: argparse.Namespace) -> Iterator[Place]:
    namespace = f"demo-{uuid.uuid4().hex[:6]}"
    if options.url is not None:
        yield Place(_checked(options.url), namespace, None, kept=True)
    elif options.path is not None:
        yield Place(_sqlite(options.path), namespace, options.path, kept=True)
    elif options.keep:
        file = Path(tempfile.mkdtemp(prefix="holdfast-demo-")) / "demo.db"
        yield Place(_sqlite(file), namespace, file, kept=True)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            file = Path(folder) / "demo.db"
            yield Place(_sqlite(file), namespace, file, kept=False)


def _sqlite(file: Path) -> str:
    return f"sqlite:///{quote(str(file.absolute()))}?durability=always"


def _checked(url: str) -> str:
    target = parse(url, holdfast.StoreConfig())
    if target.address == MEMORY:
        raise holdfast.InvalidArgument("processes cannot share sqlite://:memory: - name a file")
    if target.config.history != "all":
        # The check goes through every version, and op_ids are known as long as theirs is kept.
        raise holdfast.InvalidArgument("the demo needs the whole history: leave out history=")
    return url


def _title(place: Place, workers: int) -> str:
    where = "one SQLite file" if place.file else redacted(place.url)
    durability = parse(place.url, holdfast.StoreConfig()).config.durability
    return f"{workers} processes sell from one stock, on {where} (durability={durability})."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{Path(sys.executable).name} -m holdfast.demo",
        description="Several processes sell from one inventory. One is killed in the middle of "
        "an order, another takes its place, and in the end the sums are right.",
    )
    parser.add_argument(
        "--workers", type=_whole(1, 32), default=4, metavar="N", help="processes (default 4)"
    )
    parser.add_argument(
        "--stock", type=_whole(10, 1_000_000), default=2500, metavar="N",
        help="units of each item to begin with (default 2500)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_whole(1, 3600), default=7, metavar="N",
        help="how long to take new orders (default 7)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", action="store_true", help="keep the SQLite file, and say where")
    where.add_argument(
        "--path", type=Path, metavar="FILE", help="use this SQLite file, and keep it"
    )
    where.add_argument(
        "--url", help="use another store, such as postgresql://localhost/app; what the demo "
        "writes stays there, in a namespace of its own",
    )  # fmt: skip
    return parser


def _whole(least: int, most: int) -> type[int]:
    def whole(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"wanted {least} to {most}, found {number}")
        return number

    return whole  # type: ignore[return-value]  # argparse takes any callable

"""The command line: `python -m bench` lists the benchmarks, `python -m bench cells` runs one."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import cells, events, nats, postgres, records, report, valkey, watch
from bench.harness import Harness, Settings
from bench.preload import NoShim, Shim, build
from bench.results import Outcome
from bench.scenario import Engine, Scenario
from bench.servers import Server

_QUICK: Final = {"rounds": 1, "seconds": 0.1}
_FULL: Final = {"rounds": 5, "seconds": 1.0}
_TITLES: Final = {
    "cells": cells.TITLE,
    "records": records.TITLE,
    "events": events.TITLE,
    "watch": watch.TITLE,
}


def main() -> int:
    """Do what the command line says; 1 if a contender failed, 2 if the call was wrong."""
    options = _parser().parse_args()
    if options.benchmark is None:
        for name, title in _TITLES.items():
            print(f"{title}\n    python -m bench {name}")
        print("Options: python -m bench cells --help")
        return 0
    if options.benchmark == "watch":
        return _watch(options)
    scenarios = _chosen(options)
    if options.list:
        for scenario in scenarios:
            print(f"{scenario.engine:9} {scenario.name:16} {scenario.title}")
        return 0
    if not scenarios:
        print("no scenario has that name; --list shows them", file=sys.stderr)
        return 2
    outcomes = _run(options, scenarios)
    return 1 if any(row.failed for outcome in outcomes for row in outcome.rows.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK")
    _compare(commands.add_parser("cells", help=cells.TITLE, description=cells.TITLE), cells.ENGINES)
    command = commands.add_parser("records", help=records.TITLE, description=records.TITLE)
    _compare(command, records.ENGINES)
    command.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help=f"among how many record-due scans ({records.ROWS:,}, quick {records.QUICK_ROWS:,})",
    )
    command = commands.add_parser("events", help=events.TITLE, description=events.TITLE)
    _compare(command, events.ENGINES)
    command.add_argument(
        "--events",
        type=int,
        metavar="N",
        help=f"in the long run of snapshot ({events.LONG:,}, quick {events.QUICK_LONG:,})",
    )
    command = commands.add_parser("watch", help=watch.TITLE, description=watch.TITLE)
    add = command.add_argument
    add("--engine", action="append", choices=["sqlite", "postgres"], help="default: both")
    add("--changes", type=int, default=200, metavar="N", help="how many to watch each way (200)")
    add("--json", type=Path, metavar="FILE", help="also write every figure there")
    return parser


def _compare(command: argparse.ArgumentParser, engines: Sequence[Engine]) -> None:
    """The options of a benchmark that runs scenarios."""
    add = command.add_argument
    add("--engine", action="append", choices=engines, help="may be repeated; default: all")
    add("--only", action="append", metavar="SCENARIO", help="run this one; may be repeated")
    add("--list", action="store_true", help="show the scenarios and end")
    add("--quick", action="store_true", help="one short round: a minute or two, rough figures")
    add("--rounds", type=int, metavar="N", help="rounds per scenario (5)")
    add("--seconds", type=float, metavar="S", help="length of each timed run (1)")
    add("--ops", type=int, metavar="N", help="operations per timed run, instead of --seconds")
    add("--json", type=Path, metavar="FILE", help="also write every figure there")
    add("--fixed-sync", type=int, metavar="US", help="give every sync this length (needs cc)")
    add("--no-shim", action="store_true", help="do as if there were no C compiler")
    add("--dir", type=Path, metavar="FOLDER", help="where the SQLite databases are made")


def _watch(options: argparse.Namespace) -> int:
    out = report.console()
    figures = watch.run(options.engine, max(2, options.changes), out.print)
    out.print("  ".join(f"{name}={value}" for name, value in report.machine().items()))
    out.print(watch.table(figures))
    if options.json:
        found = {"run": report.machine(), "ways": [one.as_json() for one in figures]}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    if options.benchmark == "cells":
        every = cells.scenarios()
    elif options.benchmark == "events":
        default = events.QUICK_LONG if options.quick else events.LONG
        every = events.scenarios(options.events or default)
    else:
        default = records.QUICK_ROWS if options.quick else records.ROWS
        every = records.scenarios(options.rows or default)
    return [
        scenario
        for scenario in every
        if (not options.engine or scenario.engine in options.engine)
        and (not options.only or scenario.name in options.only)
    ]


def _run(options: argparse.Namespace, scenarios: list[Scenario]) -> list[Outcome]:
    defaults = _QUICK if options.quick else _FULL
    out = report.console()
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.dir)))
        # A server under another user reads the shim and writes its counts here.
        folder.chmod(0o755)
        shim = _shim(options, folder)
        servers = _servers({scenario.engine for scenario in scenarios}, folder, shim, stack)
        settings = Settings(
            rounds=options.rounds or int(defaults["rounds"]),
            seconds=options.seconds or defaults["seconds"],
            ops=options.ops,
            folder=folder,
            shim=shim,
        )
        run: dict[str, object] = {
            "rounds": settings.rounds,
            "seconds": None if settings.ops else settings.seconds,
            "ops": settings.ops,
            "fixed_sync_us": options.fixed_sync if shim else None,
            **{engine: server.version() for engine, server in servers.items()},
        }
        out.print("  ".join(f"{k}={v}" for k, v in {**report.machine(), **run}.items() if v))
        progress = stack.enter_context(_progress())
        bar = progress.add_task("", total=None)

        def tell(what: str, done: int) -> None:
            progress.update(bar, advance=done, description=what)

        harness = Harness(settings, servers, tell)
        progress.update(bar, total=sum(map(harness.runs_of, scenarios)))
        for scenario in scenarios:
            outcomes.append(harness.run(scenario))
            out.print(report.table(outcomes[-1]))
    out.print(report.summary(outcomes))
    if options.json:
        options.json.write_text(json.dumps(report.as_json(outcomes, run), indent=2) + "\n")
    return outcomes


def _servers(
    engines: set[Engine], folder: Path, shim: Shim | None, stack: ExitStack
) -> dict[Engine, Server]:
    servers: dict[Engine, Server] = {}
    if "postgres" in engines:
        servers["postgres"] = stack.enter_context(postgres.running(folder, shim))
    if "redis" in engines:
        servers["redis"] = valkey.Server(folder, shim)
    if "nats" in engines:
        servers["nats"] = nats.Server()
    return servers


def _shim(options: argparse.Namespace, folder: Path) -> Shim | None:
    if options.no_shim:
        return None
    try:
        return build(folder, options.fixed_sync)
    except NoShim as reason:
        print(f"syncs have the disk's length and are counted apart: {reason}", file=sys.stderr)
        return None


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    sys.exit(main())

"""The options of the commands, and how a command begins and ends.

A command logs to standard error and says at its end, on standard output, what it has done. Its
exit code is 0 also when it was asked to stop, 1 after an error, with data too, 2 for a wrong call
and 130 when a tool was interrupted.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.cli import daemons, events, projector
from holdfast.errors import InvalidArgument, StoreError
from holdfast.facets.daemons import Resync
from holdfast.facets.transport import KEEP_SECS

_URL = "the store: sqlite:///path.db, postgresql://…, redis://… or nats://…"
_INTERRUPTED = 128 + signal.SIGINT
_EPILOG = "Ctrl-C or SIGTERM stops it after the work at hand; a second one ends it at once."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, those of the process if None; its exit code."""
    options = _parser().parse_args(arguments)
    _log_to_stderr(verbose=options.verbose)
    try:
        done = options.run(options)
    except StoreError as exc:
        print(f"holdfast {options.command}: {_one_line(exc)}", file=sys.stderr)
        # A line is of a file: what is wrong there is no wrong call.
        return 2 if isinstance(exc, InvalidArgument) and "line" not in exc.facts else 1
    except KeyboardInterrupt:
        print(f"holdfast {options.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    # Where standard output is the file, nothing else may go there.
    out = sys.stderr if getattr(options, "file", None) == "-" else sys.stdout
    print(msgspec.json.encode(done).decode() if options.json else _told(done), file=out, flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    # Started as `holdfast` or as `python -m holdfast`, its help says how.
    started = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(
        prog="holdfast" if started == "holdfast" else f"{Path(sys.executable).name} -m holdfast",
        description="Daemons and tools for a Holdfast store.",
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_sweep(commands)
    _add_archive(commands)
    _add_project(commands)
    _add_export(commands)
    _add_import(commands)
    _add_archive_runs(commands)
    return parser


Commands = argparse._SubParsersAction  # noqa: SLF001 - the only name that it has


def _add_sweep(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands,
        "sweep",
        daemons.sweep,
        "Give tasks whose workers died to other workers, and queue what was forgotten.",
    )
    parser.add_argument(
        "--root", default="gbe", help="first word of the tasks' keys and subjects (default gbe)"
    )
    parser.add_argument(
        "--interval", type=_seconds, default=30.0, metavar="SECS",
        help="between two sweeps (default 30)",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=_seconds, default=300.0, metavar="SECS",
        help="without a change a task that has no timeout is stuck after that (default 300)",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=_seconds, default=float(KEEP_SECS), metavar="SECS",
        help="remove messages that are done after that (default 604800, a week)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="sweep once, and end")


def _add_archive(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands,
        "archive",
        daemons.archive,
        "Write the messages about tasks that have ended to gzipped files, one for each day.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="where the files are; made if missing")
    parser.add_argument(
        "--group", default="archiver", help="the consumer group's name (default archiver)"
    )
    parser.add_argument(
        "--subject", action="append", dest="subjects", metavar="PATTERN",
        help="what to archive: * stands for one word, > at the end for all that follow; may be "
        "given several times (default gbe.tasks.*.terminal)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, default=200, metavar="N", help="messages at a time (default 200)"
    )
    parser.add_argument("--once", action="store_true", help="archive what is there, and end")


def _add_project(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands,
        "project",
        projector.project,
        "Keep the snapshots of runs, and views of them, up to date with their events.",
    )
    parser.add_argument(
        "--projection", action="append", dest="projections", metavar="MODULE:NAME",
        help="keep the views of this holdfast.Projection too, such as shop.views:cost; may be "
        "given several times",
    )  # fmt: skip
    parser.add_argument(
        "--shards", type=int, default=16, metavar="N",
        help="into how many parts the runs are divided, the same for all projectors (default 16)",
    )  # fmt: skip
    parser.add_argument(
        "--lease", type=_seconds, default=10.0, metavar="SECS",
        help="the runs of a projector that died are others' after that (default 10)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=_seconds, default=0.1, metavar="SECS",
        help="gather changes of a view for so long before it is kept (default 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--resync", type=_resync, default=Resync.FROM_SNAPSHOT, metavar="HOW",
        help="from where a run is read anew when events are missing: FROM_SNAPSHOT or FULL "
        "(default FROM_SNAPSHOT)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="project what is there, and end")


def _add_export(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add_tool(
        commands,
        "export-events",
        events.export_events,
        "Write the events of runs to a file of JSON lines.",
        "The first line has the version of the contract, the last one the number of events; "
        "import-events reads the file, on any engine. The file is whole or not there.",
    )
    parser.add_argument(
        "file", metavar="FILE",
        help="made or replaced; gzipped if its name ends in .gz; - is standard output",
    )  # fmt: skip
    parser.add_argument(
        "--run", action="append", dest="runs", metavar="ID",
        help="only this run; may be given several times (default all runs of the namespace)",
    )  # fmt: skip


def _add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add_tool(
        commands,
        "import-events",
        events.import_events,
        "Append the events of exported or archived files, under the numbers that they have.",
        "Events that are there already change nothing, so a failed import is run again. A "
        "damaged file, or a run that has other events here, is an error that names the line.",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="gzipped or not; - is standard input"
    )


def _add_archive_runs(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _add_tool(
        commands,
        "archive-run",
        events.archive_runs,
        "Write runs to files, one for each, and delete them from the store.",
        "A file is durable before its run is deleted; import-events restores it.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="where the files are; made if missing")
    parser.add_argument("runs", metavar="ID", nargs="+", help="the runs")
    parser.add_argument("--force", action="store_true", help="also a run that has not ended")


def _add(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], msgspec.Struct],
    description: str,
) -> argparse.ArgumentParser:
    parser = _begin(commands, name, run, description, _EPILOG)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--namespace", default="default", help="of the store (default default)")
    where.add_argument(
        "--all-namespaces", action="store_true", help="all of them, also those that are new"
    )
    return parser


def _add_tool(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], msgspec.Struct],
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    parser = _begin(commands, name, run, description, epilog)
    parser.add_argument("--namespace", default="default", help="of the store (default default)")
    return parser


def _begin(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], msgspec.Struct],
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=description, description=description, epilog=epilog)
    parser.set_defaults(run=run)
    parser.add_argument("url", metavar="URL", help=_URL)
    parser.add_argument("--json", action="store_true", help="say at the end in JSON what was done")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    return parser


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"wanted seconds above 0, found {text}")
    return number


def _resync(text: str) -> Resync:
    try:
        return Resync(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted FULL or FROM_SNAPSHOT, found {text}") from None


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


def _one_line(exc: StoreError) -> str:
    notes = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
    return " ".join(f"{exc}{notes}".split())


def _told(done: msgspec.Struct) -> str:
    counts = msgspec.structs.asdict(done)
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {' '.join(value)}"
        for name, value in counts.items()
    )

"""Export, import and archive as commands; `-` is standard output or input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.archive.failures import translated
from holdfast.cli.existing import open_existing
from holdfast.cli.progress import ProgressLine
from holdfast.facets.events_lines import Exported, Imported
from holdfast.opening import open as open_store

_STANDARD = "-"


class Archived(msgspec.Struct, frozen=True):
    """What was archived."""

    runs: int
    files: list[str]


def export_events(options: argparse.Namespace) -> Exported:
    """Write the runs to the file."""
    target = sys.stdout.buffer if options.file == _STANDARD else options.file
    with open_existing(options.url, options.namespace) as store, ProgressLine("exported") as line:
        return store.events.export_runs(target, options.runs or None, progress=line.show)


def import_events(options: argparse.Namespace) -> Imported:
    """Append what is in the file."""
    with (
        open_store(options.url, options.namespace) as store,
        _source(options.file) as file,
        ProgressLine("imported", _part_of(file)) as line,
    ):
        return store.events.import_runs(file, progress=line.show)


def archive_runs(options: argparse.Namespace) -> Archived:
    """Write each run to a file of its own, and delete it."""
    files = []
    with open_existing(options.url, options.namespace) as store, ProgressLine("archived") as line:
        for run_id in options.runs:
            files.append(store.events.archive_run(run_id, options.folder, force=options.force))
            line.show(len(files))
    return Archived(len(files), files)


def _source(name: str) -> AbstractContextManager[BinaryIO]:
    if name == _STANDARD:
        return nullcontext(sys.stdin.buffer)
    with translated(f"file {name!r}"):
        return Path(name).open("rb")


def _part_of(file: BinaryIO) -> Callable[[], float] | None:
    """Tells how much of a file was read; None when nobody knows how much there is."""
    if not file.seekable():
        return None
    size = file.seek(0, 2)
    file.seek(0)
    return lambda: file.tell() / max(size, 1)

"""Export, import and archive as commands; `-` is standard output or input."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.archive.failures import translated
from holdfast.cli.existing import open_existing
from holdfast.cli.progress import ProgressLine
from holdfast.errors import InvalidArgument, StoreError
from holdfast.facets.events_lines import Exported, Imported
from holdfast.opening import open as open_store

_log = logging.getLogger("holdfast.cli")
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
    """Append what is in the files, one after the other."""
    if options.files.count(_STANDARD) > 1:
        raise InvalidArgument("standard input can be read once")
    done = Imported()
    with open_store(options.url, options.namespace) as store:
        for name in options.files:
            with _source(name) as file, ProgressLine("imported", _part_of(file)) as line:
                try:
                    done += store.events.import_runs(file, progress=line.show)
                except StoreError as exc:
                    if "line" in exc.facts:
                        exc.add_note("standard input" if name == _STANDARD else f"file {name!r}")
                    raise
    return done


def archive_runs(options: argparse.Namespace) -> Archived:
    """Write each run to a file of its own, and delete it.

    Each file is logged when it is there: what comes after may fail, and the run is deleted.
    """
    files: list[str] = []
    with open_existing(options.url, options.namespace) as store:
        try:
            for run_id in options.runs:
                path = store.events.archive_run(run_id, options.folder, force=options.force)
                files.append(path)
                _log.info("run %r is archived: %s", run_id, path)
        except StoreError as exc:
            if files:
                exc.add_note(f"archived before that: {', '.join(files)}")
            raise
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

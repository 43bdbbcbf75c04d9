"""The daemons as commands: until they are asked to stop, or once; in one namespace or in all."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import msgspec

from holdfast.cli.everywhere import Daemon, Everywhere
from holdfast.cli.existing import open_existing
from holdfast.facets.daemons import ArchiveTotals, SweepResult
from holdfast.sync.archiver import Archiver
from holdfast.sync.store import Store
from holdfast.sync.sweeper import Sweeper

_log = logging.getLogger("holdfast.cli")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY = 1.0  # seconds between two looks for messages in all namespaces


class Archived(msgspec.Struct, frozen=True):
    """What an archiver did, and how far its group is behind."""

    messages: int
    bytes: int
    batches: int
    waiting: int
    lag_secs: float


def sweep(options: argparse.Namespace) -> SweepResult:
    """Sweep until a signal comes, or once: what was done."""
    with open_existing(options.url, options.namespace) as store:

        def make(view: Store, keep: float | None) -> Sweeper:
            return Sweeper(
                view,
                root=options.root,
                interval=options.interval,
                threshold=options.threshold,
                keep=keep,
            )

        if options.all_namespaces:

            def make_one(name: str) -> Sweeper:
                # Messages are purged in all namespaces at once: one of the sweepers is enough.
                first = not everywhere.daemons
                return make(store.namespace(name), options.keep if first else None)

            everywhere = Everywhere(store, make_one)
            stop_by_signal(everywhere, once=options.once)
            if options.once:
                everywhere.run_once(Sweeper.sweep)
            else:
                everywhere.run(_swept, options.interval)
            return sum((each.totals for each in everywhere.daemons.values()), SweepResult())
        sweeper = make(store, options.keep)
        stop_by_signal(sweeper, once=options.once)
        if options.once:
            sweeper.sweep()
        else:
            sweeper.run()
        return sweeper.totals


def archive(options: argparse.Namespace) -> Archived:
    """Archive until a signal comes, or what is there: what was done."""
    with open_existing(options.url, options.namespace) as store:

        def make(view: Store, folder: Path) -> Archiver:
            return Archiver(
                view,
                folder,
                group=options.group,
                subjects=options.subjects or "gbe.tasks.*.terminal",
                batch=options.batch,
            )

        root = Path(options.folder)
        if options.all_namespaces:
            everywhere = Everywhere(
                store,
                lambda name: make(store.namespace(name), root / folder_name(name)),
                say=totals_of,
            )
            stop_by_signal(everywhere, once=options.once)
            if options.once:
                everywhere.run_once(Archiver.drain)
            else:
                everywhere.run(_archived, _LOOK_EVERY)
            return totals_of(everywhere.daemons.values())
        archiver = make(store, root)
        stop_by_signal(archiver, once=options.once)
        if options.once:
            archiver.drain()
        else:
            archiver.run()
        return totals_of([archiver])


def folder_name(namespace: str) -> str:
    """The namespace as the name of a folder, which leads nowhere else."""
    name = quote(namespace, safe=" ")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _swept(sweeper: Sweeper) -> bool:
    sweeper.sweep()
    return False  # the next round is in time


def _archived(archiver: Archiver) -> bool:
    return archiver.archive() > 0


def totals_of(archivers: Iterable[Archiver]) -> Archived:
    """What all of them did, and how far the last one is behind."""
    found = [archiver.status() for archiver in archivers]
    totals = sum((status.totals for status in found), ArchiveTotals())
    lag = max((status.lag for status in found), default=timedelta(0))
    return Archived(
        **msgspec.structs.asdict(totals),
        waiting=sum(status.group.waiting + status.group.delivered for status in found),
        lag_secs=round(lag.total_seconds(), 3),
    )


def stop_by_signal(daemon: Daemon, *, once: bool) -> None:
    """Stop the daemon by the first signal; the second one does what it does by default."""

    def handle(_: int, __: FrameType | None) -> None:
        # No word of it here: the signal may have come in the middle of another line.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        daemon.stop()

    for each in _SIGNALS:
        signal.signal(each, handle)
    if not once:
        _log.info("started; SIGINT or SIGTERM stops it")

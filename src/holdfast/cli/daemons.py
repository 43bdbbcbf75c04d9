"""The daemons as commands: until they are asked to stop, or once."""

from __future__ import annotations

import argparse
import logging
import signal
from types import FrameType
from typing import Protocol

import msgspec

from holdfast.facets.daemons import SweepResult
from holdfast.opening import open as open_store
from holdfast.sync.archiver import Archiver
from holdfast.sync.sweeper import Sweeper

_log = logging.getLogger("holdfast.cli")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Archived(msgspec.Struct, frozen=True):
    """What an archiver did, and how far its group is behind."""

    messages: int
    bytes: int
    batches: int
    waiting: int
    lag_secs: float


def sweep(options: argparse.Namespace) -> SweepResult:
    """Sweep until a signal comes, or once: what was done."""
    with open_store(options.url, options.namespace) as store:
        sweeper = Sweeper(
            store, root=options.root, interval=options.interval, threshold=options.threshold
        )
        _stop_by_signal(sweeper)
        if options.once:
            sweeper.sweep()
        else:
            _log.info("sweeping every %g s", options.interval)
            sweeper.run()
        return sweeper.totals


def archive(options: argparse.Namespace) -> Archived:
    """Archive until a signal comes, or what is there: what was done."""
    with open_store(options.url, options.namespace) as store:
        archiver = Archiver(
            store,
            options.folder,
            group=options.group,
            subjects=options.subjects or "gbe.tasks.*.terminal",
            batch=options.batch,
        )
        _stop_by_signal(archiver)
        if options.once:
            archiver.drain()
        else:
            _log.info("archiving to %s", options.folder)
            archiver.run()
        status = archiver.status()
        return Archived(
            **msgspec.structs.asdict(status.totals),
            waiting=status.group.waiting + status.group.delivered,
            lag_secs=round(status.lag.total_seconds(), 3),
        )


class _Daemon(Protocol):
    def stop(self) -> None: ...


def _stop_by_signal(daemon: _Daemon) -> None:
    """Stop the daemon by the first signal; the second one does what it does by default."""

    def handle(_: int, __: FrameType | None) -> None:
        # No word of it here: the signal may have come in the middle of another line.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        daemon.stop()

    for each in _SIGNALS:
        signal.signal(each, handle)

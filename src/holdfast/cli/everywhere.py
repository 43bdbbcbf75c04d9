"""A daemon for every namespace of a store, also for those that are new."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from holdfast.errors import StoreError
from holdfast.sync.store import Store

_log = logging.getLogger("holdfast.cli")
_SLICE = 0.2  # seconds: so soon a stop is noticed


class Daemon(Protocol):
    """What can be asked to stop."""

    def stop(self) -> None:
        """Return after the work at hand. From a signal handler."""


D = TypeVar("D", bound=Daemon)


class Everywhere(Generic[D]):
    """Works on one namespace after the other; see Daemon."""

    def __init__(
        self,
        store: Store,
        make: Callable[[str], D],
        *,
        say: Callable[[Iterable[D]], object] | None = None,
        report: float = 60,
    ) -> None:
        """`say`: what is logged of all of them together, every `report` seconds while they run."""
        self._store = store
        self._make = make
        self._say = say
        self._report = report
        self._stopped = False
        self.daemons: dict[str, D] = {}
        """Those that were made so far, by namespace."""

    def stop(self) -> None:
        """See Daemon."""
        self._stopped = True
        for daemon in tuple(self.daemons.values()):
            daemon.stop()

    def run(self, work: Callable[[D], bool], interval: float) -> None:
        """Go round until stopped, and rest for `interval` when nowhere was anything to do."""
        report_at = time.monotonic() + self._report
        while not self._stopped:
            busy = False
            try:
                for daemon in self._each():
                    busy |= self._tried(work, daemon)
                if self._say is not None and time.monotonic() >= report_at:
                    told = self._say(self.daemons.values())
                    _log.info("%d namespaces: %s", len(self.daemons), told)
                    report_at = time.monotonic() + self._report
            except StoreError as exc:
                if not exc.retryable:
                    raise
                _log.warning("looking at the namespaces failed, trying again: %s", exc)
            due = time.monotonic() + (0 if busy else interval)
            while not self._stopped and (left := due - time.monotonic()) > 0:
                self._store.pause(min(_SLICE, left))

    def run_once(self, work: Callable[[D], object]) -> None:
        """Go round once; the first error ends it."""
        for daemon in self._each():
            work(daemon)

    def _each(self) -> list[D]:
        for name in self._store.namespaces():
            if name not in self.daemons and not self._stopped:
                self.daemons[name] = self._make(name)
        return list(self.daemons.values())

    def _tried(self, work: Callable[[D], bool], daemon: D) -> bool:
        """True if there was work; what failed and may go well later must not stop the others."""
        if self._stopped:
            return False
        try:
            return work(daemon)
        except StoreError as exc:
            if not exc.retryable:
                raise
            _log.warning("failed, trying again: %s", exc)
            return False

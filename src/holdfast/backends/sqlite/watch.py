"""Hears of commits by other processes: one thread that asks SQLite whether the file changed.

Only while somebody listens. `PRAGMA data_version` looks into shared memory: a few
microseconds, so asking often is cheap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from holdfast.backends.sql.queries import SQLITE, load
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.errors import StoreError
from holdfast.facets import cells, events, records, transport
from holdfast.runtime import Topic
from holdfast.runtime.hub import Hub

_log = logging.getLogger("holdfast.sqlite")

INTERVAL = 0.004
"""Seconds between looks: half of it is what a wake-up takes on average."""

_AFTER_ERROR = 1.0
_DATA_VERSION = "PRAGMA data_version"

_LOGS = {
    cells.LOG: load(__package__, "cells.sql", SQLITE)["written_since"],
    records.LOG: load(__package__, "records.sql", SQLITE)["written_since"],
    transport.LOG: load(__package__, "transport.sql", SQLITE)["written_since"],
    events.LOG: load(__package__, "events.sql", SQLITE)["written_since"],
}
"""For each log the namespaces that were written to since a commit."""

_MOST = 1000  # changes to look at: if there are more, everybody is told


class Poller:
    """Tells the hub; the thread starts with the first listener and ends with the last."""

    def __init__(self, connect: Callable[[], SqliteConnection], hub: Hub) -> None:
        self._connect = connect
        self._hub = hub
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop: SimpleQueue[None] = SimpleQueue()

    def start(self) -> None:
        """See to it that the thread runs; there is a listener."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast watch", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.put(None)
        thread = self._thread
        # A forgotten store may be collected on any thread, also on this one.
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while self._goes_on():
            try:
                self._poll()
            except StoreError as exc:
                _log.warning("watching the file failed, trying again: %s", exc)
                if self._stopped(_AFTER_ERROR):
                    return

    def _poll(self) -> None:
        connection = self._connect()
        try:
            version = None
            seen = dict.fromkeys(_LOGS, 0)
            while not self._stopped(INTERVAL) and self._hub.listening:
                ((current,),) = connection.run(_DATA_VERSION)
                if current != version:
                    version = current
                    self._hub.tell(self._written(connection, seen))
        finally:
            connection.close()

    def _written(self, connection: SqliteConnection, seen: dict[str, int]) -> list[Topic]:
        """What was written about since the commits in `seen`, which then are the last ones."""
        topics: list[Topic] = []
        for log, query in _LOGS.items():
            rows = connection.rows(query, (seen[log], _MOST))
            topics += [(log, namespace) for namespace, _, _ in rows]
            if rows and rows[0][2] == _MOST:
                topics = list(self._hub.topics)
            seen[log] = max([seen[log], *(last for _, last, _ in rows)])
        return topics

    def _goes_on(self) -> bool:
        with self._lock:
            goes_on = self._stop.empty() and self._hub.listening
            if not goes_on:
                self._thread = None
        return goes_on

    def _stopped(self, seconds: float) -> bool:
        try:
            self._stop.get(timeout=seconds)
        except Empty:
            return False
        self._stop.put(None)
        return True

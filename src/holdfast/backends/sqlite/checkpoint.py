"""Moves the write-ahead log into the database file, off the writer's thread.

A passive checkpoint copies without blocking anyone, but while writes keep
coming the log is never wholly copied and would grow for ever. So after the
passive pass a second one takes the writer for the few frames that are left, and
lets the log start over.

Somebody has to notice that it is time. SQLite would call us after each commit, but
a call from C into Python is a tenth of what a lone write takes beside its sync: so
the writer looks now and then.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

import apsw

from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.errors import StoreError

_log = logging.getLogger("holdfast.sqlite")
# The restart holds the writer while it waits for readers of old snapshots: not for long.
_RESTART_BUSY_MS = 10


class Checkpointer:
    """One daemon thread with a connection of its own."""

    def __init__(self, connection: SqliteConnection, pages: int) -> None:
        self._connection = connection
        self._pages = pages
        self._threshold = pages
        self._length = 0
        # Not an Event: a Ctrl-C inside its `set` leaves it locked, and the next commit hangs.
        self._due: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="holdfast checkpoint", daemon=True)
        self._thread.start()

    def look(self, writer: SqliteConnection) -> None:
        """Look how long the log is, between two transactions of the writer."""
        try:
            self._length, _ = writer.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        except apsw.Error:
            return  # the commit is done, and the next look is not far
        if self._length >= self._threshold and self._due.empty():
            self._due.put(None)

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._stopped = True
        self._due.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        raw = self._connection.raw
        raw.set_busy_timeout(_RESTART_BUSY_MS)
        while True:
            self._due.get()
            if self._stopped:
                return
            try:
                raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                self._threshold = self._pages
            except apsw.BusyError:
                # A reader or another process is in the way: again when the log has grown.
                self._threshold = self._length + self._pages
            except (apsw.Error, StoreError) as exc:
                self._threshold = self._length + self._pages
                _log.warning("checkpoint failed, the log keeps growing: %s", exc)

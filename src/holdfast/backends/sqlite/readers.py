"""Who reads: connections beside the writer, or with `locking=exclusive` the writer itself."""

from __future__ import annotations

import contextlib
import threading

from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.config import StoreConfig


class Readers:
    """As many reading connections as were ever needed at once; SQLite keeps snapshots apart."""

    # Readers need not be kept out while the writer writes.
    kept_out: contextlib.AbstractContextManager[object] = contextlib.nullcontext()

    def __init__(self, path: str, config: StoreConfig) -> None:
        self._path = path
        self._config = config
        self._idle: list[SqliteConnection] = []
        self._closed = False

    def take(self) -> SqliteConnection:
        """A connection that is the caller's until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            return SqliteConnection(self._path, self._config)

    def give_back(self, reader: SqliteConnection) -> None:
        """Return a connection."""
        self._idle.append(reader)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close the idle ones now, and one that a thread still reads with when it comes back."""
        self._closed = True
        with contextlib.suppress(IndexError):  # two threads may close at once
            while True:
                self._idle.pop().close()


class OneConnection:
    """The writer reads too, so a read must not fall into another thread's batch."""

    def __init__(self, writer: SqliteConnection) -> None:
        self._writer = writer
        self.kept_out = threading.Lock()

    def take(self) -> SqliteConnection:
        """The writer, once nobody uses it."""
        self.kept_out.acquire()
        return self._writer

    def give_back(self, reader: SqliteConnection) -> None:
        """Let the next one use it."""
        del reader
        self.kept_out.release()

    def close(self) -> None:
        """Close the writer, once nobody uses it."""
        with self.kept_out:
            self._writer.close()

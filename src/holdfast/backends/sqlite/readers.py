"""Who reads: connections beside the writer, or with `locking=exclusive` the writer itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.config import StoreConfig


class Readers:
    """As many reading connections as were ever needed at once; SQLite keeps snapshots apart."""

    # A backup has a connection of its own: nobody waits for it.
    turn = contextlib.nullcontext
    pages_per_turn = 2000
    kept_out = contextlib.nullcontext()  # they need not be while the writer writes

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

    @contextlib.contextmanager
    def steady(self) -> Iterator[SqliteConnection]:
        """A connection that goes on seeing the store as it is now; for backups."""
        reader = SqliteConnection(self._path, self._config)
        try:
            # An open read transaction pins one snapshot: without it every commit of another
            # connection would start the copy over.
            reader.run("BEGIN")
            reader.run("SELECT 1 FROM sqlite_schema LIMIT 1")
            yield reader
        finally:
            reader.close()

    def close(self) -> None:
        """Close the idle ones now, and one that a thread still reads with when it comes back."""
        self._closed = True
        with contextlib.suppress(IndexError):  # two threads may close at once
            while True:
                self._idle.pop().close()


class OneConnection:
    """The writer reads too, so a read must not fall into another thread's batch."""

    # Of a backup. With 100 a writer beside it kept 60 % of its rate (225 MB copied in 2.8 s).
    pages_per_turn = 100

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

    @contextlib.contextmanager
    def steady(self) -> Iterator[SqliteConnection]:
        """The writer: SQLite carries what it commits during a backup into the copy."""
        yield self._writer

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The time in which the connection is the backup's; the others then have as much."""
        with self.kept_out:
            began = time.monotonic()
            yield
            took = time.monotonic() - began
        # A lock goes to whoever asks first, and that would be the next turn.
        time.sleep(took)

    def close(self) -> None:
        """Close the writer, once nobody uses it."""
        with self.kept_out:
            self._writer.close()

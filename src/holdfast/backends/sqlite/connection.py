"""One apsw connection, with its errors translated."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import apsw

from holdfast.backends.sql.db import Row
from holdfast.backends.sqlite.files import no_right
from holdfast.backends.sqlite.moment import Moments
from holdfast.config import StoreConfig
from holdfast.errors import (
    Corrupt,
    Database,
    InvalidArgument,
    StoreClosed,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)

Params = Mapping[str, Any] | tuple[Any, ...]
"""By name, or in the order in which the query names them first."""

_SYNCHRONOUS = {"always": "FULL", "standard": "NORMAL", "cache": "OFF"}
# A log that a long reader made grow is cut back to this once it is copied.
_LOG_BYTES = 32 * 1024 * 1024
# Text that is not UTF-8 comes from a damaged page: apsw lets Python's own error through.
DRIVER_ERRORS = (apsw.Error, UnicodeDecodeError)
# A reader meets a lock only while another process recovers or restarts the log: a moment.
_READ_BUSY_MS = 2000
# The driver forgets whichever statement was run so many statements ago, however often it is used.
# With 64 a look after each hundredth write was prepared anew each time, 30 µs; to look through
# more of them costs a lone put nothing that can be measured.
_STATEMENTS = 320


class SqliteConnection:
    """A connection whose statements run at once, on the calling thread.

    With `later` nothing is read from the file, and no lock waited for, before `set_up`.
    """

    def __init__(
        self, path: str, config: StoreConfig, *, create: bool = False, later: bool = False
    ) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        try:
            self.raw = apsw.Connection(
                path, flags=flags, vfs=config.vfs, statementcachesize=_STATEMENTS
            )
        except apsw.Error as exc:
            if config.vfs is not None and isinstance(exc, apsw.SQLError):
                raise InvalidArgument(f"vfs {config.vfs!r}: {exc}") from exc
            raise translate(exc, path) from exc
        self._path = path
        self.raw.set_busy_timeout(_READ_BUSY_MS)
        # Without this, SQLite plans a prepared statement anew whenever a bound value changes:
        # a point read took 15 µs instead of 5.
        self.raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # One cursor for all statements: none is ever left half read. Raises the driver's errors:
        # for batches, whose caller translates once for all statements.
        cursor = self.raw.cursor()
        self.execute, self.executemany = cursor.execute, cursor.executemany
        self.moments = Moments(self.raw)
        self._config = config
        if not later:
            try:
                self.set_up()
            except StoreError:
                self.close()
                raise

    def set_up(self) -> None:
        """Give the connection its settings."""
        if self._config.locking == "exclusive":
            self.run("PRAGMA locking_mode = EXCLUSIVE")
        self.run(f"PRAGMA synchronous = {_SYNCHRONOUS[self._config.durability]}")
        self.run("PRAGMA fullfsync = ON")  # macOS: fsync alone stays in the drive's cache
        self.run("PRAGMA checkpoint_fullfsync = ON")
        self.run("PRAGMA temp_store = MEMORY")
        self.run(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

    def rows(self, query: str, params: Params) -> list[Row]:
        """The rows of one statement."""
        try:
            return self.execute(query, params).fetchall()
        except DRIVER_ERRORS as exc:
            raise self.error(exc) from exc

    def row(self, query: str, params: Params) -> Row | None:
        """The row of a statement that finds one at most and has several columns, or None."""
        try:
            return self.execute(query, params).get  # type: ignore[no-any-return]
        except DRIVER_ERRORS as exc:
            raise self.error(exc) from exc

    def run(self, sql: str) -> list[Row]:
        """The rows of a statement or script without parameters."""
        try:
            return self.execute(sql).fetchall()
        except DRIVER_ERRORS as exc:
            raise self.error(exc) from exc

    def rollback(self) -> None:
        """Undo the open transaction, if there is one: a full disk or I/O error ends it itself."""
        self.moments.forget()
        try:
            if self.raw.in_transaction:
                self.execute("ROLLBACK")
        except apsw.Error as exc:
            raise self.error(exc) from exc

    def error(self, exc: Exception) -> StoreError:
        """Our error for the driver's."""
        return translate(exc, self._path)

    def leave_log(self) -> None:
        """Make `close` leave a log that holds anything where it is: the file is not ours."""
        with contextlib.suppress(apsw.Error):  # what cannot be read is not written either
            frames, _ = self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            if frames > 0:
                self.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        """Free the connection."""
        # SQLite's last checkpoint may fail: what it could not copy is safe in the log.
        with contextlib.suppress(apsw.Error):
            self.raw.close(True)


def translate(exc: Exception, path: str) -> StoreError:
    """Our error for the driver's, with the file and SQLite's own words."""
    text = f"SQLite {os.path.basename(path)!r}: {exc}"  # noqa: PTH119 - a path may be a VFS's own
    code = getattr(exc, "extendedresult", None)  # errors of apsw itself have none
    if isinstance(exc, apsw.CantOpenError):
        reason = no_right(path)
        if reason is not None:
            return Unauthorized(f"{text}: {reason}", sqlite_code=code)
    for kind, error in _ERRORS:
        if isinstance(exc, kind):
            return error(text, sqlite_code=code)
    return Database(text, sqlite_code=code)


_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (apsw.BusyError, Timeout),
    (apsw.LockedError, Timeout),
    (apsw.InterruptError, Timeout),
    (apsw.CorruptError, Corrupt),
    (UnicodeDecodeError, Corrupt),
    (apsw.NotADBError, Corrupt),
    (apsw.ReadOnlyError, Unauthorized),
    (apsw.PermissionsError, Unauthorized),
    (apsw.AuthError, Unauthorized),
    (apsw.CantOpenError, Unavailable),
    (apsw.TooBigError, InvalidArgument),
    (apsw.ConnectionClosedError, StoreClosed),
)

"""One apsw connection behind the coroutine core's `fetch`, and its errors translated."""

from __future__ import annotations

import os
from collections.abc import Mapping

import apsw

from holdfast.backends.sql.db import Row
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

_SYNCHRONOUS = {"always": "FULL", "standard": "NORMAL", "cache": "OFF"}
# A reader meets a lock only while another process recovers or restarts the log: a moment.
_READ_BUSY_MS = 2000


class SqliteConnection:
    """A connection whose statements run at once, on the calling thread."""

    def __init__(self, path: str, config: StoreConfig) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self.raw = apsw.Connection(path, flags=flags, vfs=config.vfs)
        except apsw.Error as exc:
            raise translate(exc, path) from exc
        self._path = path
        self.raw.set_busy_timeout(_READ_BUSY_MS)
        # One cursor for all statements: none is ever left half read.
        self._execute = self.raw.cursor().execute
        try:
            if config.locking == "exclusive":
                self.run("PRAGMA locking_mode = EXCLUSIVE")
            self.run(f"PRAGMA synchronous = {_SYNCHRONOUS[config.durability]}")
            self.run("PRAGMA fullfsync = ON")  # macOS: fsync alone stays in the drive's cache
            self.run("PRAGMA checkpoint_fullfsync = ON")
            self.run("PRAGMA temp_store = MEMORY")
        except StoreError:
            self.close()
            raise

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Connection. Never suspends."""
        try:
            return self._execute(query, params).fetchall()
        except apsw.Error as exc:
            raise translate(exc, self._path) from exc

    def run(self, sql: str) -> list[Row]:
        """The rows of a statement or script without parameters."""
        try:
            return self._execute(sql).fetchall()
        except apsw.Error as exc:
            raise translate(exc, self._path) from exc

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open; SQLITE_FULL and I/O errors end one by themselves."""
        return self.raw.in_transaction

    def rollback(self) -> None:
        """Undo the open transaction, if there still is one."""
        if self.raw.in_transaction:
            try:
                self._execute("ROLLBACK")
            except apsw.Error as exc:
                raise translate(exc, self._path) from exc

    def close(self) -> None:
        """Free the connection."""
        self.raw.close(True)


def translate(exc: apsw.Error, path: str) -> StoreError:
    """Our error for the driver's, with the file and SQLite's own words."""
    text = f"SQLite {os.path.basename(path)!r}: {exc}"  # noqa: PTH119 - a path may be a VFS's own
    code = getattr(exc, "extendedresult", None)  # errors of apsw itself have none
    for kind, error in _ERRORS:
        if isinstance(exc, kind):
            return error(text, sqlite_code=code)
    return Database(text, sqlite_code=code)


_ERRORS: tuple[tuple[type[apsw.Error], type[StoreError]], ...] = (
    (apsw.BusyError, Timeout),
    (apsw.LockedError, Timeout),
    (apsw.InterruptError, Timeout),
    (apsw.CorruptError, Corrupt),
    (apsw.NotADBError, Corrupt),
    (apsw.ReadOnlyError, Unauthorized),
    (apsw.PermissionsError, Unauthorized),
    (apsw.AuthError, Unauthorized),
    (apsw.CantOpenError, Unavailable),
    (apsw.TooBigError, InvalidArgument),
    (apsw.ConnectionClosedError, StoreClosed),
)

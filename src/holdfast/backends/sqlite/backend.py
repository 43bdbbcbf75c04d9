"""A store on SQLite, put together."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from holdfast.backends.sqlite.backup import backup
from holdfast.backends.sqlite.cells import SqliteCells
from holdfast.backends.sqlite.clock import READ_OFFSET, MoveClock
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.backends.sqlite.migrate import migrate
from holdfast.clock import machine_us
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument, InvalidState, Unauthorized
from holdfast.facets.backend import Backend, Capability, Progress
from holdfast.facets.cells import Retention
from holdfast.runtime import Runtime
from holdfast.url import MEMORY

FILE_CAPABILITIES = frozenset(Capability) - {Capability.REMOTE}
MEMORY_CAPABILITIES = FILE_CAPABILITIES - {Capability.SHARED}


async def open_backend(path: str, config: StoreConfig, runtime: Runtime) -> Backend:
    """The open store; a missing file is created, readable by its owner only."""
    folder = None
    if path == MEMORY:
        # A private temporary file without syncs: SQLite's own in-memory databases
        # refuse write-ahead logging, and a writer there waits for every reader.
        folder = tempfile.mkdtemp(prefix="holdfast-")
        path = str(Path(folder) / "memory.db")
        config = msgspec.structs.replace(config, durability="cache")
    if config.vfs is None:
        path = _create(path, allowed=config.migrate)
    db = SqliteDb(path, config, runtime, folder=folder)
    backend = SqliteBackend(db, MEMORY_CAPABILITIES if folder else FILE_CAPABILITIES)
    try:
        await db.start()
        await migrate(db, allowed=config.migrate)
    except BaseException:
        await backend.close()
        raise
    return backend


class SqliteBackend:
    """See Backend."""

    engine = "sqlite"

    def __init__(self, db: SqliteDb, capabilities: frozenset[Capability]) -> None:
        self._db = db
        self.capabilities = capabilities
        self.cells = SqliteCells(db, Retention.of(db.config.history))

    async def pause(self) -> None:
        """See Backend."""
        await self._db.runtime.sleep(0)

    async def ping(self) -> None:
        """See Backend."""
        await self._db.fetch("SELECT 1", {})

    async def now_us(self) -> int:
        """See Backend."""
        ((offset,),) = await self._db.fetch(READ_OFFSET, {})
        return machine_us() + int(offset)

    async def move_clock(self, by_us: int) -> None:
        """See Backend."""
        await self._db.write(MoveClock(), [by_us])

    async def backup(self, path: str, progress: Progress | None) -> None:
        """See Backend."""
        self._db.check()
        await self._db.runtime.offload(
            lambda: backup(self._db.path, self._db.config, path, progress)
        )

    async def close(self) -> None:
        """See Backend."""
        await self._db.close()


def _create(path: str, *, allowed: bool) -> str:
    """Make the file before SQLite does, so that nobody else can read it, not for a moment.

    Returns its absolute path: connections are opened later too, and the process may chdir.
    """
    file = Path(path).absolute()
    if file.is_dir():
        raise InvalidArgument(f"SQLite {path!r}: is a folder, not a file")
    if not file.parent.is_dir():
        raise InvalidArgument(f"SQLite {path!r}: the folder {str(file.parent)!r} does not exist")
    if not allowed and not file.exists():
        raise InvalidState(
            f"SQLite {path!r}: does not exist; open it once with migrate=True, "
            "or run holdfast.migrate(url)"
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as exc:
        raise Unauthorized(f"SQLite {path!r}: cannot be created: {exc.strerror}") from exc
    return str(file)

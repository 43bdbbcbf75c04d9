"""Online backup: a consistent copy of the file while everybody goes on writing."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import apsw

from holdfast.backends.sqlite.connection import SqliteConnection, translate
from holdfast.config import StoreConfig
from holdfast.errors import Conflict, Database, InvalidArgument
from holdfast.facets.backend import Progress

_PAGES_PER_STEP = 2000


def backup(source: str, config: StoreConfig, target: str, progress: Progress | None) -> None:
    """Copy the store as it is now to a new file, which appears only when it is complete."""
    path = Path(target)
    if path.exists():
        raise Conflict(f"backup to {target!r}: the file exists already", path=target)
    if not path.parent.is_dir():
        raise InvalidArgument(f"backup to {target!r}: the folder does not exist")
    # A name of its own, so that two backups at once do not write into each other's file.
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    reader = SqliteConnection(source, config)
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _copy(reader, partial, progress)
        os.link(partial, path)  # unlike a rename it never replaces what is there
        _sync_folder(path.parent)
    except FileExistsError as exc:
        raise Conflict(f"backup to {target!r}: the file exists already", path=target) from exc
    except OSError as exc:
        raise Database(f"backup to {target!r}: {exc.strerror}") from exc
    except apsw.Error as exc:
        raise translate(exc, target) from exc
    finally:
        partial.unlink(missing_ok=True)
        reader.close()


def _copy(reader: SqliteConnection, partial: Path, progress: Progress | None) -> None:
    # An open read transaction pins one snapshot: without it every commit of another
    # connection would start the copy over.
    reader.run("BEGIN")
    reader.run("SELECT 1 FROM sqlite_schema LIMIT 1")
    copy = apsw.Connection(str(partial))
    try:
        with copy.backup("main", reader.raw, "main") as work:
            while not work.done:
                work.step(_PAGES_PER_STEP)
                if progress is not None:
                    progress(work.page_count - work.remaining, work.page_count)
    finally:
        copy.close()
    with partial.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    # The new name itself must survive a power loss too.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

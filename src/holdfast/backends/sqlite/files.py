"""The store's file as the file system sees it: where it is, who may read it, why not.

An existing file is only ever opened by SQLite: closing any other descriptor of it would
drop the locks that this process holds on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from holdfast.errors import (
    Corrupt,
    Database,
    InvalidArgument,
    InvalidState,
    StoreError,
    Unauthorized,
    Unavailable,
)

# SQLite's own limit is 512 with room for "-journal"; found by trying.
_MAX_PATH_BYTES = 504
# Names of the files beside a database: SQLite would take one for the other's.
_BESIDE = ("-wal", "-shm", "-journal")
_OS_ERRORS: dict[int | None, type[StoreError]] = {
    errno.EACCES: Unauthorized,
    errno.EPERM: Unauthorized,
    errno.EROFS: Unauthorized,
    errno.ENAMETOOLONG: InvalidArgument,
    errno.ELOOP: InvalidArgument,
    errno.ENOENT: InvalidArgument,
    errno.ENOTDIR: InvalidArgument,
    errno.EISDIR: InvalidArgument,
    errno.EMFILE: Unavailable,
    errno.ENFILE: Unavailable,
}


def prepare(path: str, *, create: bool) -> str:
    """The absolute path of the file, which is there: a missing one is made, for its owner only.

    Links are followed: the file that a link names may be the missing one. Absolute, because
    connections are opened later too, and the process may change its folder.
    """
    what = f"SQLite {shown(path)}"
    check_path(path, what)
    try:
        real = os.path.realpath(path)  # fails when the current folder is gone
        _require(check_path(real, what), what, create=create)
    except OSError as exc:
        raise refusal(exc, what) from exc
    return real


def check_path(path: str, what: str) -> str:
    """The path itself, when the system's calls can take it."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError as exc:
        raise InvalidArgument(f"{what}: the path is not UTF-8") from exc
    if b"\0" in encoded:
        raise InvalidArgument(f"{what}: the path holds a NUL")
    return path


def check_place(real: str, what: str) -> os.stat_result | None:
    """The file that is there, or None when one can be made there; refuse anything else."""
    size = len(real.encode())
    if real.endswith(_BESIDE):
        raise InvalidArgument(f"{what}: a name that ends in {', '.join(_BESIDE)} is SQLite's own")
    if size > _MAX_PATH_BYTES:
        raise InvalidArgument(f"{what}: the path has {size} bytes, SQLite takes {_MAX_PATH_BYTES}")
    try:
        found = Path(real).stat()
    except (FileNotFoundError, NotADirectoryError):
        _check_folder(str(Path(real).parent), what)
        return None
    if stat.S_ISDIR(found.st_mode):
        raise InvalidArgument(f"{what}: is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgument(f"{what}: is not a regular file")
    return found


def create_private(real: str) -> None:
    """Make the empty file, readable by its owner only from its first moment on."""
    if sys.platform == "linux":
        # No descriptor: were it closed after another thread has opened the new file, it would
        # take that thread's locks along.
        os.mknod(real, 0o600)
    else:
        os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def refusal(exc: OSError, what: str) -> StoreError:
    """Our error for the file system's."""
    return _OS_ERRORS.get(exc.errno, Database)(f"{what}: {exc.strerror}")


def no_right(path: str) -> str | None:
    """What we have no right to: one of the database's files, or their folder."""
    for name in (path, f"{path}-wal", f"{path}-shm"):
        if os.access(name, os.F_OK) and not os.access(name, os.R_OK | os.W_OK):
            return f"no right to read and write {name!r}"
    folder = str(Path(path).parent)
    if os.access(folder, os.F_OK) and not os.access(folder, os.W_OK | os.X_OK):
        return f"no right to write to {folder!r}"
    return None


def shown(path: str) -> str:
    """The path as a message shows it."""
    return repr(path) if len(path) <= _MAX_PATH_BYTES else f"{path[:60]!r}…"


def _require(real: str, what: str, *, create: bool) -> None:
    found = check_place(real, what)
    if found is None:
        if not create:
            raise InvalidState(
                f"{what}: does not exist; open it once with migrate=True, "
                "or run holdfast.migrate(url)"
            )
        with contextlib.suppress(FileExistsError):  # another process was faster
            create_private(real)
    elif found.st_size == 1:  # SQLite takes it for an empty database and writes over it
        raise Corrupt(f"{what}: file is not a database")


def _check_folder(folder: str, what: str) -> None:
    if not Path(folder).exists():
        hint = "; ~ is not expanded" if f"{os.sep}~" in folder else ""
        raise InvalidArgument(f"{what}: the folder {folder!r} does not exist{hint}")
    if not Path(folder).is_dir():
        raise InvalidArgument(f"{what}: {folder!r} is not a folder")

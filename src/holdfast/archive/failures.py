"""Errors of the file system, as errors of Holdfast."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from holdfast.errors import Database, InvalidArgument, NotFound, StoreError, Unauthorized

_BY_ERRNO: dict[int | None, type[StoreError]] = {
    errno.ENOENT: NotFound,
    errno.EACCES: Unauthorized,
    errno.EPERM: Unauthorized,
    errno.EROFS: Unauthorized,
    errno.EEXIST: InvalidArgument,
    errno.ENOTDIR: InvalidArgument,
    errno.EISDIR: InvalidArgument,
    errno.ENAMETOOLONG: InvalidArgument,
    errno.ELOOP: InvalidArgument,
}


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise an error of the file system that comes from inside as one of Holdfast's."""
    try:
        yield
    except OSError as exc:
        message = f"{what}: {exc.strerror or exc}"
        known = _BY_ERRNO.get(exc.errno)
        if known is not None:
            raise known(message) from exc
        # A full disk, above all: somebody will make room.
        raise Database(message, retryable=True) from exc

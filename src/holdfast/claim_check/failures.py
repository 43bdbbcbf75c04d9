"""Errors of the system, of fsspec and of what is below it, as errors of Holdfast.

The classes of the drivers below fsspec are known by their names, because a driver is imported
only by those who use it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from holdfast.errors import (
    Database,
    InvalidArgument,
    NotFound,
    StoreError,
    Timeout,
    Unauthorized,
    Unavailable,
)

_BY_CLASS: dict[str, type[StoreError]] = {
    "FileNotFoundError": NotFound,
    "PermissionError": Unauthorized,
    "TimeoutError": Timeout,
    "ConnectionError": Unavailable,  # Python's, and botocore's of the same name
    # botocore
    "NoCredentialsError": Unauthorized,
    "PartialCredentialsError": Unauthorized,
    "ConnectTimeoutError": Timeout,
    "ReadTimeoutError": Timeout,
    "HTTPClientError": Unavailable,
    "ParamValidationError": InvalidArgument,
    # aiohttp
    "ClientConnectionError": Unavailable,
}
_BY_ERRNO: dict[int | None, type[StoreError]] = {
    errno.EROFS: Unauthorized,
    errno.ENOTDIR: InvalidArgument,
    errno.EISDIR: InvalidArgument,
    errno.ENAMETOOLONG: InvalidArgument,
    errno.ELOOP: InvalidArgument,
    errno.EMFILE: Unavailable,
    errno.ENFILE: Unavailable,
    errno.EBUSY: Unavailable,  # s3fs: slow down
    getattr(errno, "EREMOTEIO", -1): Unavailable,  # s3fs, on Linux: an error inside the server
}


@contextlib.contextmanager
def translated(
    what: str, kind: type[Exception] = OSError, *, unknown: bool = False
) -> Iterator[None]:
    """Raise an error of this kind that comes from inside as one of Holdfast's about `what`.

    `unknown` is for a write whose answer may be lost: unless it was refused, it may have
    been done.
    """
    try:
        yield
    except StoreError:
        raise
    except kind as exc:
        ours = _ours(exc)
        lost = unknown and ours not in {NotFound, Unauthorized, InvalidArgument}
        raise ours(f"{what}: {_told(exc)}", outcome_unknown=lost) from exc


def _ours(exc: Exception) -> type[StoreError]:
    for ancestor in type(exc).__mro__:
        if ancestor.__name__ in _BY_CLASS:
            return _BY_CLASS[ancestor.__name__]
    return _BY_ERRNO.get(exc.errno, Database) if isinstance(exc, OSError) else Database


def _told(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__

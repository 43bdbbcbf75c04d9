"""The claim check for blocking code; every rule that both colours share."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from typing import Any, Protocol

from holdfast.claim_check.failures import translated
from holdfast.claim_check.place import BLOCK_BYTES, Place
from holdfast.claim_check.reader import buffered
from holdfast.claim_check.refs import parse, ref_of
from holdfast.clock import MICROSECONDS, Duration, duration_us, machine_us
from holdfast.errors import Corrupt, InvalidArgument, NotFound
from holdfast.url import redacted


class Readable(Protocol):
    """A binary file that is open for reading, or anything that reads like one."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many; b"" at the end."""


Source = str | os.PathLike[str] | Readable

PUT_TIMEOUT_SECS = 600
_LOOKS_LIKE_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class ClaimCheck:
    """Objects below a URL: a folder (`file:///…` or a path) or anything that fsspec reaches.

    `options` are fsspec's for that kind of URL, such as `key=` and `secret=` for S3. A folder
    is created, a bucket must exist. Threads may share one; so may processes that fork.
    `put_timeout` is how long a put to a server may take, a large file as a whole included.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        /,
        *,
        put_timeout: Duration = PUT_TIMEOUT_SECS,
        **options: Any,  # noqa: ANN401 - each driver has its own
    ) -> None:
        limit = duration_us(put_timeout, name="put_timeout") / MICROSECONDS
        if limit <= 0:
            raise InvalidArgument(f"put_timeout: must be above zero, found {put_timeout}")
        self._place, self._shown = _place(url, options, limit)

    def put(self, data: bytes | bytearray | memoryview) -> str:
        """Store the content and return the reference to it; it is durable when this returns.

        The same content again gives the same reference, and counts as new for `prune`.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"claim check: wanted bytes, found {type(data).__name__}")
        return str(self._place.put(bytes(data)))

    def put_file(self, source: Source) -> str:
        """Store what a file holds, from where it stands to its end, as `put` does.

        Only a few megabytes are in memory at a time. What reading an open file raises, other
        than an OSError, comes through; then nothing is stored.
        """
        if isinstance(source, str | os.PathLike):
            what = f"claim check: reading {os.fspath(source)!r}"
            with translated(what):
                file = open(source, "rb", buffering=0)  # noqa: PTH123, SIM115 - closed below
            with file:
                return str(self._place.put_blocks(_blocks(file, what)))
        if not hasattr(source, "read"):
            raise InvalidArgument(
                f"claim check: wanted a path or an open file, found {type(source).__name__}"
            )
        return str(self._place.put_blocks(_blocks(source, "claim check: reading the file")))

    def get(self, ref: str | bytes) -> bytes:
        """The content; NotFound when it is gone, Corrupt when it is not what was put."""
        wanted = parse(ref)
        data = self._place.read(wanted.digest)
        wanted.check(ref_of(data))
        return data

    def open(self, ref: str | bytes) -> io.BufferedReader:
        """The content as a binary file, for what is too large to be in memory at once.

        The last piece is handed out only when all of it was right: else Corrupt.
        """
        wanted = parse(ref)
        size = self._place.size(wanted.digest)
        if size is None:
            raise NotFound(f"{wanted}: no such object in {self._shown}")
        if size != wanted.length:
            raise Corrupt(f"{wanted}: found {size} bytes")
        return buffered(wanted, self._place.open(wanted.digest))

    def exists(self, ref: str | bytes) -> bool:
        """Whether an object of that name and length is there; its content is not read."""
        wanted = parse(ref)
        return self._place.size(wanted.digest) == wanted.length

    def delete(self, ref: str | bytes) -> bool:
        """Whether the object was there; now it is not.

        It is gone for everybody who put the same content. `prune` is the safer way.
        """
        return self._place.delete(parse(ref).digest)

    def prune(self, older_than: Duration) -> int:
        """How many objects were removed because nobody has put them for that long.

        Removes what writers that died left behind, too. Touches nothing that is not the claim
        check's. Ages are by the clock of the place and of this machine.
        """
        age = duration_us(older_than, name="older_than")
        if age < 0:
            raise InvalidArgument(f"older_than: wanted zero or more, found {older_than}")
        return self._place.prune(machine_us() - age)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"


def _place(
    url: str | os.PathLike[str], options: dict[str, Any], put_timeout: float
) -> tuple[Place, str]:
    """The place that the URL names, and the URL as it may be shown."""
    path = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise InvalidArgument(f"claim check: wanted a URL or a path, found {url!r}")
    scheme, separator, rest = path.partition("://")
    if isinstance(url, os.PathLike) or not separator:
        if isinstance(url, str) and _LOOKS_LIKE_A_URL.match(path):
            # Not shown: what lost its slashes may hold a password all the same.
            raise InvalidArgument("claim check: wanted a URL with :// or a path, found neither")
        return _folder(path, options), path
    shown = redacted(path)
    if scheme.lower() in {"file", "local"}:
        if not rest.startswith("/"):
            raise InvalidArgument(f"claim check: {shown!r}: wanted three slashes, as file:///path")
        return _folder(rest, options), shown
    if "::" in path:
        raise InvalidArgument(f"claim check: {shown!r}: chained URLs are not supported")
    from holdfast.claim_check.bucket import Bucket

    return Bucket(path, options, put_timeout), shown


def _folder(path: str, options: dict[str, Any]) -> Place:
    if options:
        raise InvalidArgument(f"claim check: a folder has no option {next(iter(options))!r}")
    from holdfast.claim_check.folder import Folder

    return Folder(path)


def _blocks(file: Any, what: str) -> Iterator[bytes]:  # noqa: ANN401 - whatever can read
    while True:
        with translated(what):
            block = file.read(BLOCK_BYTES)
        if not isinstance(block, bytes | bytearray | memoryview):
            raise InvalidArgument(f"{what}: wanted bytes, found {type(block).__name__}")
        if not block:
            return
        yield bytes(block)

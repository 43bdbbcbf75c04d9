"""Objects in whatever fsspec can reach: S3, Google Cloud Storage, Azure, memory, SFTP and so on.

On an object store a put is atomic and durable by itself. Elsewhere content goes to a partial name
first and is then moved, which is as atomic and as durable as that file system's move.

Reads ask for ranges and keep no file open: fsspec's memory files share one position among all
their readers. Listings are never cached: other processes put and delete too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.claim_check.failures import translated
from holdfast.claim_check.place import BLOCK_BYTES, partial_name
from holdfast.claim_check.refs import Meter, Ref, is_ours, ref_of
from holdfast.clock import to_us
from holdfast.errors import InvalidArgument, InvalidState
from holdfast.url import redacted

_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "oss", "oci", "tos"}
)
_IN_MEMORY_BYTES = 2 * BLOCK_BYTES
_MOST_PARTS = 10_000  # of one upload to S3


class Bucket:
    """A place behind fsspec."""

    def __init__(self, url: str, options: dict[str, Any], put_timeout: float) -> None:
        self._put_timeout = put_timeout
        self._url = url
        self._options = options
        self._what = f"claim check at {redacted(url)}"
        self._pid = 0
        self._base = ""
        self._scheme = url.partition("://")[0].lower()
        self._atomic = self._scheme in _OBJECT_STORES
        fs = self._fs()
        if not self._atomic:
            with self._translated():
                fs.makedirs(self._base, exist_ok=True)

    def put(self, data: bytes) -> Ref:
        """As Place says."""
        ref = ref_of(data)
        self._store(ref, lambda path: self._send("pipe_file", path, data))
        return ref

    def put_blocks(self, blocks: Iterable[bytes]) -> Ref:
        """As Place says.

        What is large waits in a temporary file of this machine: the name has to be known before
        the first byte is sent.
        """
        meter = Meter()
        with translated(self._what), tempfile.NamedTemporaryFile() as spool:
            for block in blocks:
                spool.write(meter.add(block))
            spool.flush()
            ref = meter.ref()
            if ref.length <= _IN_MEMORY_BYTES:
                spool.seek(0)
                return self.put(spool.read())
            parts = self._parts(ref.length)
            self._store(ref, lambda path: self._send("put_file", spool.name, path, **parts))
        return ref

    def read(self, name: str) -> bytes:
        """As Place says."""
        with self._translated(name):
            return bytes(self._fs().cat_file(self._path(name)))

    def open(self, name: str) -> _Ranges:
        """As Place says."""
        return _Ranges(lambda start, end: self._range(name, start, end))

    def size(self, name: str) -> int | None:
        """As Place says."""
        with self._translated(name):
            try:
                return int(self._fs().info(self._path(name))["size"])
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> bool:
        """As Place says; of two who delete at once, both may hear True."""
        if self.size(name) is None:
            return False
        with self._translated(name, unknown=True):
            return _removed(self._fs(), self._path(name))

    def prune(self, before_us: int) -> int:
        """As Place says."""
        gone = 0
        with self._translated(unknown=True):
            fs = self._fs()
            try:
                entries = fs.ls(self._base, detail=True)
            except FileNotFoundError:
                return 0
            for entry in entries:
                path = entry["name"]
                if not is_ours(path.rpartition("/")[2]):
                    continue
                listed_at = entry.get("LastModified")  # S3 tells at once; others are asked
                if listed_at is not None and to_us(listed_at) >= before_us:
                    continue
                # Asked just before, because it may have been put again since the listing.
                with contextlib.suppress(FileNotFoundError):
                    if to_us(fs.modified(path)) < before_us:
                        gone += _removed(fs, path)
        return gone

    def _store(self, ref: Ref, send: Callable[[str], object]) -> None:
        with self._translated(ref.digest, unknown=True):
            fs = self._fs()
            if self._atomic:
                send(self._path(ref.digest))
                return
            partial = self._path(partial_name())
            try:
                send(partial)
                fs.mv(partial, self._path(ref.digest))
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    fs.rm_file(partial)
                raise

    def _send(self, call: str, *args: object, **kwargs: object) -> None:
        """Make the call of fsspec's, within the time for a put where it can be cancelled.

        That is where fsspec has a loop of its own, as for S3. There the driver would wait
        without end for a silent server's leave to send.
        """
        fs = self._fs()
        if not fs.async_impl:
            getattr(fs, call)(*args, **kwargs)
            return
        from fsspec.asyn import sync

        async def limited() -> None:
            async with asyncio.timeout(self._put_timeout):
                await getattr(fs, f"_{call}")(*args, **kwargs)

        sync(fs.loop, limited)

    def _parts(self, length: int) -> dict[str, int]:
        """How a large upload is cut: by itself s3fs has 500 MB of it in memory."""
        if self._scheme not in {"s3", "s3a"}:
            return {}
        return {"chunksize": max(_IN_MEMORY_BYTES, -(-length // _MOST_PARTS)), "max_concurrency": 2}

    def _range(self, name: str, start: int, end: int) -> bytes:
        with self._translated(name):
            return bytes(self._fs().cat_file(self._path(name), start=start, end=end))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _fs(self) -> Any:  # noqa: ANN401 - fsspec is not typed
        """The file system; another one after a fork, since its connections are of one process.

        fsspec keeps file systems by their options and returns the one that exists.
        """
        if self._pid != os.getpid():
            self._found, base = _opened(self._url, self._options, self._what)
            self._base = base.rstrip("/")
            self._pid = os.getpid()
        return self._found

    @contextlib.contextmanager
    def _translated(self, name: str = "", *, unknown: bool = False) -> Iterator[None]:
        what = f"{self._what}: object {name}" if name else self._what
        with translated(what, Exception, unknown=unknown):  # implementations raise anything
            yield


class _Ranges:
    def __init__(self, fetch: Callable[[int, int], bytes]) -> None:
        self._fetch = fetch

    def fetch(self, start: int, size: int) -> bytes:
        return self._fetch(start, start + size)

    def close(self) -> None:
        """Nothing is open between two ranges."""


def _removed(fs: Any, path: str) -> bool:  # noqa: ANN401 - fsspec is not typed
    try:
        fs.rm_file(path)
    except (FileNotFoundError, KeyError):  # KeyError: of fsspec's memory
        return False
    return True


def _opened(url: str, options: dict[str, Any], what: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as exc:
        raise InvalidState(
            f"{what}: needs fsspec ({exc}): pip install 'holdfast[claimcheck]'"
        ) from exc
    try:
        fs, base = url_to_fs(url, use_listings_cache=False, **options)
    except ImportError as exc:
        raise InvalidState(
            f"{what}: needs one more package ({exc}), as s3:// needs s3fs: pip install s3fs"
        ) from exc
    except (ValueError, TypeError) as exc:  # an unknown scheme, or options that are not its own
        raise InvalidArgument(f"{what}: {exc}") from exc
    return fs, base

"""The claim check for asyncio: the blocking one on threads, so that the loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator
from typing import Any

from holdfast.claim_check.claims import PUT_TIMEOUT_SECS, ClaimCheck, Source
from holdfast.claim_check.place import BLOCK_BYTES
from holdfast.clock import Duration


class AsyncClaimCheck:
    """As ClaimCheck, awaited. Any number of tasks, and several loops, may share one.

    A call that is cancelled may still be done: it runs to its end on its thread.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        /,
        *,
        put_timeout: Duration = PUT_TIMEOUT_SECS,
        **options: Any,  # noqa: ANN401 - each driver has its own
    ) -> None:
        self._claims = ClaimCheck(url, put_timeout=put_timeout, **options)

    async def put(self, data: bytes | bytearray | memoryview) -> str:
        """Store the content and return the reference to it, as ClaimCheck.put."""
        return await asyncio.to_thread(self._claims.put, data)

    async def put_file(self, source: Source) -> str:
        """Store what a file holds, as ClaimCheck.put_file; it is read on a thread."""
        return await asyncio.to_thread(self._claims.put_file, source)

    async def get(self, ref: str | bytes) -> bytes:
        """The content, checked, as ClaimCheck.get."""
        return await asyncio.to_thread(self._claims.get, ref)

    @contextlib.asynccontextmanager
    async def open(self, ref: str | bytes) -> AsyncIterator[AsyncReader]:
        """The content piece by piece, as ClaimCheck.open: `async with claims.open(ref) as …`."""
        file = await asyncio.to_thread(self._claims.open, ref)
        try:
            yield AsyncReader(file)
        finally:
            await asyncio.to_thread(file.close)

    async def exists(self, ref: str | bytes) -> bool:
        """Whether an object of that name and length is there, as ClaimCheck.exists."""
        return await asyncio.to_thread(self._claims.exists, ref)

    async def delete(self, ref: str | bytes) -> bool:
        """Whether the object was there, for anybody; now it is not. As ClaimCheck.delete."""
        return await asyncio.to_thread(self._claims.delete, ref)

    async def prune(self, older_than: Duration) -> int:
        """How many objects were removed because of their age, as ClaimCheck.prune."""
        return await asyncio.to_thread(self._claims.prune, older_than)

    def __repr__(self) -> str:
        return f"Async{self._claims!r}"


class AsyncReader:
    """The content of one object: `await read(size)`, or `async for block in reader`."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file

    async def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size` of them; all that are left without one; b"" at the end."""
        return await asyncio.to_thread(self._file.read, size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while block := await self.read(BLOCK_BYTES):
            yield block

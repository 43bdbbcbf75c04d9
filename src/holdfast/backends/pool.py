"""The connections of a store to one server.

Small on purpose. Calls are coalesced, so a store needs few connections; they
are made when first needed, and an error tells the server's own reason at once
instead of waiting for a background worker. When one connection is lost the idle
ones are dropped too: after a restart of the server they are all dead.

An interrupt (Ctrl-C) can hit a thread anywhere. Places and connections have no
books that could then be wrong: an object that nobody holds any more is free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from holdfast.errors import StoreError, Timeout
from holdfast.runtime import Place, Runtime


class Pooled(Protocol):
    """A connection, whatever is said on it."""

    async def abandon(self) -> None:
        """Free the connection of a caller that gave up in the middle."""

    async def close(self) -> None:
        """Free the connection."""

    @property
    def usable(self) -> bool:
        """True while nothing is in flight or half done on it."""


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """Up to `size` connections, the most recently used first."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[C]],
        runtime: Runtime,
        where: str,
        *,
        size: int,
        patience: float,
    ) -> None:
        self.where = where
        self.size = size
        self._connect = connect
        self._patience = patience
        self._places = runtime.limiter(size)
        self._idle: list[C] = []
        self._closed = False

    def at_hand(self) -> Lease[C] | None:
        """The same as `take`, if there is an idle connection: nothing has to be awaited then."""
        place = self._places.at_once()
        if place is None:
            return None
        try:
            # pop() on an empty list would race between threads if it were tested first
            return Lease(self, place, self._idle.pop())
        except IndexError:
            place.release()
            return None

    async def take(self) -> Lease[C]:
        """A connection on loan; it comes back at the end of an `async with`."""
        place = await self._places.acquire(self._patience)
        if place is None:
            raise Timeout(
                f"{self.where}: all {self.size} connections were in use for "
                f"{self._patience:g} s; pool_size sets how many there are"
            )
        try:
            return Lease(self, place, await self._connection())
        except BaseException:
            place.release()
            raise

    def keep(self, connection: C) -> bool:
        """Keep the connection for the next caller if it is as it was; else see `take_back`."""
        if self._closed or not connection.usable:
            return False
        self._idle.append(connection)
        return True

    async def take_back(self, connection: C, *, trusted: bool) -> None:
        """Keep the connection for the next caller, or close it when it cannot be used again."""
        lost = not connection.usable
        if not trusted:
            await connection.abandon()
        elif lost:
            await connection.close()
        else:
            self._idle.append(connection)
        if self._closed or (trusted and lost):
            await self._drop_idle()

    async def close(self) -> None:
        """Close the idle connections now and the others when they come back."""
        self._closed = True
        await self._drop_idle()

    async def _connection(self) -> C:
        try:
            return self._idle.pop()
        except IndexError:
            return await self._connect()

    async def _drop_idle(self) -> None:
        while self._idle:
            try:
                await self._idle.pop().close()
            except (IndexError, StoreError):
                continue


class Lease(Generic[C]):
    """A connection, and the place in the pool that it takes."""

    def __init__(self, pool: Pool[C], place: Place, connection: C) -> None:
        self._pool = pool
        self._place = place
        self.connection = connection

    async def __aenter__(self) -> C:
        return self.connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end(error)

    def give_back(self) -> bool:
        """End at once what went well; False if there is more to it, for `end` to do."""
        if not self._pool.keep(self.connection):
            return False
        self._place.release()
        return True

    async def end(self, error: BaseException | None) -> None:
        """Give the connection back after that error, or none."""
        try:
            # Whoever was cancelled or interrupted may have left it half way.
            trusted = error is None or isinstance(error, StoreError)
            await self._pool.take_back(self.connection, trusted=trusted)
        finally:
            self._place.release()

    def release(self) -> None:
        """Give the place back; the connection is the caller's to free."""
        self._place.release()

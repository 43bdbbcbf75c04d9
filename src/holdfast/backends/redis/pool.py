"""The connections to one server.

Calls are coalesced, so a store needs few; they are made when first needed. When one is lost
the idle ones are dropped too: after a restart of the server they are all dead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from holdfast.backends.redis.connection import RedisConnection
from holdfast.errors import StoreError, Timeout
from holdfast.runtime import Place, Runtime

Connect = Callable[[], Awaitable[RedisConnection]]


class Pool:
    """Up to `size` connections, the most recently used first."""

    def __init__(
        self, connect: Connect, runtime: Runtime, where: str, *, size: int, patience: float
    ) -> None:
        self.where = where
        self._connect = connect
        self._size = size
        self._patience = patience
        self._places = runtime.limiter(size)
        self._idle: list[RedisConnection] = []
        self._closed = False

    def at_hand(self) -> Lease | None:
        """The same as `take`, if there is an idle connection: nothing has to be awaited then."""
        place = self._places.at_once()
        if place is None:
            return None
        try:
            return Lease(self, place, self._idle.pop())
        except IndexError:
            place.release()
            return None

    async def take(self) -> Lease:
        """A connection on loan; it comes back at the end of an `async with`."""
        place = await self._places.acquire(self._patience)
        if place is None:
            raise Timeout(
                f"{self.where}: all {self._size} connections were in use for "
                f"{self._patience:g} s; pool_size sets how many there are"
            )
        try:
            # pop() on an empty list would race between threads if it were tested first
            return Lease(self, place, self._idle.pop())
        except IndexError:
            pass
        try:
            return Lease(self, place, await self._connect())
        except BaseException:
            place.release()
            raise

    def keep(self, connection: RedisConnection) -> bool:
        """Keep the connection for the next caller if it is as it was; else see `take_back`."""
        if not connection.usable:
            return False
        self._idle.append(connection)
        return not self._closed

    async def take_back(self, connection: RedisConnection, *, trusted: bool) -> None:
        """Close the connection that cannot be used again, or is not needed any more."""
        if not connection.usable:
            await (connection.close() if trusted else connection.abandon())
        if self._closed or trusted:
            await self._drop_idle()

    async def close(self) -> None:
        """Close the idle connections now and the others when they come back."""
        self._closed = True
        await self._drop_idle()

    async def _drop_idle(self) -> None:
        while self._idle:
            try:
                await self._idle.pop().close()
            except (IndexError, StoreError):
                continue


class Lease:
    """A connection, and the place in the pool that it takes."""

    def __init__(self, pool: Pool, place: Place, connection: RedisConnection) -> None:
        self._pool = pool
        self._place = place
        self.connection = connection

    async def __aenter__(self) -> RedisConnection:
        return self.connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.give_back():
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

"""The connections of one store.

Small on purpose. Calls are coalesced, so a store needs few connections; they
are made when first needed, and an error tells the server's own reason at once
instead of waiting for a background worker. When one connection is lost the idle
ones are dropped too: after a restart of the server they are all dead.
"""

from __future__ import annotations

from holdfast.backends.postgres.connection import Connector, PgConnection
from holdfast.config import StoreConfig, seconds
from holdfast.errors import StoreError, Timeout
from holdfast.runtime import Runtime


class Pool:
    """Up to `pool_size` connections, the most recently used first."""

    def __init__(self, connector: Connector, config: StoreConfig, runtime: Runtime) -> None:
        self.where = connector.where
        self._connector = connector
        self._size = config.pool_size
        self._patience = seconds(config.connect_timeout)
        self._places = runtime.limiter(config.pool_size)
        self._idle: list[PgConnection] = []
        self._closed = False

    async def take(self) -> PgConnection:
        """A connection that is the caller's until it is given back."""
        if not await self._places.acquire(self._patience):
            raise Timeout(
                f"{self.where}: all {self._size} connections were in use for "
                f"{self._patience:g} s; pool_size sets how many there are"
            )
        try:
            # pop() on an empty list would race between threads if it were tested first
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return await self._connector.connect()
        except BaseException:
            self._places.release()
            raise

    async def give_back(self, connection: PgConnection) -> None:
        """Return a connection, whatever became of it."""
        try:
            if not connection.usable or self._closed:
                await connection.close()
                if not self._closed:
                    await self._drop_idle()
            else:
                self._idle.append(connection)
        finally:
            self._places.release()

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

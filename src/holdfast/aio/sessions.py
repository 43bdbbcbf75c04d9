"""Sessions of cells: reads of one moment, and writes that hold only if nothing changed.

    async with store.cells.session() as s:
        balance = await s.get("alice")
        await s.set("alice", balance - 10)
        await s.set("bob", await s.get("bob") + 10)

Nobody waits for a session: what others changed meanwhile is a Conflict at its end.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.facets.backend import OpenSession

if TYPE_CHECKING:
    from holdfast.aio.cells import AsyncCells


class AsyncCellsSession:
    """The operations of cells, in one session; made by `cells.session()`.

    All reads see one moment, the first one's, with the session's own writes on top. The end of
    `async with` commits, an exception does nothing; without `async with`, call `commit`.
    """

    def __init__(self, cells: AsyncCells, opened: OpenSession) -> None:
        self._opened = opened
        self._ended = False
        # As they are on the cells themselves: same signatures, same checks.
        self.init = cells.init
        self.get = cells.get
        self.get_many = cells.get_many
        self.get_versioned = cells.get_versioned
        self.get_at = cells.get_at
        self.getv = cells.getv
        self.set = cells.set
        self.set_many = cells.set_many
        self.cas = cells.cas
        self.delete = cells.delete
        self.list = cells.list

    async def commit(self) -> dict[str, int]:
        """The new version of each cell that was set, all written in one commit.

        Conflict, and nothing is written, if others changed anything that was read or written
        here: values, absence, lists. It is retryable and names the cells as `cells`.
        """
        self._ended = True
        return await self._opened.commit()

    async def rollback(self) -> None:
        """Leave nothing behind."""
        self._ended = True
        await self._opened.rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None:
            await self.commit()
        else:
            await self.rollback()

"""Faults of feeds for the machine to find: a change that is not told, one that is told twice."""

from __future__ import annotations

from typing import Any

from holdfast import CellChange
from tests.machine.planted import Planted


class _Told:
    """A watch that counts the changes of what it wraps."""

    def __init__(self, watch: Any) -> None:  # noqa: ANN401 - of either colour
        self.watch = watch
        self.count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a watch has
        return getattr(self.watch, name)

    async def read(self, timeout: float) -> object:  # noqa: ASYNC109 - as a watch has it
        change = await self.watch.next(timeout=timeout)
        self.count += isinstance(change, CellChange)
        return change


class _Drops(_Told):
    async def next(self, timeout: float) -> object:  # noqa: ASYNC109 - as a watch has it
        change = await self.read(timeout)
        return await self.read(timeout) if self.count == 4 else change


class _Doubles(_Told):
    last: object = None

    async def next(self, timeout: float) -> object:  # noqa: ASYNC109 - as a watch has it
        again, self.last = self.last, None
        if again is not None:
            return again
        change = await self.read(timeout)
        if self.count == 4:
            self.last, self.count = change, 0
        return change


class AFeedDropsAChange(Planted):
    def watch(self, *, after: str | None = None) -> Any:  # noqa: ANN401 - a watch, nearly
        return _Drops(self.cells.watch(after=after))


class AFeedDoublesAChange(Planted):
    def watch(self, *, after: str | None = None) -> Any:  # noqa: ANN401 - a watch, nearly
        return _Doubles(self.cells.watch(after=after))


FEED_FAULTS: list[type[Planted]] = [AFeedDropsAChange, AFeedDoublesAChange]

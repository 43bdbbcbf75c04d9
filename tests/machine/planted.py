"""Faults for the machine to find: each stands between the machine and the real cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast import AsyncStore, Cell


class Planted:
    """The cells as they are; a fault changes one method."""

    def __init__(self, store: AsyncStore, namespace: str) -> None:
        self.cells = store.namespace(namespace).cells

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the cells have
        return getattr(self.cells, name)


class CasIgnoresTheVersionNowAndThen(Planted):
    async def cas(
        self, name: str, expected: int | None, value: object, *, op_id: UUID | None = None
    ) -> int | None:
        if isinstance(value, int):
            return await self.cells.set(name, value, op_id=op_id)
        return await self.cells.cas(name, expected, value, op_id=op_id)


class CasNoneOverwrites(Planted):
    async def cas(
        self, name: str, expected: int | None, value: object, *, op_id: UUID | None = None
    ) -> int | None:
        if expected is None:
            return await self.cells.set(name, value, op_id=op_id)
        return await self.cells.cas(name, expected, value, op_id=op_id)


class OperationIdsAreForgotten(Planted):
    async def set(self, name: str, value: object, *, op_id: UUID | None = None) -> int:
        del op_id
        return await self.cells.set(name, value)


class NamespacesAreMixed(Planted):
    def __init__(self, store: AsyncStore, namespace: str) -> None:
        super().__init__(store, namespace.rstrip("%"))


class SetManyLosesItsLastItem(Planted):
    async def set_many(
        self, values: Mapping[str, object], *, op_id: UUID | None = None
    ) -> dict[str, int]:
        kept = dict(list(values.items())[:-1])
        return dict.fromkeys(values, 1) | await self.cells.set_many(kept, op_id=op_id)


class ListDropsAName(Planted):
    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[str]:
        names = await self.cells.list(prefix, after=after, limit=limit)
        return names[:-1] if len(names) > 2 else names


class HistoryIsOldestFirst(Planted):
    async def getv(self, name: str, limit: int | None = None) -> list[Cell]:
        return (await self.cells.getv(name, limit))[::-1]


class GetAtIgnoresTheInstant(Planted):
    async def get_at(self, name: str, when: object) -> Cell | None:
        del when
        return await self.cells.get_versioned(name)


class TrueComesBackAsOne(Planted):
    async def get(self, name: str, default: object = None) -> object:
        value = await self.cells.get(name, default)
        return 1 if value is True else value


class DeletedCellsAreNull(Planted):
    async def delete(self, name: str, *, op_id: UUID | None = None) -> bool:
        if await self.cells.get_versioned(name) is None:
            return False
        return await self.cells.set(name, None, op_id=op_id) > 0


FAULTS: list[type[Planted]] = [
    CasIgnoresTheVersionNowAndThen,
    CasNoneOverwrites,
    OperationIdsAreForgotten,
    NamespacesAreMixed,
    SetManyLosesItsLastItem,
    ListDropsAName,
    HistoryIsOldestFirst,
    GetAtIgnoresTheInstant,
    TrueComesBackAsOne,
    DeletedCellsAreNull,
]

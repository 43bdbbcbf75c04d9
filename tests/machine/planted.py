"""Faults for the machine to find: each stands between the machine and the real cells."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast import AsyncStore, Branch, Cell, MergeResult, NotFound
from holdfast.facets.branches import Strategy


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


class ABranchReadsMain(Planted):
    def on(self, branch: str) -> Any:  # noqa: ANN401 - the cells of a branch, or so they say
        real = self.cells.on(branch)
        cells = Planted.__new__(Planted)
        cells.cells = real
        cells.get = self.cells.get  # type: ignore[attr-defined]
        return cells


class PlantedBranches:
    """The branches as they are; a fault changes one method."""

    def __init__(self, store: AsyncStore, namespace: str) -> None:
        self.store = store.namespace(namespace)
        self.branches = self.store.branches

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever branches have
        return getattr(self.branches, name)


class ForksAreAlwaysOfMain(PlantedBranches):
    async def fork(self, name: str, *, source: str, op_id: UUID | None = None) -> Branch:
        made = await self.branches.fork(name, source="main", op_id=op_id)
        return Branch(made.name, source, made.fork_commit, made.created_at)


class MergesOverwriteWithoutAsking(PlantedBranches):
    async def merge(self, source: str, target: str, *, strategy: str) -> MergeResult:
        del strategy
        return await self.branches.merge(source, target, strategy="source_wins")


class MergesForgetDeletes(PlantedBranches):
    async def merge(self, source: str, target: str, *, strategy: Strategy) -> MergeResult:
        cells = self.store.cells.on(target)
        with contextlib.suppress(NotFound):
            before = {name: await cells.get(name) for name in await cells.list()}
        result = await self.branches.merge(source, target, strategy=strategy)
        for name in result.deleted:
            await cells.set(name, before[name])
        return result


class MergesWriteTwice(PlantedBranches):
    async def merge(self, source: str, target: str, *, strategy: Strategy) -> MergeResult:
        result = await self.branches.merge(source, target, strategy=strategy)
        if result.merged:
            name = min(result.merged)
            again = self.store.cells.on(target)
            await again.set(name, await again.get(name))
        return result


BRANCH_FAULTS: list[type[PlantedBranches]] = [
    ForksAreAlwaysOfMain,
    MergesOverwriteWithoutAsking,
    MergesForgetDeletes,
    MergesWriteTwice,
]

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
    ABranchReadsMain,
]

"""Branches of the cells of a namespace: fork, look at the difference, merge.

    await store.branches.fork("trial")
    trial = store.cells.on("trial")
    await trial.set("limit", 20)                    # main does not see it
    await store.branches.diff("trial", "main")      # [Change("limit", "source", 2, 1)]
    await store.branches.merge("trial")             # now it does

A fork copies nothing and takes the same for ten cells and for ten million. A
branch sees its own versions, and behind them what its source held when it was
forked; nothing that happens to the source later changes that.
"""

from __future__ import annotations

import logging
from uuid import UUID

from holdfast.errors import Conflict, InvalidArgument, InvalidState, StoreError
from holdfast.facets.backend import Backend, Capability, require
from holdfast.facets.branches import (
    Branch,
    Change,
    Comparison,
    Difference,
    MergeResult,
    MergeWrite,
    Operation,
    Strategy,
    check_branch_name,
    check_strategy,
    merge_write,
)
from holdfast.facets.cells import MAIN, MAX_COMMIT_BYTES
from holdfast.facets.names import check_name, operation_id

_log = logging.getLogger("holdfast.branches")

_PAGE = 1000
_COMPARE_PAGE = 200  # cells whose values are held on three sides at once
_TRIES = 20
_NAMED = 20  # cells that a conflict's message names; the error carries them all

# Inside the class, `list` is the method.
BranchList = list[Branch]
Changes = list[Change]
Writes = list[MergeWrite]


class AsyncBranches:
    """The branches of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._branches = backend.branches
        self._namespace = namespace

    async def fork(
        self, name: str, *, source: str = MAIN, op_id: UUID | str | None = None
    ) -> Branch:
        """The new branch: the source's cells as they are now, and from now on apart from it.

        Conflict when there is a branch of that name. InvalidState when the source is 16 forks
        away from `main`, the most that reads go through.
        """
        require(self._backend, Capability.BRANCHES)
        check_branch_name(name)
        check_name(source, what="source")
        operation = Operation(operation_id(op_id), op_id is not None)
        return await self._branches.fork(self._namespace, name, source, operation)

    async def list(self) -> BranchList:
        """All branches by name, in byte order. `main` is not among them: it always is."""
        require(self._backend, Capability.BRANCHES)
        branches: BranchList = []
        while True:
            after = branches[-1].name if branches else ""
            page = await self._branches.page(self._namespace, after=after, limit=_PAGE)
            branches.extend(page)
            if len(page) < _PAGE:
                return branches
            await self._backend.pause()

    async def delete(self, name: str, *, op_id: UUID | str | None = None) -> bool:
        """True if there was such a branch. Branches that were forked from it see what they saw.

        Its versions are removed when its last child is gone, in short transactions; if that fails,
        by the next delete. A new branch of the same name shares nothing with it.
        """
        require(self._backend, Capability.BRANCHES)
        check_name(name, what="branch name")
        if name == MAIN:
            raise InvalidState(f"branch {MAIN!r}: it cannot be deleted", branch=MAIN)
        operation = Operation(operation_id(op_id), op_id is not None)
        deleted = await self._branches.delete(self._namespace, name, operation)
        try:
            while await self._branches.purge(self._namespace):
                await self._backend.pause()
        except StoreError as exc:
            # What was asked for is done, and no repeat would know that any more.
            _log.warning("branch %r: the next delete must free what is left: %s", name, exc)
        return deleted

    async def diff(self, source: str, target: str = MAIN) -> Changes:
        """The cells whose values differ between the two, by name, and which side changed them.

        Read in pages: what is written meanwhile may or may not be in it.
        """
        self._check_sides(source, target)
        for _ in range(_TRIES):
            comparison = await self._branches.compare(self._namespace, source, target)
            changes = await self._changes(comparison)
            # Until now all that was compared was there, if both branches and their base still are.
            if await self._branches.compare(self._namespace, source, target) == comparison:
                return changes
            await self._backend.pause()
        raise Conflict(
            f"diff of {source!r} and {target!r}: they kept being merged or replaced", retryable=True
        )

    async def merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        strategy: Strategy = "strict",
        op_id: UUID | str | None = None,
    ) -> MergeResult:
        """What the merge wrote to the target, in one atomic commit.

        Both sides are compared with what they held at their last merge, or where they parted.
        What only the source changed, deletes included, is written; what only the target changed
        stays. A cell that both changed to different values is a conflict: "strict" raises
        Conflict with the names as `cells`, and nothing is written; else the named side wins.
        """
        self._check_sides(source, target)
        check_strategy(strategy)
        operation = Operation(operation_id(op_id), op_id is not None)
        for _ in range(_TRIES):
            begun = await self._branches.begin_merge(self._namespace, source, target, operation)
            if isinstance(begun, MergeResult):
                return begun
            writes = await self._decide(begun, source, target, strategy)
            if await self._branches.end_merge(begun, writes, operation):
                return _result(writes)
            await self._backend.pause()
        raise Conflict(
            f"merge of {source!r} into {target!r}: the target's cells kept changing",
            retryable=True,
            cells=[],
        )

    async def _changes(self, comparison: Comparison) -> Changes:
        changes: Changes = []
        after: str | None = ""
        while after is not None:
            page, after = await self._branches.differences(
                comparison, target_too=True, after=after, limit=_COMPARE_PAGE
            )
            changes.extend(change for item in page for change in _changed(item))
            await self._backend.pause()
        return changes

    async def _decide(
        self, comparison: Comparison, source: str, target: str, strategy: Strategy
    ) -> Writes:
        """What to do about every cell that the source has changed."""
        writes: Writes = []
        conflicts: list[str] = []
        size = 0
        after: str | None = ""
        while after is not None:
            page, after = await self._branches.differences(
                comparison, target_too=False, after=after, limit=_COMPARE_PAGE
            )
            for item in page:
                if item.source.payload == item.base.payload:
                    continue
                write = merge_write(item, source_wins=strategy == "source_wins")
                if strategy == "strict" and item.kind == "both":
                    conflicts.append(item.name)
                if not write.write:
                    write = write._replace(payload=None)
                writes.append(write)
                size += len(write.payload or "")
            if size > MAX_COMMIT_BYTES:
                raise InvalidArgument(
                    f"merge of {source!r} into {target!r}: values of more than "
                    f"{MAX_COMMIT_BYTES} bytes, which is the most that fits into one commit"
                )
            await self._backend.pause()
        if conflicts:
            raise _conflict(source, target, conflicts)
        return writes

    def _check_sides(self, source: str, target: str) -> None:
        require(self._backend, Capability.BRANCHES)
        check_name(source, what="source")
        check_name(target, what="target")
        if source == target:
            raise InvalidArgument(f"source and target are the same branch, {source!r}")


def _changed(item: Difference) -> list[Change]:
    kind = item.kind
    if kind is None:
        return []
    versions = (None if side.payload is None else side.version for side in item[2:])
    return [Change(item.name, kind, *versions)]


def _result(writes: Writes) -> MergeResult:
    done = [write for write in writes if write.write]
    return MergeResult(
        merged={write.name: write.version for write in done if write.payload is not None},
        deleted=[write.name for write in done if write.payload is None],
    )


def _conflict(source: str, target: str, cells: list[str]) -> Conflict:
    named = ", ".join(map(repr, cells[:_NAMED])) + (", …" if len(cells) > _NAMED else "")
    return Conflict(
        f"merge of {source!r} into {target!r}: {len(cells)} cells changed on both sides: {named}",
        cells=cells,
    )

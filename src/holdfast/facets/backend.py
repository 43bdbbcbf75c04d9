"""The contract between the public API and an engine, and what an engine says about itself."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from holdfast.errors import Unsupported
from holdfast.facets.branches import BranchesBackend
from holdfast.facets.cells import CellsBackend


class Capability(StrEnum):
    """An ability that an engine has or lacks. The value is `facet: ability`, for people.

    A call that needs a missing one raises Unsupported at once.
    """

    SHARED = "store: several processes may open it"
    REMOTE = "store: several machines may open it"
    BACKUP = "store: online backup by the library"
    MOVABLE_CLOCK = "store: tests can move the clock"
    CELLS = "cells: init, get, set, cas, delete, list"
    CELLS_ATOMIC = "cells: set_many is one atomic commit"
    CELLS_HISTORY = "cells: getv, get_at and retention"
    BRANCHES = "cells: branches, fork, diff and merge"


Progress = Callable[[int, int], None]
"""Called with pages done and pages in all."""


def require(backend: Backend, capability: Capability) -> None:
    """Raise Unsupported when the engine lacks the ability."""
    if capability not in backend.capabilities:
        raise Unsupported(
            f"{backend.engine} lacks the ability '{capability.value}'",
            engine=backend.engine,
            capability=capability.name,
        )


class Backend(Protocol):
    """One open store on some engine."""

    @property
    def engine(self) -> str:
        """The engine's name, for people."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store can do."""

    @property
    def cells(self) -> CellsBackend:
        """The engine's cells."""

    @property
    def branches(self) -> BranchesBackend:
        """The engine's branches."""

    async def pause(self) -> None:
        """Let others run: between the pages of a long scan."""

    async def ping(self) -> None:
        """Return when the store answers; raise what stands in the way."""

    async def now_us(self) -> int:
        """The store's clock."""

    async def move_clock(self, by_us: int) -> None:
        """Shift the store's clock for everyone who uses it. For tests."""

    async def backup(self, path: str, progress: Progress | None) -> None:
        """Write a consistent copy of the store, as of now, to a new file."""

    async def close(self) -> None:
        """Finish what is in flight and free everything; every call returns when that is done."""

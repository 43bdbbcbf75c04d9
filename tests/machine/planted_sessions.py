"""Faults of sessions for the machine to find: most change what a session asks for at its end."""

from __future__ import annotations

from typing import Any

from holdfast import Cell
from holdfast.aio.cells import AsyncCells
from holdfast.facets.sessions import Order, Overlay, SessionCommit
from tests.machine.planted import Planted


class PlantedSessions(Planted):
    """The cells as they are; the sessions on them commit otherwise."""

    def session(self) -> Any:  # noqa: ANN401 - a session of either colour
        session = self.cells.session()
        overlay = _overlay(session)
        real = overlay.commit

        def commit(order: Order, branch_id: int) -> SessionCommit | None:
            asked = real(order, branch_id)
            return None if asked is None else self.changed(asked, overlay)

        overlay.commit = commit  # type: ignore[method-assign]
        return session

    def changed(self, asked: SessionCommit, overlay: Overlay) -> SessionCommit:
        raise NotImplementedError


def _overlay(session: Any) -> Overlay:  # noqa: ANN401 - of either colour
    target = getattr(session, "target", session)  # a blocking one is wrapped
    found: Overlay = target._opened.cells._overlay  # noqa: SLF001 - to break it
    return found


class AbsenceIsNotValidated(PlantedSessions):
    def changed(self, asked: SessionCommit, overlay: Overlay) -> SessionCommit:
        del overlay
        return asked._replace(cells=[cell for cell in asked.cells if cell.write or cell.seen])


class ReadsAreNotValidated(PlantedSessions):
    def changed(self, asked: SessionCommit, overlay: Overlay) -> SessionCommit:
        del overlay
        return asked._replace(cells=[cell for cell in asked.cells if cell.write])


class ListsAreNotValidated(PlantedSessions):
    def changed(self, asked: SessionCommit, overlay: Overlay) -> SessionCommit:
        del overlay
        return asked._replace(lists=[])


class TwoSetsRaiseTheCounterByOne(PlantedSessions):
    def changed(self, asked: SessionCommit, overlay: Overlay) -> SessionCommit:
        before = {name: seen.version for name, seen in overlay._seen.items()}  # noqa: SLF001
        cells = [
            cell._replace(version=min(cell.version, before[cell.name] + 1)) for cell in asked.cells
        ]
        return asked._replace(cells=cells)


class _ReadsThePresent:
    def __init__(self, session: Any, cells: AsyncCells) -> None:  # noqa: ANN401 - either colour
        self._session = session
        self._cells = cells

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a session has
        return getattr(self._session, name)

    async def get(self, name: str, default: object = None) -> object:
        cell = await self.get_versioned(name)
        return default if cell is None else cell.value

    async def get_versioned(self, name: str) -> Cell | None:
        cell: Cell | None = await self._session.get_versioned(name)
        is_own = cell is not None and not cell.commit_id
        return cell if is_own else await self._cells.get_versioned(name)


class SessionsReadThePresent(Planted):
    def session(self) -> Any:  # noqa: ANN401 - a session of either colour
        return _ReadsThePresent(self.cells.session(), self.cells)


SESSION_FAULTS: list[type[Planted]] = [
    AbsenceIsNotValidated,
    ReadsAreNotValidated,
    ListsAreNotValidated,
    TwoSetsRaiseTheCounterByOne,
    SessionsReadThePresent,
]

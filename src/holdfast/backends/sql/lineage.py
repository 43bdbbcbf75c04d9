"""What a branch sees, looked up by its name: see facets/branches.py."""

from __future__ import annotations

from holdfast.backends.sql.db import Db
from holdfast.backends.sql.queries import Dialect, load
from holdfast.errors import NotFound
from holdfast.facets.branches import EVERYTHING, MAIN_ID, Lineage
from holdfast.facets.cells import MAIN, no_branch

OF_MAIN: Lineage = ((MAIN_ID, EVERYTHING),)


class Lineages:
    """Finds the lineages of branches."""

    def __init__(self, db: Db, dialect: Dialect) -> None:
        self._db = db
        queries = load(__package__, "branches.sql", dialect)
        self._by_name = queries["find_lineage"]
        self._at = queries["find_lineage_of"]

    async def of(self, namespace: str, branch: str) -> Lineage:
        """What the branch sees; NotFound when there is no such branch."""
        if branch == MAIN:
            return OF_MAIN
        params = {"namespace": namespace, "branch": branch, "everything": EVERYTHING}
        rows = await self._db.fetch(self._by_name, params)
        if not rows:
            raise no_branch(branch)
        return tuple((branch_id, upto) for branch_id, upto in rows)

    async def at(self, branch_id: int, commit_id: int) -> Lineage:
        """What the branch saw at that commit; NotFound when it is gone."""
        rows = await self._db.fetch(self._at, {"branch_id": branch_id, "upto": commit_id})
        if rows[-1][0] != MAIN_ID:  # every walk ends there, unless a level has been freed
            raise NotFound("one of the branches was deleted meanwhile", branch_id=branch_id)
        return tuple((level, upto) for level, upto in rows)

    async def check(self, namespace: str, branch: str, lineage: Lineage) -> None:
        """Raise NotFound unless the branch of that lineage is still there."""
        if await self.of(namespace, branch) != lineage:
            raise no_branch(branch)

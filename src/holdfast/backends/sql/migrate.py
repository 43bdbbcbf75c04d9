"""Numbered migrations, applied in order when a store is opened.

`migrations/0001_cells.sql`, the same number on both engines, never changed after
a release. The database remembers which it has. One process migrates while the
others wait; a database that is newer than the code is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from holdfast.errors import InvalidState

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")


class Migration(NamedTuple):
    """One step of the schema's history."""

    number: int
    name: str
    sql: str


@cache
def load_migrations(package: str) -> Sequence[Migration]:
    """The migrations that this version of Holdfast knows, in order; read once per process."""
    found: list[Migration] = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        match = _FILE.match(file.name)
        if match:
            sql = file.read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), match[2], sql))
    return tuple(sorted(found))


def pending(known: Sequence[Migration], applied: set[int], *, where: str) -> list[Migration]:
    """The migrations still to apply; InvalidState when the database is newer than the code."""
    newest = known[-1].number
    ahead = max(applied, default=0)
    if ahead > newest:
        raise InvalidState(
            f"{where}: its schema is at version {ahead}, this Holdfast knows {newest}; "
            "upgrade Holdfast to open it",
            found=ahead,
            known=newest,
        )
    return [migration for migration in known if migration.number not in applied]


def refuse_pending(todo: list[Migration], *, where: str) -> None:
    """Raise InvalidState when `migrate=False` meets a database that needs migrations."""
    if todo:
        names = ", ".join(f"{step.number:04}_{step.name}" for step in todo)
        raise InvalidState(
            f"{where}: needs the migrations {names}; open it once with migrate=True, "
            "or run holdfast.migrate(url)",
            pending=[step.number for step in todo],
        )

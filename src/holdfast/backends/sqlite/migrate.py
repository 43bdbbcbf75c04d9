"""Migrations on SQLite: in one transaction, under the file's write lock."""

from __future__ import annotations

from holdfast.backends.sql.migrate import Migration, load_migrations, pending, refuse_pending
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.clock import machine_us

_TABLE = """
CREATE TABLE IF NOT EXISTS holdfast_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT
"""


async def migrate(db: SqliteDb, *, allowed: bool) -> None:
    """Start the store on its file, brought to the newest schema.

    What cannot be is refused before anything of the file is changed.
    """
    known = load_migrations(__package__)
    where = f"SQLite {db.path!r}"

    def todo(connection: SqliteConnection) -> list[Migration]:
        return pending(known, _applied(connection), where=where)

    def apply(connection: SqliteConnection) -> None:
        # Looked at again under the lock: another process may have migrated meanwhile.
        connection.run(_TABLE)
        for step in todo(connection):
            connection.run(step.sql)
            connection.run(
                "INSERT INTO holdfast_migrations (number, name, applied_at) "
                f"VALUES ({step.number}, '{step.name}', {machine_us()})"
            )

    def look() -> None:
        steps[:] = db.look(todo)
        if not allowed:
            refuse_pending(steps, where=where)

    steps: list[Migration] = []
    await db.start(look)
    if steps:
        await db.exclusively(apply)


def _applied(connection: SqliteConnection) -> set[int]:
    there = connection.run("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_migrations'")
    if not there:
        return set()
    return {number for (number,) in connection.run("SELECT number FROM holdfast_migrations")}

"""Migrations on PostgreSQL: in one transaction, under an advisory lock."""

from __future__ import annotations

from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.connector import IDLE_IN_TRANSACTION, Connector
from holdfast.backends.sql.migrate import load_migrations, pending, refuse_pending
from holdfast.backends.sql.queries import Dialect

# A migration takes the time it takes, and the other processes wait for it.
_PATIENCE = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"


async def migrate(connector: Connector, schema: str, dialect: Dialect, *, allowed: bool) -> None:
    """Bring the schema to its newest version, or refuse what cannot be."""
    known = load_migrations(__package__)
    where = f"{connector.where}, schema {schema!r}"
    connection = await connector.connect()
    try:
        steps = pending(known, await _applied(connection, dialect), where=where)
        if not steps:
            await _check_cluster(connection, dialect)
            return
        if not allowed:
            refuse_pending(steps, where=where)
        connection.be_patient()
        await connection.begin(IDLE_IN_TRANSACTION)
        await connection.run(_PATIENCE)
        await connection.run(
            f"SELECT pg_advisory_xact_lock(hashtextextended('holdfast migrations {schema}', -1))"
        )
        await _prepare(connection, schema, dialect)
        # Looked at again under the lock: another process may have migrated meanwhile.
        for step in pending(known, await _applied(connection, dialect), where=where):
            await connection.run(dialect.place(step.sql))
            await connection.run(
                dialect.place("INSERT INTO hf.migrations (number, name, applied_at) ")
                + f"VALUES ({step.number}, '{step.name}', clock_timestamp())"
            )
        await connection.run("COMMIT")
        await _check_cluster(connection, dialect)
    finally:
        await connection.close()


async def _check_cluster(connection: PgConnection, dialect: Dialect) -> None:
    """Begin a new epoch of the log if the store was restored into another cluster."""
    moved = dialect.place("SELECT cluster <> hf.cluster() FROM hf.epochs WHERE last_commit IS NULL")
    if await connection.run(moved) == [(True,)]:
        await connection.run(dialect.place("SELECT hf.begin_epoch()"))


async def _applied(connection: PgConnection, dialect: Dialect) -> set[int]:
    there = dialect.place("SELECT to_regclass('hf.migrations') IS NOT NULL")
    if await connection.run(there) == [(False,)]:
        return set()
    rows = await connection.run(dialect.place("SELECT number FROM hf.migrations"))
    return {number for (number,) in rows}


async def _prepare(connection: PgConnection, schema: str, dialect: Dialect) -> None:
    # Asked first: IF NOT EXISTS still wants the right to create, also when it is there.
    ((there,),) = await connection.run(f"SELECT to_regnamespace('\"{schema}\"') IS NOT NULL")
    if not there:
        await connection.run(f'CREATE SCHEMA "{schema}"')
    await connection.run(
        dialect.place(
            "CREATE TABLE IF NOT EXISTS hf.migrations ("
            "number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)"
        )
    )

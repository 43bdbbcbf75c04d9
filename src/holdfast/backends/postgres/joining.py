"""The psycopg connection behind what a caller wants to share its transaction through."""

from __future__ import annotations

import inspect
from typing import Any

import psycopg

from holdfast.errors import InvalidArgument

_WANTED = "a psycopg connection, or a SQLAlchemy session or connection on psycopg"


async def driver_connection(
    given: object, *, blocking: bool
) -> psycopg.Connection[Any] | psycopg.AsyncConnection[Any]:
    """The connection that the caller's transaction runs on.

    SQLAlchemy wraps it: a session has a connection(), that one a connection of the pool, and
    that one the driver's. Its asyncio classes do the same, awaited.
    """
    found: Any = given
    if not isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        found = await _unwrapped(given)
    wanted = psycopg.Connection if blocking else psycopg.AsyncConnection
    if not isinstance(found, wanted):
        colour = "blocking" if blocking else "asyncio"
        raise InvalidArgument(
            f"join: wanted {_WANTED}, for {colour} code as the store is; "
            f"found {type(given).__module__}.{type(given).__qualname__}"
        )
    return found


async def _unwrapped(given: Any) -> object:  # noqa: ANN401 - SQLAlchemy is not imported here
    connection = given
    # Asked first: on SQLAlchemy's asyncio connection, looking at `connection` raises.
    if not _of_asyncio(connection) and callable(getattr(connection, "connection", None)):
        connection = await _awaited(connection.connection())  # it is a session
    if _of_asyncio(connection):
        pooled = await connection.get_raw_connection()
    else:
        pooled = getattr(connection, "connection", None)
    return getattr(pooled, "driver_connection", None)


def _of_asyncio(connection: object) -> bool:
    return hasattr(connection, "get_raw_connection")


async def _awaited(result: Any) -> Any:  # noqa: ANN401 - see above
    return await result if inspect.isawaitable(result) else result

"""Empty PostgreSQL stores that many tests use one after another.

To make a store is to make its tables, indexes and functions: most of what a small test costs.
What a test gives back is emptied in one round trip and lent to the next one:

    with PostgresServer("18") as server, StoreLender(server) as lender:
        with lender.loan() as fresh_url:
            store = holdfast.open(fresh_url())

An emptied store holds the rows of a new one, and its sequences go on from where a new one's do.
If its tables, functions or triggers have changed, it is never lent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self, cast

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

import holdfast
from holdfast.testing.servers import PostgresServer

_SHAPE: Final = """
SELECT (SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE relnamespace = s.oid),
       (SELECT array_agg(oid ORDER BY oid) FROM pg_proc WHERE pronamespace = s.oid),
       (SELECT array_agg(t.oid ORDER BY t.oid) FROM pg_trigger AS t
        JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relnamespace = s.oid)
FROM pg_namespace AS s
WHERE s.nspname = %s
"""
_NAMES: Final = """
SELECT relname FROM pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = %s
ORDER BY relname
"""


class StoreLender:
    """Lends the stores of a server, and makes them when there are too few.

    A test that leaves a transaction behind fails when it gives its store back: its locks are
    waited for `lock_secs`.
    """

    def __init__(self, server: PostgresServer, *, lock_secs: float = 20) -> None:
        self._server: Final = server
        self._lock_secs: Final = lock_secs
        self._idle: Final[list[_Store]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def loan(self) -> Iterator[Callable[[], str]]:
        """A function that gives the URL of one more empty store; all come back at the end."""
        with ExitStack() as lent:

            def fresh_url() -> str:
                store = self._idle.pop() if self._idle else self._made()
                lent.callback(self._take_back, store)
                return store.url

            yield fresh_url

    def _made(self) -> _Store:
        return _Store(self._server.fresh_store(), self._lock_secs)

    def _take_back(self, store: _Store) -> None:
        as_new = False
        try:
            as_new = store.empty()
        finally:
            if as_new:
                self._idle.append(store)
            else:
                store.close()


class _Store:
    """A store, what it held when it was new, and a connection that can bring that back."""

    def __init__(self, url: str, lock_secs: float) -> None:
        holdfast.open(url).close()
        self.url: Final = url
        database, _, self._schema = url.partition("?schema=")
        self._connection: Final = psycopg.connect(database, autocommit=True)
        self._connection.execute(SQL("SET lock_timeout = {}").format(round(lock_secs * 1000)))
        # No trigger speaks up: events may go, and in any order.
        self._connection.execute("SET session_replication_role = replica")
        self._shape: Final = self._look()
        self._as_new: Final = SQL("; ").join([*self._emptied(), *self._rewound()])

    def empty(self) -> bool:
        """Bring back what the store held when it was new; False if its shape has changed."""
        if self._look() != self._shape:
            return False
        self._connection.execute(self._as_new)
        return True

    def close(self) -> None:
        """Free the connection; the store goes with its server."""
        self._connection.close()

    def _look(self) -> object:
        return self._connection.execute(_SHAPE, [self._schema]).fetchone()

    def _emptied(self) -> Iterator[Composed]:
        for name in self._names("r"):
            table = Identifier(self._schema, name)
            yield SQL("DELETE FROM {}").format(table)
            if rows := self._value(SQL("SELECT json_agg(t)::text FROM {} AS t").format(table)):
                yield SQL(
                    "INSERT INTO {table} OVERRIDING SYSTEM VALUE "
                    "SELECT * FROM json_populate_recordset(NULL::{table}, {rows})"
                ).format(table=table, rows=Literal(rows))

    def _rewound(self) -> Iterator[Composed]:
        for name in self._names("S"):
            sequence = Identifier(self._schema, name)
            begins = self._value(SQL("SELECT last_value FROM {}").format(sequence))
            used = self._value(SQL("SELECT is_called FROM {}").format(sequence))
            yield SQL("SELECT setval({}::regclass, {}, {})").format(
                Literal(f"{self._schema}.{name}"), Literal(begins), Literal(used)
            )

    def _names(self, kind: str) -> list[str]:
        rows = self._connection.execute(_NAMES, [self._schema, kind])
        return [name for (name,) in rows]

    def _value(self, query: Composed) -> object:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return cast("object", row[0])

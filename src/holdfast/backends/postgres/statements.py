"""The store's own connections: every statement is prepared at its first use.

A cursor of psycopg's can do more than is needed here, and looks at each call what
of it is asked for: for a single write that was as much work as all the rest of
ours. What stays psycopg's is what knows types and sockets: its dumpers, its
loaders and its waiting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import generators
from psycopg.abc import Params, PQGen
from psycopg.abc import Transformer as Adaptation
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format

from holdfast.backends.postgres.connection import AsyncConnection, BlockingConnection
from holdfast.backends.postgres.errors import translate
from holdfast.backends.sql.db import Row

_MOST = 200  # statements prepared; one for each query, and each size of the integers it is given
_PARAMETER = re.compile(r"%\((\w+)\)s|%%")
# A caller's own statement in a transaction may take ours away.
_FORGETS = re.compile(r"\b(DEALLOCATE|DISCARD)\b", re.IGNORECASE)


class PreparedBlocking(BlockingConnection):
    """Blocks the calling thread."""

    def __init__(self, raw: psycopg.Connection[Any], where: str) -> None:
        super().__init__(raw, where)
        self._statements = Statements(raw)
        self._fetch = self._statements.fetch

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        try:
            return self._raw.wait(self._fetch(query, params))
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """See PgConnection."""
        self._statements.forget_after(sql)
        return await super().run(sql, params)


class PreparedAsync(AsyncConnection):
    """Awaits the event loop."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], where: str) -> None:
        super().__init__(raw, where)
        self._statements = Statements(raw)
        self._fetch = self._statements.fetch

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See PgConnection."""
        try:
            return await self._raw.wait(self._fetch(query, params))
        except psycopg.Error as exc:
            raise translate(exc, self._where) from exc

    async def run(self, sql: str, params: Params | None = None) -> list[Row]:
        """See PgConnection."""
        self._statements.forget_after(sql)
        return await super().run(sql, params)


class Statements:
    """What is prepared on one connection."""

    def __init__(self, raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._raw = raw
        self._pgconn = raw.pgconn
        self._known: dict[str, _Statement] = {}
        self._names = 0

    def fetch(self, query: str, params: Mapping[str, object]) -> PQGen[list[Row]]:
        """The steps that lead to the statement's rows, for the driver's `wait`."""
        statement = self._known.get(query)
        if statement is None:
            statement = self._known[query] = _Statement(query, Transformer(self._raw))
        adapt = statement.adapt
        values = adapt.dump_sequence(
            [params[name] for name in statement.parameters], statement.formats
        )
        types = adapt.types or ()
        name = statement.prepared.get(types)
        if name is None:
            name = yield from self._prepare(statement, types)
        self._pgconn.send_query_prepared(
            name, values, param_formats=adapt.formats, result_format=Format.BINARY
        )
        result = _only((yield from generators.execute(self._pgconn)))
        adapt.set_pgresult(result)
        rows = adapt.load_rows(0, result.ntuples, tuple)
        adapt.set_pgresult(None, set_loaders=False)  # else it lives until the next use
        return rows

    def _prepare(self, statement: _Statement, types: tuple[int, ...]) -> PQGen[bytes]:
        self._names += 1
        if self._names % _MOST == 0:
            self._pgconn.send_query(b"DEALLOCATE ALL")
            _only((yield from generators.execute(self._pgconn)))
            for known in self._known.values():
                known.prepared.clear()
        name = b"holdfast_%d" % self._names
        self._pgconn.send_prepare(name, statement.text, param_types=types)
        _only((yield from generators.execute(self._pgconn)))
        statement.prepared[types] = name
        return name

    def forget_after(self, sql: str) -> None:
        """Prepare everything anew if that takes away what is prepared."""
        if _FORGETS.search(sql):
            self._known.clear()


class _Statement:
    def __init__(self, query: str, adapt: Adaptation) -> None:
        names = [match[1] for match in _PARAMETER.finditer(query) if match[1]]
        self.parameters = tuple(dict.fromkeys(names))
        places = {name: f"${number}" for number, name in enumerate(self.parameters, 1)}
        self.text = _PARAMETER.sub(lambda m: places[m[1]] if m[1] else "%", query).encode()
        self.formats = [PyFormat.AUTO] * len(self.parameters)
        self.adapt = adapt
        self.prepared: dict[tuple[int, ...], bytes] = {}  # by the parameters' types


def _only(results: list[psycopg.pq.abc.PGresult]) -> psycopg.pq.abc.PGresult:
    (result,) = results
    if result.status not in _GOOD:
        raise psycopg.errors.error_from_result(result)
    return result


_GOOD = {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}

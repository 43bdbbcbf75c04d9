"""A transaction on PostgreSQL as a Db: on a connection of the store's, or one of the caller's."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.backends.batching import Answer, Batch, Item, to_await
from holdfast.backends.pool import Lease
from holdfast.backends.postgres.connection import PgConnection
from holdfast.backends.postgres.db import PostgresDb
from holdfast.backends.sql.db import Db, Row
from holdfast.backends.sql.inside import enter
from holdfast.errors import InvalidState, StoreError, Timeout, Unavailable
from holdfast.runtime import Topic

T = TypeVar("T")


class PostgresScope(Db, Protocol):
    """The store's connections, or one transaction."""

    def read(
        self, batch: Batch[Item, Answer], items: Sequence[Item]
    ) -> Awaitable[Sequence[Answer]]:
        """The answers of a batch that only reads."""


class PostgresTransaction:
    """See PostgresScope. Made by `begin`."""

    def __init__(
        self, db: PostgresDb, lease: Lease[PgConnection], connection: PgConnection
    ) -> None:
        self.of = db
        self.over = False
        self._lease = lease
        self._connection = connection
        self._due = 0.0
        self._limit = 0.0
        self._why = "it was committed or rolled back"
        self._topics: set[Topic | None] = set()
        db.transactions.add(id(self))

    @classmethod
    async def begin(cls, db: PostgresDb, limit: float) -> PostgresTransaction:
        """Begin on a connection that is this transaction's alone, for `limit` seconds."""
        due = time.monotonic() + limit
        lease = await db.take()
        self = cls(db, lease, await lease.__aenter__())
        self._due, self._limit = due, limit
        # A caller that hangs must not keep its locks: the server ends the transaction.
        await self._end_on_error(self._connection.begin(due - time.monotonic()))
        enter(self)
        return self

    async def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Sequence[Answer]:
        """See Db: done at once, durable with the rest."""
        del size
        await self._check()
        self._topics.add(topic)
        return await self._end_on_error(
            to_await(batch.apply(self._connection, items, repeat=False))
        )

    read = write

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        await self._check()
        return await self._end_on_error(self._connection.fetch(query, params))

    async def execute(self, sql: str, params: Any) -> list[Row]:  # noqa: ANN401 - the driver's
        """The rows of the caller's own statement."""
        await self._check()
        rows = await self._end_on_error(self._connection.run(sql, params or None))
        if not self._connection.in_transaction:
            await self._end("a statement of the caller ended it")
            await self._check()
        return rows

    async def commit(self) -> None:
        """Make it durable, or raise and leave nothing behind."""
        await self._check()
        try:
            await self._connection.run("COMMIT")
        except BaseException as exc:
            if isinstance(exc, StoreError):
                exc.outcome_unknown = isinstance(exc, Unavailable | Timeout)
            await self._end("its commit failed", exc)
            raise
        await self._end("it was committed or rolled back")
        self.of.exchange.tell(self._topics)

    async def rollback(self) -> None:
        """Leave nothing behind."""
        await self._end("it was committed or rolled back")

    async def _check(self) -> None:
        self.of.runtime.check()  # not whether it is closed: what has begun may end
        if not self.over and time.monotonic() > self._due:
            await self._end(_TOO_LONG)
        if self.over:
            if self._why == _TOO_LONG:
                raise Timeout(f"the transaction took longer than {self._limit:g} s")
            raise InvalidState(f"the transaction is over: {self._why}")

    async def _end_on_error(self, work: Awaitable[T]) -> T:
        """The work's result; the server does nothing more after an error, so neither do we."""
        try:
            return await work
        except BaseException as exc:
            if isinstance(exc, StoreError):
                exc.outcome_unknown = False  # nothing was committed, and nothing will be
            await self._end(f"it failed ({exc})", exc)
            raise

    async def _end(self, why: str, error: BaseException | None = None) -> None:
        if self.over:
            return
        self.over = True
        self._why = why
        self.of.transactions.discard(id(self))
        try:
            if self._connection.in_transaction:
                await self._connection.run("ROLLBACK")
        except StoreError as exc:
            error = error or exc
        finally:
            await self._lease.__aexit__(type(error) if error else None, error, None)

    def __del__(self) -> None:
        self.of.transactions.discard(id(self))  # the lease frees the rest by itself


class JoinedTransaction:
    """A transaction that the caller began, and will end."""

    def __init__(self, db: PostgresDb, connection: PgConnection, *, autocommit: bool) -> None:
        self.of = db
        self._connection = connection
        self._autocommit = autocommit
        self._topics: set[Topic] = set()

    async def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Sequence[Answer]:
        """See Db."""
        del size
        answers = await self._told_truly(to_await(batch.apply(self._joined(), items, repeat=False)))
        if topic is not None and topic not in self._topics:
            # When it commits only the server will know.
            notice = self.of.exchange.notice(topic)
            if notice is not None:
                self._topics.add(topic)
                await self._told_truly(self._connection.run(*notice))
        return answers

    read = write

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        return await self._told_truly(self._joined().fetch(query, params))

    async def execute(self, sql: str, params: Any) -> list[Row]:  # noqa: ANN401 - the driver's
        """The rows of the caller's own statement."""
        return await self._told_truly(self._joined().run(sql, params or None))

    async def commit(self) -> None:
        """Refuse: it is the caller's."""
        raise InvalidState("a joined transaction is committed by whoever began it")

    rollback = commit

    def _joined(self) -> PgConnection:
        self.of.check()
        if self._autocommit and not self._connection.in_transaction:
            raise InvalidState("no transaction is open on the connection that was joined")
        return self._connection

    async def _told_truly(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except StoreError as error:
            error.outcome_unknown = False  # nothing is committed before the caller does it
            raise


_TOO_LONG = "its time is up"

"""A transaction on SQLite: the writer, held by one caller, as a Db.

It is called off when its time is up, from the watchdog's thread or the loop's timer:
nobody else can write meanwhile, in this process or another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import ref

from holdfast.backends.batching import Answer, Batch, Item, at_once
from holdfast.backends.sql.db import Db, Row
from holdfast.backends.sql.inside import enter, refuse_inside
from holdfast.backends.sqlite.connection import DRIVER_ERRORS, Params, SqliteConnection
from holdfast.backends.sqlite.db import SqliteDb
from holdfast.backends.sqlite.turn import Turn
from holdfast.errors import InvalidState, StoreError, Timeout
from holdfast.runtime import Hold, Topic

T = TypeVar("T")


class SqliteScope(Db, Protocol):
    """The store's connections, or one transaction."""

    async def row(self, query: str, params: Params) -> Row | None:
        """The first row of one reading statement."""


class SqliteTransaction:
    """See SqliteScope. Made by `begin`."""

    over = True  # of one that was never quite made

    def __init__(self, db: SqliteDb, writer: SqliteConnection, hold: Hold, limit: float) -> None:
        self.of = db
        self._writer = writer
        self._hold = hold
        self._limit = limit
        self._due = time.monotonic() + limit
        self._call_off: Callable[[], None] = _nothing
        self._why = "it was committed or rolled back"
        self._topics: set[Topic | None] = set()
        self._turn = Turn()
        self.over = False
        db.transactions.add(id(self))

    @classmethod
    async def begin(cls, db: SqliteDb, limit: float) -> SqliteTransaction:
        """Wait for the writer and take it, for `limit` seconds in all."""
        db.check()
        refuse_inside(db)
        due = time.monotonic() + limit
        writer, hold = await db.begin(limit)
        try:
            self = cls(db, writer, hold, limit)
        except BaseException:
            hold.release()  # what was begun is undone by who writes next
            raise
        self._due = due
        self._call_off = db.runtime.later(max(0.0, due - time.monotonic()), _Expiry(self))
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
        self._take()
        self._topics.add(topic)
        try:
            return at_once(batch.apply(self._writer, items, repeat=False))
        except DRIVER_ERRORS as exc:
            error = self._writer.error(exc)
            self._end_by(error)
            raise error from exc
        except BaseException as exc:
            self._end_by(exc)
            raise
        finally:
            self._turn.release()

    async def row(self, query: str, params: Params) -> Row | None:
        """See SqliteScope."""
        return self._run(lambda: self._writer.row(query, params))

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        return self._run(lambda: self._writer.rows(query, params))

    async def execute(self, sql: str, params: Any) -> list[Row]:  # noqa: ANN401 - the driver's
        """The rows of the caller's own statement."""
        self._writer.moments.forget()  # it may undo what was done, which nothing else tells
        rows = self._run(lambda: self._writer.rows(sql, params))
        if not self._writer.raw.in_transaction:
            self._end("a statement of the caller ended it")
            self._check()
        return rows

    async def commit(self) -> None:
        """Make it durable, or raise and leave nothing behind."""
        self._take()
        if self.of.commits_elsewhere:
            # A cancelled caller must not end it under the thread that commits it.
            self._turn.hand_over()
            await self.of.runtime.once(self._commit)()
        else:
            await self._commit()

    async def _commit(self) -> None:
        try:
            await self.of.commit()
        except StoreError as error:
            error.outcome_unknown = True  # see SqliteDb
            raise
        finally:
            self._end("it was committed or rolled back")
            self._turn.release()
        self.of.hub.tell(self._topics)

    async def rollback(self) -> None:
        """Leave nothing behind."""
        self._turn.wait()
        try:
            self._end("it was committed or rolled back")
        finally:
            self._turn.release()

    def _run(self, work: Callable[[], T]) -> T:
        self._take()
        try:
            return work()
        except BaseException as exc:
            self._end_by(exc)
            raise
        finally:
            self._turn.release()

    def _take(self) -> None:
        self.of.runtime.check()  # not whether it is closed: closing waits for us
        if not self._turn.take():
            if time.monotonic() >= self._due:  # it may be the timer, calling it off just now
                raise self._too_long()
            raise InvalidState("a transaction does one thing at a time, and is busy")
        try:
            self._check()
        except BaseException:
            self._turn.release()
            raise

    def _check(self) -> None:
        # A loop that never turns never comes to its timer.
        if not self.over and time.monotonic() > self._due:
            self._end(_TOO_LONG)
        if self.over:
            if self._why == _TOO_LONG:
                raise self._too_long()
            raise InvalidState(f"the transaction is over: {self._why}")

    def _too_long(self) -> Timeout:
        return Timeout(f"the transaction took longer than {self._limit:g} s")

    def _end_by(self, error: BaseException) -> None:
        """Undo everything: half of what was asked for may be done."""
        self._end(f"it failed ({error})")

    def expire(self) -> None:
        """Call it off: its time is up."""
        if self._turn.take():  # else it is busy: its end is near
            try:
                self._end(_TOO_LONG)
            finally:
                self._turn.release()

    def _end(self, why: str) -> None:
        if self.over:
            return
        self._why = why
        self.of.transactions.discard(id(self))
        try:
            self._call_off()
            self._writer.rollback()
        finally:
            self._hold.release()
            self.over = True  # last: what the end of the stack cut short is done again

    def __del__(self) -> None:
        if not self.over and self.of.runtime.at_home:
            self._end("nobody held it any more")


class _Expiry:
    """A timer's call that does not keep a forgotten transaction alive."""

    def __init__(self, transaction: SqliteTransaction) -> None:
        self._transaction = ref(transaction)

    def __call__(self) -> None:
        transaction = self._transaction()
        if transaction is not None:
            transaction.expire()


def _nothing() -> None:
    """There is no timer yet."""


_TOO_LONG = "its time is up"

"""The SQLite leaf: one writer with group commit, readers beside it.

Everything queued in one turn of the loop, or while another thread was writing,
is one transaction: one sync to disk for all of it, and nobody is answered before.
Under asyncio it runs on the loop's own thread (`commit=inline`): no hand-over to
a thread can be starved, at the price that the loop waits for the disk. Where
syncs are slow, `commit=thread` moves the writer to a thread of its own.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakSet

import apsw

from holdfast.backends.batching import Answer, Batch, Item, NotBegun, apply_now, settle
from holdfast.backends.sql.db import Row
from holdfast.backends.sql.inside import refuse_inside
from holdfast.backends.sql.snapshot import Snapshot
from holdfast.backends.sqlite.backup import Copier
from holdfast.backends.sqlite.checkpoint import Checkpointer
from holdfast.backends.sqlite.connection import DRIVER_ERRORS, Params, SqliteConnection
from holdfast.backends.sqlite.readers import OneConnection, Readers
from holdfast.backends.sqlite.watch import Poller
from holdfast.config import StoreConfig, seconds
from holdfast.errors import StoreClosed, StoreError, Timeout, Unsupported
from holdfast.runtime import Hold, Runtime, Topic, Unit
from holdfast.runtime.blocking import BlockingRuntime, run
from holdfast.runtime.hub import Hub, Listener

# Between tries for a lock that another process holds: its commit takes about 0.4 ms.
_FIRST_WAIT = 0.0005
# Short, because who sleeps long seldom finds the lock free: at 20 ms one of four equal
# processes did eight times the work of another.
_LONGEST_WAIT = 0.004

# Of who listens: hints do not get lost here, so it hardly matters.
_PATIENCE = 5.0

# Pages that lone writes may add to the log before its length is looked at: see checkpoint.py.
_MOST_UNSEEN = 64
_PAGE_BYTES = 4096

_BEGIN = "BEGIN IMMEDIATE"
_COMMIT = "COMMIT"

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class SqliteDb:
    """The connections of one open store on one file."""

    def __init__(
        self, path: str, config: StoreConfig, runtime: Runtime, *, folder: str | None = None
    ) -> None:
        self.path = path
        self._folder = folder  # ours alone, and gone with us: see `:memory:`
        self.config = config
        self.runtime = runtime
        self.check = runtime.check  # raises where the store must not be used; see close
        self._busy_timeout = seconds(config.busy_timeout)
        self._exclusive = config.locking == "exclusive"
        self._closed = True  # until there is something to close
        self._writer = SqliteConnection(path, config, create=config.migrate, later=True)
        self._readers = OneConnection(self._writer) if self._exclusive else Readers(path, config)
        self.copier = Copier(self._readers)
        self._checkpointer: Checkpointer | None = None
        self._write_all = self._transact_apart if self._exclusive else self._transact
        self._unseen = 0  # pages that the log has grown by since the last look, roughly
        self._thread: ThreadPoolExecutor | None = None
        if config.commit == "thread" and not isinstance(runtime, BlockingRuntime):
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast writer")
        inline = self._thread is None
        flush = self._flush if inline else self._flush_on_thread
        self._coalescer = runtime.coalescer(flush, inline=inline)
        self.hub = Hub(runtime, lambda: _PATIENCE)
        self._poller: Poller | None = None
        if not self._exclusive and folder is None:
            self._poller = Poller(lambda: SqliteConnection(path, config), self.hub)
        self.transactions: set[int] = set()  # the ids of those that are open
        self.snapshots: WeakSet[Snapshot] = WeakSet()
        self._finish = runtime.once(self._drain_and_free)
        self._closed = False

    async def start(self, look: Callable[[], None]) -> None:
        """Switch the file to write-ahead logging, unless `look` refuses it, and watch the log."""
        self._writer.raw.set_busy_timeout(0)  # waiting is ours, see _begin
        try:
            await self._patiently(self._writer.set_up, self.runtime.sleep)
            await self._patiently(look, self.runtime.sleep)
        except StoreError:
            self._writer.leave_log()
            raise
        await self._patiently(self._use_wal, self.runtime.sleep)
        if self._exclusive:
            self._writer.raw.wal_autocheckpoint(self.config.checkpoint_pages)
        else:
            self._writer.raw.wal_autocheckpoint(0)  # SQLite's own, on the writer's thread
            connection = SqliteConnection(self.path, self.config)
            self._checkpointer = Checkpointer(connection, self.config.checkpoint_pages)

    def write(
        self,
        batch: Batch[Item, Answer],
        items: Sequence[Item],
        size: int = 0,
        topic: Topic | None = None,
    ) -> Awaitable[Sequence[Answer]]:
        """See Db."""
        self.check()
        if self.transactions:
            refuse_inside(self)
        return self._coalescer.submit(Unit(batch, items, size, topic))

    async def row(self, query: str, params: Params) -> Row | None:
        """The first row of one reading statement, at once: a point read takes microseconds."""
        self.check()
        reader = self._readers.take()
        try:
            return reader.row(query, params)
        finally:
            self._readers.give_back(reader)

    async def fetch(self, query: str, params: Mapping[str, object]) -> list[Row]:
        """See Db."""
        self.check()
        reader = self._readers.take()
        try:
            return reader.rows(query, params)
        finally:
            self._readers.give_back(reader)

    def listen(self, topic: Topic) -> Listener:
        """One who hears of commits about the topic, in this process or another."""
        self.check()
        listener = self.hub.listen(topic)
        if self._poller is not None:
            self._poller.start()
        return listener

    @property
    def readers(self) -> Readers | OneConnection:
        """The connections beside the writer."""
        return self._readers

    async def begin(self, patience: float) -> tuple[SqliteConnection, Hold]:
        """The writer, in a write transaction that is the caller's until it releases the hold."""
        deadline = time.monotonic() + patience
        hold = await self._coalescer.hold(patience)
        if hold is None:
            raise Timeout(
                f"SQLite {self.path!r}: others of this process were writing for {patience:g} s"
            )
        try:
            self.check()  # it may have been closed meanwhile
            if self._writer.raw.in_transaction or self._writer.moments.open:
                self._writer.rollback()  # what an interrupted thread left behind
            left = max(0.0, deadline - time.monotonic())
            await self._patiently(lambda: self._writer.run(_BEGIN), self.runtime.sleep, left)
        except BaseException:
            hold.release()
            raise
        return self._writer, hold

    @property
    def commits_elsewhere(self) -> bool:
        """True if another thread commits, while the loop goes on."""
        return self._thread is not None

    async def commit(self) -> None:
        """Commit what the holder of the writer did."""
        if self._thread is None:
            self._writer.run(_COMMIT)
        else:
            await self.runtime.offload(lambda: self._writer.run(_COMMIT), on=self._thread)
        self._writer.moments.committed()
        self._look_at_log()

    def look(self, work: Callable[[SqliteConnection], T]) -> T:
        """The work's result, outside any transaction; for migrations, before first use."""
        return work(self._writer)

    async def exclusively(self, work: Callable[[SqliteConnection], None]) -> None:
        """Run the work in a write transaction of its own; for migrations, before first use."""
        try:
            await self._patiently(lambda: self._writer.run(_BEGIN), self.runtime.sleep)
            work(self._writer)
            self._writer.run(_COMMIT)
        finally:
            self._writer.rollback()

    async def close(self) -> None:
        """Finish the queue, then free everything; in a forked child, leave the parent's alone."""
        if self.runtime.at_home:
            self.runtime.check()
            self._closed = True
            self.check = self._refuse
            self.hub.tell_all()  # so that who waits finds the store closed
            await self._finish()

    def _refuse(self) -> None:
        self.runtime.check()
        raise StoreClosed(f"the store on {self.path!r} is closed")

    async def _drain_and_free(self) -> None:
        try:
            for snapshot in list(self.snapshots):
                await snapshot.close()
            await self._coalescer.drain()
        finally:  # also when the loop ends
            await self.runtime.offload(self._free)

    def __del__(self) -> None:
        # A forgotten store would keep its thread and its log for as long as the process lives.
        if not self._closed and self.runtime.at_home:
            warnings.warn(f"unclosed store on {self.path!r}", ResourceWarning, stacklevel=2)
            self._closed = True
            self._free()

    def _free(self) -> None:
        self.copier.stop()
        if self._poller is not None:
            self._poller.stop()
        if self._thread is not None:
            self._thread.shutdown()
        if self._checkpointer is not None:
            self._checkpointer.stop()
        self._readers.close()
        self._writer.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _flush(self, units: list[Unit]) -> Awaitable[None] | None:
        try:
            self._write_all(units, repeat=False)
        except NotBegun:
            return settle(units, self._attempt)
        except StoreError as error:
            return settle(units, self._attempt, failed=error)
        return None  # as nearly always: a coroutine for each step would cost more than the SQL

    async def _flush_on_thread(self, units: list[Unit]) -> None:
        # The same coroutines, stepped on the writer's thread.
        blocking = BlockingRuntime()

        async def attempt(units: list[Unit], *, repeat: bool, patient: bool) -> None:
            await self._attempt(units, repeat=repeat, patient=patient, sleep=blocking.sleep)

        await self.runtime.offload(lambda: run(settle(units, attempt)), on=self._thread)

    async def _attempt(
        self, units: list[Unit], *, repeat: bool, patient: bool, sleep: Sleep | None = None
    ) -> None:
        """All units in one transaction, as soon as no other process is in the way."""
        del patient  # the one lock here is waited for before anything begins
        await self._patiently(
            lambda: self._write_all(units, repeat=repeat),
            sleep or self.runtime.sleep,
            busy=NotBegun,
            give_up=NotBegun,
        )

    def _transact_apart(self, units: list[Unit], *, repeat: bool) -> None:
        """The same where the writer reads too."""
        with self._readers.kept_out:
            self._transact(units, repeat=repeat)

    def _transact(self, units: list[Unit], *, repeat: bool) -> None:
        """All units in one transaction, now; NotBegun if another process is in the way."""
        writer = self._writer
        execute, moments = writer.execute, writer.moments
        committing = False
        try:
            if moments.open or writer.raw.in_transaction:
                writer.rollback()  # what an interrupted thread left behind
            try:
                execute(_BEGIN)
            except apsw.BusyError as exc:
                raise NotBegun(writer.error(exc)) from exc
            if len(units) == 1:  # a lone caller is spared the grouping
                unit = units[0]
                unit.answers = unit.batch.apply(writer, unit.items, repeat=repeat)
                self._unseen += 2 * len(unit.items) + unit.size // _PAGE_BYTES
            else:
                apply_now(units, writer, repeat=repeat)
                self._unseen = _MOST_UNSEEN
            committing = True
            execute(_COMMIT)
            moments.committed()
        except BaseException as exc:
            if writer.raw.in_transaction:
                with contextlib.suppress(StoreError):  # the next one tries again
                    writer.rollback()
            if not isinstance(exc, DRIVER_ERRORS):
                raise
            moments.forget()
            error = writer.error(exc)
            # The log may hold the commit, whole but not synced: a crash brings it to life.
            error.outcome_unknown = committing
            raise error from exc
        for unit in units:
            unit.settled = True
        if self._unseen >= _MOST_UNSEEN:
            self._look_at_log()
        if self.hub.topics:
            self.hub.tell(unit.topic for unit in units)

    def _look_at_log(self) -> None:
        self._unseen = 0
        if self._checkpointer is not None:
            self._checkpointer.look(self._writer)

    async def _patiently(
        self,
        work: Callable[[], object],
        sleep: Sleep,
        patience: float | None = None,
        *,
        busy: type[Exception] = Timeout,
        give_up: Callable[[Timeout], Exception] = lambda error: error,
    ) -> None:
        """Run the work, again and again while another process holds the lock (`busy`).

        Waiting happens here and not inside SQLite, where it would stop the event loop.
        """
        patience = self._busy_timeout if patience is None else patience
        deadline = time.monotonic() + patience
        wait = _FIRST_WAIT
        while True:
            try:
                work()
            except busy as exc:
                if time.monotonic() >= deadline:
                    error = Timeout(
                        f"SQLite {self.path!r}: another process held the write lock for "
                        f"{patience:g} s"
                    )
                    raise give_up(error) from exc
            else:
                return
            await sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads contenders
            wait = min(wait * 1.5, _LONGEST_WAIT)

    def _use_wal(self) -> None:
        ((mode,),) = self._writer.run("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise Unsupported(
                f"SQLite {self.path!r}: write-ahead logging is not possible here (mode {mode!r}); "
                "network file systems cannot hold a store"
            )

"""PostgreSQL that keeps a write waiting: for a lock, too long, or until nobody waits any more."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast import AsyncStore, Timeout, Unavailable
from holdfast.testing.freezing import freeze
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.world import Colour

OpenStore: TypeAlias = Callable[..., AsyncStore]
SOON = 60.0


class Observer:
    """What the server itself says, and a hand on its locks."""

    def __init__(self, database: str, namespace: str) -> None:
        self._database = database
        self._namespace = namespace
        self._connection = psycopg.connect(database, autocommit=True)

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Nobody else can write the cell meanwhile."""
        query = "SELECT FROM holdfast.cells WHERE namespace = %s AND name = %s FOR UPDATE"
        with psycopg.connect(self._database) as holder:
            assert holder.execute(query, [self._namespace, name]).fetchone() is not None
            yield

    def wait_for_waiters(self, count: int) -> None:
        query = """
            SELECT count(*) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND datname = current_database()
        """
        self._wait(lambda: self._connection.execute(query).fetchone() == (count,))

    def store_processes(self) -> list[int]:
        """The server processes that work for open stores."""
        query = """
            SELECT pid FROM pg_stat_activity
            WHERE application_name = 'holdfast' AND datname = current_database()
        """
        return [pid for (pid,) in self._connection.execute(query).fetchall()]

    def only_process(self) -> int:
        """The one that works for the one store: those of stores before it may still be ending."""
        self._wait(lambda: len(self.store_processes()) == 1)
        (pid,) = self.store_processes()
        return pid

    def wait_until_gone(self, pid: int) -> None:
        self._wait(lambda: pid not in self.store_processes())

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < deadline, "the server never came to that state"
            self._connection.execute("SELECT pg_sleep(0.02)")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def observer(database: str, namespace: str) -> Iterator[Observer]:
    observer = Observer(database, namespace)
    yield observer
    observer.close()


@pytest.mark.parametrize(
    "settings", [{"lock_timeout": 0.3}, {"lock_timeout": 20, "statement_timeout": 0.3}], ids=str
)
def test_locked_cell_times_out_alone_and_works_again(
    colour: Colour,
    open_store: OpenStore,
    database: str,
    observer: Observer,
    settings: dict[str, float],
) -> None:
    store = open_store(database, **settings)
    colour.run(store.cells.set_many({"free": 1, "locked": 1}))
    names = ("free", "fresh", "locked")
    with observer.locked("locked"):
        calls = [store.cells.set(name, 2) for name in names]
        outcomes = dict(zip(names, colour.run(colour.together(calls)), strict=True))
    error = outcomes.pop("locked")
    assert isinstance(error, Timeout)
    assert error.retryable
    assert not error.outcome_unknown
    assert outcomes == {"free": 2, "fresh": 1}
    assert colour.run(store.cells.set("locked", 3)) == 2


def test_lock_timeout_of_a_repeat_leaves_the_outcome_unknown(
    colour: Colour, open_store: OpenStore, proxy: FaultProxy, database: str, observer: Observer
) -> None:
    store = open_store(proxy.through(database), lock_timeout=2)
    colour.run(store.cells.set("contended", 1))
    op_id = uuid4()
    errors: list[BaseException] = []
    may_release = threading.Event()

    def write() -> None:
        try:
            colour.run(store.cells.set("contended", 2, op_id=op_id))
        except Timeout as error:
            errors.append(error)

    def hold_next() -> None:
        with observer.locked("contended"):
            may_release.wait(SOON)

    caller, holder = threading.Thread(target=write), threading.Thread(target=hold_next)
    with observer.locked("contended"):
        # The queue for the row: the write, then the next holder; the write's repeat comes last.
        proxy.cut_before_reply(b"contended")
        caller.start()
        observer.wait_for_waiters(1)
        holder.start()
        observer.wait_for_waiters(2)
    caller.join(SOON)
    may_release.set()
    holder.join(SOON)
    (error,) = errors
    assert proxy.counts.cuts == 1
    assert colour.run(store.cells.get("contended")) == 2, "the first try was committed"
    assert isinstance(error, Timeout)
    assert error.outcome_unknown
    assert colour.run(store.cells.set("contended", 2, op_id=op_id)) == 2


@pytest.mark.parametrize("history", ["all", 2, 1], ids=str)
def test_lost_write_that_retention_dropped_before_the_repeat_is_unknown(
    colour: Colour,
    open_store: OpenStore,
    *,
    proxy: FaultProxy,
    database: str,
    namespace: str,
    observer: Observer,
    history: str | int,
) -> None:
    store = open_store(proxy.through(database), history=history, lock_timeout=SOON)
    colour.run(store.cells.set("cell", 1))
    versions = None if history == "all" else history
    outcomes: list[int | Unavailable] = []

    def write() -> None:
        try:
            outcomes.append(colour.run(store.cells.set("cell", 2, op_id=uuid4())))
        except Unavailable as error:
            outcomes.append(error)

    def write_between() -> None:
        # All writers share this lock, so it is got after the first try and before the repeat.
        with psycopg.connect(database) as other:
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [namespace])
            other.execute(
                "SELECT holdfast.write_cell"
                "(%s, 'main', 'cell', -1, '3', gen_random_uuid(), false, false, %s, NULL, NULL)",
                [namespace, versions],
            )

    caller, between = threading.Thread(target=write), threading.Thread(target=write_between)
    with observer.locked("cell"):
        proxy.cut_before_reply(b"cell")
        caller.start()
        observer.wait_for_waiters(1)
        between.start()
        observer.wait_for_waiters(2)
    between.join(SOON)
    caller.join(SOON)
    assert proxy.counts.cuts == 1
    (outcome,) = outcomes
    if history == 1:
        assert isinstance(outcome, Unavailable)
        assert (outcome.retryable, outcome.outcome_unknown) == (True, True)
    else:
        assert outcome == 2, "the first try can still be found"
    kept = {"all": [3, 2, 1], 2: [3, 2], 1: [3]}[history]
    assert [cell.version for cell in colour.run(store.cells.getv("cell"))] == kept


@pytest.mark.parametrize("op_id", [None, uuid4()], ids=["store's id", "own id"])
def test_request_that_the_server_runs_after_its_repeat_has_no_second_effect(
    colour: Colour, proxy: FaultProxy, observer: Observer, store: AsyncStore, op_id: UUID | None
) -> None:
    # A stalled server process finds the request in its socket long after the connection broke.
    # Requests of the same kind have the same length, once their statement is prepared.
    colour.run(store.cells.set("one", 1, op_id=uuid4() if op_id else None))
    before = proxy.counts.to_server
    colour.run(store.cells.set("two", 1, op_id=uuid4() if op_id else None))
    request_bytes = proxy.counts.to_server - before
    stalled = observer.only_process()
    freeze(stalled)
    try:
        proxy.cut_after(to_server=request_bytes)
        assert colour.run(store.cells.set("six", 1, op_id=op_id)) == 1
        assert proxy.counts.cuts == 1
    finally:
        os.kill(stalled, signal.SIGCONT)
    observer.wait_until_gone(stalled)
    assert [cell.version for cell in colour.run(store.cells.getv("six"))] == [1]


@pytest.fixture
def store(open_store: OpenStore, proxy: FaultProxy, database: str) -> AsyncStore:
    return open_store(proxy.through(database))


def test_one_locked_row_does_not_hold_up_everybody(
    colour: Colour, open_store: OpenStore, database: str
) -> None:
    store = open_store(database, lock_timeout=2)
    colour.run(store.cells.set("locked", 0))
    with psycopg.connect(database) as holder:
        holder.execute("SELECT 1 FROM holdfast.cells WHERE name = 'locked' FOR UPDATE")

        async def outcome(name: str) -> str:
            try:
                await store.cells.set(name, 1)
            except Timeout:
                return "timeout"
            return "written"

        async def all_at_once() -> list[object]:
            names = ["locked"] * 12 + [f"free{number}" for number in range(12)]
            return list(await colour.together(outcome(name) for name in names))

        started = time.monotonic()
        outcomes = colour.run(all_at_once())
        elapsed = time.monotonic() - started
    assert outcomes == ["timeout"] * 12 + ["written"] * 12
    # A wait of 2 s each would be 24 s; together they wait for a flush or two.
    assert elapsed < 20, "each caller waited for the lock in turn"


def test_session_that_the_server_ended_while_idle_leaves_nothing_in_doubt(
    colour: Colour, open_store: OpenStore, database: str, observer: Observer
) -> None:
    store = open_store(f"{database}?options=-c%20idle_session_timeout%3D1s")
    colour.run(store.ping())
    idle = observer.store_processes()
    assert idle
    for pid in idle:
        observer.wait_until_gone(pid)
    # Refused, not unknown: a first try that may have been made would make it so.
    assert colour.run(store.cells.cas("cell", 1, "value")) is None

"""PostgreSQL restarted and killed under an open store: it works again without being reopened."""

import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest

from holdfast import AsyncStore, StoreError, Unavailable
from holdfast.testing.servers import PostgresServer
from holdfast.testing.world import Colour

T = TypeVar("T")
OpenStore: TypeAlias = Callable[..., AsyncStore]
WORKERS = 4
WRITES_AT_LEAST = 10


@pytest.fixture(scope="module", params=["18", "16"])
def shaken(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server that nobody else uses."""
    with PostgresServer(request.param) as server:
        yield server


@pytest.fixture
def store(open_store: OpenStore, shaken: PostgresServer) -> AsyncStore:
    return open_store(shaken.url())


def test_restart_under_an_idle_store_is_hardly_noticed(
    colour: Colour, store: AsyncStore, shaken: PostgresServer
) -> None:
    # Reads and writes at once, so that the pool holds more than one connection.
    calls: list[Coroutine[Any, Any, object]] = [store.cells.set("a", 1), store.now(), store.ping()]
    colour.run(colour.together(calls))
    shaken.restart()
    assert colour.run(until_answered(partial(store.cells.set, "a", 2), attempts=2)) == 2
    assert colour.run(until_answered(partial(store.cells.get, "a"), attempts=2)) == 2
    colour.run(until_answered(store.ping, attempts=2))


def test_calls_fail_while_the_server_is_down_and_work_when_it_is_back(
    colour: Colour, store: AsyncStore, shaken: PostgresServer
) -> None:
    assert colour.run(store.cells.set("a", 1)) == 1
    shaken.kill()
    write = partial(store.cells.set, "a", 2, op_id=uuid4())
    calls: list[Coroutine[Any, Any, object]] = [write(), store.cells.get("a"), store.ping()]
    for call in calls:
        with pytest.raises(Unavailable) as raised:
            colour.run(call)
        assert raised.value.retryable
    shaken.start()
    assert colour.run(until_answered(write, attempts=2)) == 2
    assert [cell.version for cell in colour.run(store.cells.getv("a"))] == [2, 1]


def test_writers_through_restart_and_crash_lose_and_double_nothing(
    colour: Colour, store: AsyncStore, shaken: PostgresServer
) -> None:
    over = threading.Event()
    failures: list[StoreError] = []

    def shake() -> None:
        try:
            shaken.restart()
            shaken.kill()
            shaken.start()
        finally:
            over.set()

    async def write(worker: int) -> dict[int, list[int]]:
        """What this worker was told: the version of each value."""
        told: dict[int, list[int]] = {}
        while not over.is_set() or len(told) < WRITES_AT_LEAST:
            value = [worker, len(told)]
            call = partial(store.cells.set, "hot", value, op_id=uuid4())
            told[await until_answered(call, attempts=100_000, failures=failures)] = value
        return told

    shaker = threading.Thread(target=shake)
    shaker.start()
    answers = colour.run(colour.together([write(worker) for worker in range(WORKERS)]))
    shaker.join()
    told: dict[int, list[int]] = {}
    for answer in answers:
        assert isinstance(answer, dict), answer
        assert not answer.keys() & told.keys()
        told |= answer
    history = {cell.version: cell.value for cell in colour.run(store.cells.getv("hot"))}
    assert history == told
    assert sorted(told) == list(range(1, len(told) + 1))
    assert failures, "the faults hit nobody: the run is void"


async def until_answered(
    call: Callable[[], Coroutine[Any, Any, T]],
    *,
    attempts: int,
    failures: list[StoreError] | None = None,
) -> T:
    """The answer of a call that may fail, but only so that a repeat is said to help."""
    for _ in range(attempts - 1):
        try:
            return await call()
        except StoreError as error:
            if not error.retryable:
                raise
            if failures is not None:
                failures.append(error)
    return await call()

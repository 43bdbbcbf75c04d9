"""Threads interrupted at every single step: the pool loses neither a place nor its senses."""

import gc
import itertools
from collections.abc import Iterator
from functools import partial
from types import CodeType

import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.runtime.blocking import BlockingRuntime, run
from holdfast.testing.servers import PostgresServer
from tests.faults.interrupts import interrupt_everywhere, modules

# A coroutine that was made, and never begun because the interrupt came first.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

POOL = modules(
    "backends/pool",
    "backends/postgres/connection",
    "backends/postgres/db",
    "backends/postgres/driver",
    "backends/postgres/statements",
    "backends/postgres/sessions",
    "backends/sql/sessions",
    "backends/sql/snapshot",
)
LIMITER = ("_ThreadLimiter.", "_ThreadPlace.")
# A lost place shows as a Timeout after this; nobody else uses these stores.
ONE_PLACE = StoreConfig(pool_size=1, connect_timeout=10)


def _traced(code: CodeType) -> bool:
    return POOL(code) or code.co_qualname.startswith(LIMITER)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


@pytest.fixture
def store(database: str) -> Iterator[holdfast.Store]:
    with holdfast.open(database, config=ONE_PLACE) as store:
        store.cells.set("cell", "value")
        yield store


def test_interrupted_reader_gives_its_place_back(store: holdfast.Store) -> None:
    def check() -> None:
        assert [cell.value for cell in store.cells.getv("cell")] == ["value"]

    assert interrupt_everywhere(_traced, partial(store.cells.getv, "cell"), check) > 100


def test_interrupted_writer_gives_its_place_back(store: holdfast.Store) -> None:
    values = itertools.count()

    def write() -> None:
        store.cells.set("cell", next(values))

    assert interrupt_everywhere(_traced, write, write) > 100


def test_reader_interrupted_while_it_connects_gives_its_place_back(store: holdfast.Store) -> None:
    pool = store._backend._db._pool  # type: ignore[attr-defined]  # noqa: SLF001

    def check() -> None:
        store.ping()
        run(pool._drop_idle())  # noqa: SLF001 - the next one makes a connection

    check()
    assert interrupt_everywhere(_traced, store.ping, check) > 100


# An interrupt that hits a finalizer goes no further.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*__del__")
def test_interrupted_session_gives_its_place_back(store: holdfast.Store) -> None:
    def add_one() -> None:
        with store.cells.session() as s:
            s.set("sum", s.get("sum", 0) + 1)

    def check() -> None:
        # With one place: it is free, and no half of a session is left.
        versions = [cell.value for cell in store.cells.getv("sum")]
        assert versions == list(range(len(versions), 0, -1))

    assert interrupt_everywhere(_traced, add_one, check, stride=2) > 500


def test_places_are_neither_lost_nor_multiplied() -> None:
    limiter = BlockingRuntime().limiter(3)

    def take_and_leave() -> None:
        for place in (run(limiter.acquire(0.001)), limiter.at_once()):
            assert place is not None
            place.release()
            place.release()

    def check() -> None:
        taken = [run(limiter.acquire(0.001)) for _ in range(4)]
        assert [place is not None for place in taken] == [True, True, True, False]

    assert interrupt_everywhere(_traced, take_and_leave, check) > 20


def test_places_die_with_their_limiter() -> None:
    def places() -> int:
        gc.collect()
        return sum(type(one).__name__ == "_Token" for one in gc.get_objects())

    before = places()
    limiter = BlockingRuntime().limiter(3)
    held = run(limiter.acquire(0.001))
    assert places() == before + 3
    del limiter, held
    assert places() == before

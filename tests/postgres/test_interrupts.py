"""Threads interrupted at every single step: the pool loses neither a place nor its senses."""

import contextlib
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import holdfast
from holdfast import StoreConfig
from holdfast.runtime.blocking import BlockingRuntime, run
from holdfast.testing.servers import PostgresServer

# A coroutine that was made, and never begun because the interrupt came first.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

HERE = Path(holdfast.__file__).parent
TRACED = {
    str(HERE / "backends" / f"{name}.py")
    for name in (
        "pool",
        "postgres/connection",
        "postgres/db",
        "postgres/driver",
        "postgres/statements",
        "postgres/sessions",
        "sql/sessions",
        "sql/snapshot",
    )
}
LIMITER = ("_ThreadLimiter.", "_ThreadPlace.")
# A lost place shows as a Timeout after this; nobody else uses these stores.
ONE_PLACE = StoreConfig(pool_size=1, connect_timeout=10)


class Interrupted(KeyboardInterrupt):
    """What Ctrl-C raises, raised by the test."""


class Interrupt:
    """Raises Interrupted before the nth bytecode that the pool and what is around it run.

    Finer than lines: the interpreter also looks for signals between a call and the assignment
    of what it returned. Garbage of other tests waits: its finalizers are not what is interrupted.
    """

    def __init__(self, nth: int) -> None:
        self._left = nth

    @property
    def hit(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        gc.disable()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _call(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event != "call" or not _traced(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        del frame
        if event == "opcode":
            self._left -= 1
            if self._left == 0:
                raise Interrupted
        return self._step


def _traced(code: CodeType) -> bool:
    return code.co_filename in TRACED or code.co_qualname.startswith(LIMITER)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresServer("18") as server:
        yield server.create_database()


@pytest.fixture
def store(database: str) -> Iterator[holdfast.Store]:
    with holdfast.open(database, config=ONE_PLACE) as store:
        store.cells.set("cell", "value")
        yield store


def interrupt_everywhere(
    call: Callable[[], object], check: Callable[[], None], *, stride: int = 1
) -> int:
    """Interrupt the call at its first step, its second, and so on; check after each."""
    nth = 0
    while True:
        nth += stride
        with Interrupt(nth) as interrupt, contextlib.suppress(Interrupted):
            call()
        check()
        if not interrupt.hit:
            return nth - stride


def test_interrupted_reader_gives_its_place_back(store: holdfast.Store) -> None:
    def check() -> None:
        assert [cell.value for cell in store.cells.getv("cell")] == ["value"]

    assert interrupt_everywhere(partial(store.cells.getv, "cell"), check) > 100


def test_interrupted_writer_gives_its_place_back(store: holdfast.Store) -> None:
    values = itertools.count()

    def write() -> None:
        store.cells.set("cell", next(values))

    assert interrupt_everywhere(write, write) > 100


def test_reader_interrupted_while_it_connects_gives_its_place_back(store: holdfast.Store) -> None:
    pool = store._backend._db._pool  # type: ignore[attr-defined]  # noqa: SLF001

    def check() -> None:
        store.ping()
        run(pool._drop_idle())  # noqa: SLF001 - the next one makes a connection

    check()
    assert interrupt_everywhere(store.ping, check) > 100


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

    assert interrupt_everywhere(add_one, check, stride=2) > 500


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

    assert interrupt_everywhere(take_and_leave, check) > 20


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

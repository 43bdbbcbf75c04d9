"""The world that a conformance spec runs in: one engine, one colour, a fresh store.

Specs are written once, with `await`. In the blocking colour every call blocks
inside its coroutine, so the spec never suspends and is stepped to its end; what
a spec asks to happen together happens on threads there, in tasks under asyncio.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import holdfast
from holdfast import AsyncStore, Capability, Projection, StoreConfig
from holdfast.aio.archiver import AsyncArchiver
from holdfast.aio.branches import AsyncBranches
from holdfast.aio.cells import AsyncCells
from holdfast.aio.events import AsyncEvents
from holdfast.aio.events_files import AsyncStoreEvents
from holdfast.aio.projector import AsyncProjector
from holdfast.aio.records import AsyncRecords
from holdfast.aio.sessions import AsyncCellsSession
from holdfast.aio.sweeper import AsyncSweeper
from holdfast.aio.tasks import AsyncTasks
from holdfast.aio.transaction import AsyncTransaction, AsyncTransactionScope
from holdfast.aio.transport import AsyncConsumer, AsyncDelivery, AsyncTransport
from holdfast.aio.watch import AsyncWatch
from holdfast.facets.backend import Backend
from holdfast.runtime.blocking import run
from holdfast.sync.archiver import Archiver
from holdfast.sync.branches import Branches
from holdfast.sync.cells import Cells
from holdfast.sync.events import Events
from holdfast.sync.events_files import StoreEvents
from holdfast.sync.projector import Projector
from holdfast.sync.records import Records
from holdfast.sync.sessions import CellsSession
from holdfast.sync.store import Store
from holdfast.sync.sweeper import Sweeper
from holdfast.sync.tasks import Tasks
from holdfast.sync.transaction import Transaction, TransactionScope
from holdfast.sync.transport import Consumer, Delivery, Transport
from holdfast.sync.watch import Watch

T = TypeVar("T")
_TWINS: dict[type, type] = {
    Store: AsyncStore,
    Cells: AsyncCells,
    Records: AsyncRecords,
    Events: AsyncEvents,
    StoreEvents: AsyncStoreEvents,
    CellsSession: AsyncCellsSession,
    Branches: AsyncBranches,
    Transaction: AsyncTransaction,
    TransactionScope: AsyncTransactionScope,
    Watch: AsyncWatch,
    Tasks: AsyncTasks,
    Sweeper: AsyncSweeper,
    Projector: AsyncProjector,
    Archiver: AsyncArchiver,
    Transport: AsyncTransport,
    Consumer: AsyncConsumer,
    Delivery: AsyncDelivery,
}


class Engine(NamedTuple):
    """What a backend's fixture hands to the suite."""

    name: str
    capabilities: frozenset[Capability]
    url: Callable[[], str]
    """Makes the URL of a new, empty store."""


class Colour(Protocol):
    """How a spec's coroutines are run."""

    def run(self, spec: Coroutine[Any, Any, T]) -> T:
        """The spec's result."""

    async def together(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """The results or errors of calls that run at the same time, in order."""

    async def open(self, url: str, namespace: str, config: StoreConfig | None) -> AsyncStore:
        """A store of this colour, to be used with `await` in both."""

    def close(self) -> None:
        """Free what the colour holds."""


class World:
    """One engine in one colour; `store` is open on a fresh database."""

    def __init__(self, engine: Engine, colour: Colour) -> None:
        self.engine = engine
        self.colour = colour
        self.url = engine.url()
        self._opened: list[AsyncStore] = []
        self.store = colour.run(self.open())

    async def open(
        self, namespace: str = "default", *, config: StoreConfig | None = None, url: str = ""
    ) -> AsyncStore:
        """One more store on the same database, closed with the world."""
        store = await self.colour.open(url or self.url, namespace, config)
        self._opened.append(store)
        return store

    async def open_fresh(self, config: StoreConfig) -> AsyncStore:
        """A store of the same engine on another, empty database, with its own settings."""
        return await self.open(url=self.engine.url(), config=config)

    async def together(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """The results of calls that run at the same time, in order; raises the first error."""
        outcomes = await self.colour.together(calls)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return cast("list[T]", outcomes)

    def sweeper(self, **settings: Any) -> AsyncSweeper:  # noqa: ANN401 - of the sweeper
        """A sweeper of this colour."""
        if isinstance(self.store, _Awaitable):
            return cast("AsyncSweeper", _Awaitable(Sweeper(self.store.target, **settings)))
        return AsyncSweeper(self.store, **settings)

    def archiver(self, folder: Path, **settings: Any) -> AsyncArchiver:  # noqa: ANN401 - its own
        """An archiver of this colour."""
        if isinstance(self.store, _Awaitable):
            return cast(
                "AsyncArchiver", _Awaitable(Archiver(self.store.target, folder, **settings))
            )
        return AsyncArchiver(self.store, folder, **settings)

    def projector(
        self,
        projections: Iterable[Projection[Any]] = (),
        *,
        store: AsyncStore | None = None,
        **settings: Any,  # noqa: ANN401 - its own
    ) -> AsyncProjector:
        """A projector of this colour."""
        on = store or self.store
        if isinstance(on, _Awaitable):
            made = Projector(on.target, projections, **settings)
            return cast("AsyncProjector", _Awaitable(made))
        return AsyncProjector(on, projections, **settings)

    async def move_clock(self, by: float, store: AsyncStore | None = None) -> None:
        """Shift the store's clock by so many seconds, for everyone who uses it."""
        await move_clock(store or self.store, by)

    def close(self) -> None:
        """Close every store that was opened."""
        try:
            for store in self._opened:
                self.colour.run(_coroutine(store.close()))
        finally:
            self.colour.close()


async def move_clock(store: AsyncStore, by: float) -> None:
    """Shift the store's clock by so many seconds."""
    await backend_of(store).move_clock(round(by * 1_000_000))


def backend_of(store: AsyncStore) -> Backend:
    """The engine below the store: for what the public API does not show."""
    target = store.target if isinstance(store, _Awaitable) else store
    return cast("Backend", target._backend)  # noqa: SLF001 - for tests only


class BlockingColour:
    """The blocking store, from one thread or many."""

    def run(self, spec: Coroutine[Any, Any, T]) -> T:
        """See Colour."""
        return run(spec)

    async def together(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """See Colour: a thread per call, all released at once."""
        coroutines = list(calls)
        outcomes: list[Any] = [None] * len(coroutines)
        start = threading.Barrier(len(coroutines))

        def work(at: int) -> None:
            start.wait()
            try:
                outcomes[at] = run(coroutines[at])
            except BaseException as exc:  # noqa: BLE001 - handed to the spec
                outcomes[at] = exc

        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(coroutines))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    async def open(self, url: str, namespace: str, config: StoreConfig | None) -> AsyncStore:
        """See Colour."""
        return cast("AsyncStore", _Awaitable(holdfast.open(url, namespace, config=config)))

    def close(self) -> None:
        """See Colour."""


class LoopColour:
    """The async store, under asyncio's loop or another."""

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        self._context = contextvars.copy_context()

    def run(self, spec: Coroutine[Any, Any, T]) -> T:
        """See Colour."""
        # Not by the runner's `run`: it handles Ctrl-C anew in each call, which takes longer than
        # most calls of a store.
        loop = self._runner.get_loop()
        return loop.run_until_complete(loop.create_task(spec, context=self._context))

    async def together(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """See Colour: a task per call."""
        return await asyncio.gather(*calls, return_exceptions=True)

    async def open(self, url: str, namespace: str, config: StoreConfig | None) -> AsyncStore:
        """See Colour."""
        return await holdfast.open_async(url, namespace, config=config)

    def close(self) -> None:
        """See Colour."""
        self._runner.close()


class _Awaitable:
    """A blocking object that is used with `await`, like its async twin."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401 - a store or a facet
        self.target = target

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the twin has
        found = getattr(self.target, name)
        if type(found) in _TWINS:
            return _Awaitable(found)
        if not callable(found):
            return found
        # A session's operations are methods of the cells that it stands for.
        owner = type(getattr(found, "__self__", self.target))
        waits = inspect.iscoroutinefunction(getattr(_TWINS[owner], name))

        async def awaited(*args: object, **kwargs: object) -> object:
            return _twin(found(*map(_blocking, args), **kwargs))

        def plain(*args: object, **kwargs: object) -> object:
            return _twin(found(*args, **kwargs))

        return awaited if waits else plain

    def __aiter__(self) -> Any:  # noqa: ANN401 - whatever the twin gives
        return self

    async def __anext__(self) -> object:
        try:
            return next(self.target)
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Any:  # noqa: ANN401 - whatever the twin gives
        return _twin(self.target.__enter__())

    async def __aexit__(self, *exc: object) -> None:
        self.target.__exit__(*exc)


def _twin(result: object) -> object:
    iterates = isinstance(result, Generator)
    return _Awaitable(result) if iterates or type(result) in _TWINS else result


def _blocking(argument: Any) -> Any:  # noqa: ANN401 - an argument of any call
    """What the spec hands over as `async def` is called by a blocking store as a function."""
    if not inspect.iscoroutinefunction(argument):
        return argument
    return lambda *args: run(argument(*map(_twin, args)))


async def _coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable

"""Opening stores: from a URL to an engine, in either colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from holdfast.aio.store import AsyncStore
from holdfast.config import StoreConfig
from holdfast.errors import InvalidArgument, InvalidState, Unavailable
from holdfast.facets.backend import Backend
from holdfast.facets.names import check_name
from holdfast.runtime import Runtime
from holdfast.runtime.aio import AsyncioRuntime
from holdfast.runtime.blocking import BlockingRuntime, run
from holdfast.sync.store import Store
from holdfast.url import Target, parse


def open(  # noqa: A001 - holdfast.open reads as what it does
    url: str, namespace: str = "default", *, config: StoreConfig | None = None
) -> Store:
    """An open store for blocking code; it may be used from many threads.

    Creates or migrates the schema unless `StoreConfig(migrate=False)` or `?migrate=false`.
    """
    target = parse(url, _checked(config))
    check_name(namespace, what="namespace")
    return Store(run(_open_backend(target, BlockingRuntime())), namespace, target.config)


def open_async(
    url: str, namespace: str = "default", *, config: StoreConfig | None = None
) -> Opening:
    """An open store for asyncio, once awaited or entered with `async with`.

    Creates or migrates the schema unless `StoreConfig(migrate=False)` or `?migrate=false`.
    """
    target = parse(url, _checked(config))
    return Opening(target, check_name(namespace, what="namespace"))


def migrate(url: str, *, config: StoreConfig | None = None) -> None:
    """Bring the database's schema up to date, for those who open with `migrate=False`."""
    target = parse(url, _checked(config))
    config = msgspec.structs.replace(target.config, migrate=True)
    run(run(_open_backend(target._replace(config=config), BlockingRuntime())).close())


class Opening:
    """A store about to be opened: await it, or enter it with `async with`."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._target = target
        self._namespace = namespace
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        if self._store is not None:
            raise InvalidState("this open_async(…) was entered before: call it again")
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()

    if not TYPE_CHECKING:  # which finds it without running

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"open_async(…) is not open yet and has no {name!r}: `async with`, or await it"
            )

    async def _open(self) -> AsyncStore:
        try:
            runtime = AsyncioRuntime()
        except RuntimeError as exc:
            raise InvalidState(f"open_async is for asyncio: {exc}") from exc
        backend = await _open_backend(self._target, runtime)
        return AsyncStore(backend, self._namespace, self._target.config)


def _checked(config: StoreConfig | None) -> StoreConfig:
    if config is None:
        return StoreConfig()
    if not isinstance(config, StoreConfig):
        raise InvalidArgument(f"config: wanted a StoreConfig, found {type(config).__name__}")
    return config


async def _open_backend(target: Target, runtime: Runtime) -> Backend:
    try:
        return await _opener(target.engine)(target.address, target.config, runtime)
    except OSError as exc:  # such as too many open files, while our own are read
        raise Unavailable(f"opening the store: {exc}") from exc


class _Needs(NamedTuple):
    """What an engine is called, and the driver that it needs."""

    title: str
    driver: str


_EXTRAS = {
    "postgres": _Needs("PostgreSQL", "psycopg"),
    "redis": _Needs("Redis", "redis"),
    "nats": _Needs("NATS", "nats-py"),
}


def _opener(engine: str) -> Callable[[str, StoreConfig, Runtime], Awaitable[Backend]]:
    try:
        module = import_module(f"holdfast.backends.{engine}.backend")
    except ImportError as exc:  # also when psycopg is there, but finds no libpq
        if engine not in _EXTRAS:
            raise
        needs = _EXTRAS[engine]
        raise InvalidState(
            f"{needs.title} needs {needs.driver} ({exc}): pip install 'holdfast[{engine}]'"
        ) from exc
    opener: Callable[[str, StoreConfig, Runtime], Awaitable[Backend]] = module.open_backend
    return opener

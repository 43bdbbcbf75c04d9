"""Run a seeded random load on a few hot cells and record what each caller saw, and when.

`record_blocking` and `record_async` are tasks of a `Fleet`: each process opens the store,
waits at the gate, and lets its callers (threads or asyncio tasks) work through their share.
Times are CLOCK_MONOTONIC, which the processes of one machine share, so `history` can put
the records of all processes together for `linearizability.check`.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import holdfast
from holdfast.testing.linearizability import Operation

Gate: TypeAlias = Callable[[], None]
Row: TypeAlias = list[Any]
Call: TypeAlias = tuple[str, tuple[Any, ...]]

_MIX = ("cas",) * 7 + ("get_versioned",) * 6 + ("set",) * 2 + ("init", "delete")


def record_blocking(
    gate: Gate,
    *,
    url: str,
    process: int,
    callers: int,
    seed: str,
    cells: Sequence[str],
    operations: int,
    torn_cas: bool = False,
) -> list[Row]:
    """The operations of one process whose callers are threads, as rows for `history`."""
    rows: list[Row] = []
    with holdfast.open(url) as store:

        def work(caller: int) -> None:
            load = _load(f"{seed}/{caller}", cells, operations)
            order = next(load, None)
            while order is not None:
                call, args = order
                start = time.monotonic_ns()
                result: object = None
                end: int | None = None
                with contextlib.suppress(holdfast.StoreError):
                    if torn_cas and call == "cas":
                        result = _torn_cas(store, *args)
                    else:
                        result = _plain(getattr(store.cells, call)(*args))
                    end = time.monotonic_ns()
                rows.append([process * callers + caller, call, args, result, start, end])
                order = _answer(load, result)

        with ThreadPoolExecutor(callers) as pool:
            gate()
            for done in [pool.submit(work, caller) for caller in range(callers)]:
                done.result()
    return rows


def record_async(
    gate: Gate,
    *,
    url: str,
    process: int,
    callers: int,
    seed: str,
    cells: Sequence[str],
    operations: int,
) -> list[Row]:
    """The operations of one process whose callers are asyncio tasks, as rows for `history`."""
    rows: list[Row] = []

    async def work(store: holdfast.AsyncStore, caller: int) -> None:
        load = _load(f"{seed}/{caller}", cells, operations)
        order = next(load, None)
        while order is not None:
            call, args = order
            start = time.monotonic_ns()
            result: object = None
            end: int | None = None
            with contextlib.suppress(holdfast.StoreError):
                result = _plain(await getattr(store.cells, call)(*args))
                end = time.monotonic_ns()
            rows.append([process * callers + caller, call, args, result, start, end])
            order = _answer(load, result)

    async def main() -> None:
        async with holdfast.open_async(url) as store:
            gate()
            await asyncio.gather(*(work(store, caller) for caller in range(callers)))

    asyncio.run(main())
    return rows


def history(records: Iterable[list[Row]]) -> list[Operation]:
    """The records of all processes as one history; a call that raised has an unknown outcome."""
    return [
        Operation(
            process,
            call,
            tuple(args),
            tuple(result) if isinstance(result, list) else result,
            start,
            math.inf if end is None else end,
        )
        for rows in records
        for process, call, args, result, start, end in rows
    ]


def _load(seed: str, cells: Sequence[str], operations: int) -> Generator[Call, Any, None]:
    """Calls, one after another; send it each answer, so that it knows versions worth expecting."""
    rng = random.Random(seed)
    known: dict[str, int | None] = dict.fromkeys(cells)
    for number in range(operations):
        name = rng.choice(cells)
        call = rng.choice(_MIX)
        value = f"{seed}/{number}"
        args: tuple[Any, ...] = (name,)
        if call == "cas":
            args = (name, known[name] if rng.random() < 0.9 else None, value)
        elif call in {"set", "init"}:
            args = (name, value)
        answer = yield call, args
        if call == "get_versioned":
            known[name] = answer[0] if answer else None
        elif call == "delete":
            known[name] = None
        elif answer is not None:
            known[name] = answer


def _answer(load: Generator[Call, Any, None], result: object) -> Call | None:
    try:
        return load.send(result)
    except StopIteration:
        return None


def _plain(answer: object) -> object:
    return (answer.version, answer.value) if isinstance(answer, holdfast.Cell) else answer


def _torn_cas(store: holdfast.Store, name: str, expected: int | None, value: str) -> int | None:
    """A compare and set in two steps: the bug that the checker must find."""
    cell = store.cells.get_versioned(name)
    if expected != (cell.version if cell else None):
        return None
    return store.cells.set(name, value)

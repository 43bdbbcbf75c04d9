"""The scenarios of `python -m bench cells`: plain cells against raw drivers and peers."""

from typing import Final

from bench.scenario import Contender, Engine, Operation, Scenario, Work

TITLE: Final = (
    "cells: set, cas, get, branches and sessions against raw apsw, raw psycopg and StrataDB"
)

ENGINES: Final[tuple[Engine, ...]] = ("sqlite", "postgres")

_UVLOOP: Final = {"loop": "uvloop"}
# As of requests that are not all alike. A thread that waits for the GIL may ask for it after
# 5 ms that nobody let go of it: beside equal slices of 2 ms, threads make no write at all.
_BURN_MS: Final = (1, 2, 4, 8)
_COLOURS: Final = {"threads": "blocking", "tasks": "async"}


def scenarios() -> list[Scenario]:
    """Every scenario, in the order in which they are run."""
    return [scenario for engine in ENGINES for scenario in _of_engine(engine)]


def _of_engine(engine: Engine) -> list[Scenario]:
    return [
        _one_caller(engine, "set", "set"),
        _one_caller(engine, "cas", "cas with the right version"),
        _many_tasks(engine, "cas", 100),
        _threads(engine, "cas", 32),
        _one_caller(engine, "get", "get"),
        _many_tasks(engine, "get", 100),
        _history(engine),
        _grown(engine),
        *([_saturated()] if engine == "sqlite" else []),
        _hot(engine, "hot-set", "set", "100 callers set one cell"),
        _hot_threads(engine),
        _hot(engine, "hot-cas", "cas", "100 callers cas one cell; a refusal is an answer too"),
        _hot(engine, "hot-increment", "increment", "100 callers add to one cell, until accepted"),
        *(_many_tasks(engine, "set", callers) for callers in (10, 100, 1000)),
        *_branches(engine),
        *(_transfers(engine, colour, callers) for colour in _COLOURS for callers in (1, 16)),
        _budget(engine),
    ]


def _raw(engine: Engine, work: Work) -> list[Contender]:
    """Raw drivers; SQLite has one, because its single writer gains nothing from tasks."""
    if engine == "sqlite":
        return [Contender("raw apsw", "raw_sqlite", _alone(work))]
    if work.callers > 1:
        return [Contender("raw psycopg async, pool", "raw_postgres_async", work)]
    return [
        Contender("raw psycopg", "raw_postgres", work),
        Contender("raw psycopg async", "raw_postgres_async", work),
    ]


def _alone(work: Work) -> Work:
    return Work(work.operation)


def _one_caller(engine: Engine, operation: Operation, what: str) -> Scenario:
    work = Work(operation)
    contenders = [
        *_raw(engine, work),
        Contender("holdfast blocking", "holdfast_blocking", work),
        Contender("holdfast async", "holdfast_async", work),
        Contender("holdfast async uvloop", "holdfast_async", work, options=_UVLOOP),
    ]
    if engine == "sqlite":
        contenders.append(Contender("strata", "strata", work, "strata"))
    return Scenario(
        f"{operation}-1", f"{what}, 1 caller", engine, tuple(contenders), contenders[0].label
    )


def _many_tasks(engine: Engine, operation: Operation, callers: int) -> Scenario:
    work = Work(operation, callers)
    contenders = [
        *_raw(engine, work),
        Contender("holdfast async", "holdfast_async", work),
        Contender("holdfast async uvloop", "holdfast_async", work, options=_UVLOOP),
    ]
    if engine == "sqlite" and operation != "set":
        contenders.append(Contender("strata", "strata", work, "strata", {"colour": "async"}))
    return Scenario(
        f"{operation}-{callers}",
        f"{operation}, {callers} concurrent tasks, cells of their own",
        engine,
        tuple(contenders),
        contenders[0].label,
    )


def _threads(engine: Engine, operation: Operation, callers: int) -> Scenario:
    work = Work(operation, callers)
    raw = ("raw apsw", "raw_sqlite") if engine == "sqlite" else ("raw psycopg", "raw_postgres")
    contenders = [
        Contender(*raw, work),
        Contender("holdfast blocking", "holdfast_blocking", work),
    ]
    if engine == "sqlite":
        contenders.append(Contender("strata", "strata", work, "strata"))
    return Scenario(
        f"{operation}-{callers}-threads",
        f"{operation}, {callers} threads, cells of their own",
        engine,
        tuple(contenders),
        contenders[0].label,
    )


def _history(engine: Engine) -> Scenario:
    contenders = (
        Contender("1 version", "holdfast_blocking", Work("get_versioned", hot=True)),
        Contender(
            "5,000 versions", "holdfast_blocking", Work("get_versioned", hot=True, versions=5000)
        ),
    )
    title = "get_versioned of a cell with 1 and with 5,000 versions, blocking"
    return Scenario("history", title, engine, contenders, contenders[0].label)


def _grown(engine: Engine) -> Scenario:
    contenders = (
        Contender("64 cells", "holdfast_blocking", Work("get")),
        Contender("20,064 cells", "holdfast_blocking", Work("get", others=20_000)),
    )
    title = "get, when 20,000 cells came in after the store was opened and used, blocking"
    return Scenario("grown", title, engine, contenders, contenders[0].label)


def _saturated() -> Scenario:
    work = Work("set", callers=10, burn_ms=_BURN_MS)
    contenders = (
        Contender("aiosqlite", "aiosqlite", work, "aiosqlite"),
        Contender("holdfast inline", "holdfast_async", work, options={"commit": "inline"}),
        Contender("holdfast thread", "holdfast_async", work, options={"commit": "thread"}),
    )
    slices = ", ".join(map(str, _BURN_MS))
    title = f"set, 10 tasks, while another task burns the CPU in slices of {slices} ms"
    return Scenario("saturated", title, "sqlite", contenders, contenders[0].label)


def _hot(engine: Engine, name: str, operation: Operation, title: str) -> Scenario:
    contenders = (
        Contender("one by one", "holdfast_async", Work(operation, hot=True)),
        Contender("100 tasks", "holdfast_async", Work(operation, 100, hot=True)),
    )
    return Scenario(name, title, engine, contenders, contenders[0].label)


def _hot_threads(engine: Engine) -> Scenario:
    contenders = (
        Contender("one by one", "holdfast_blocking", Work("set", hot=True)),
        Contender("32 threads", "holdfast_blocking", Work("set", 32, hot=True)),
        Contender("100 threads", "holdfast_blocking", Work("set", 100, hot=True)),
    )
    title = "threads set one cell"
    return Scenario("hot-set-threads", title, engine, contenders, contenders[0].label)


def _branches(engine: Engine) -> list[Scenario]:
    few, many = _of_so_many("fork", 100), _of_so_many("fork", 100_000)
    forks = (
        Contender("100 cells", "holdfast_branches", few),
        Contender("100,000 cells", "holdfast_branches", many),
        Contender("async, 100 cells", "holdfast_branches_async", few),
        Contender("async, 100,000 cells", "holdfast_branches_async", many),
    )
    top, deep = Work("get"), Work("get", levels=16)
    reads = (
        Contender("main", "holdfast_branches", top),
        Contender("1 level", "holdfast_branches", Work("get", levels=1)),
        Contender("16 levels", "holdfast_branches", deep),
        Contender("async, main", "holdfast_branches_async", top),
        Contender("async, 16 levels", "holdfast_branches_async", deep),
    )
    return [
        Scenario(
            "fork", "fork of a store with few and with many cells", engine, forks, "100 cells"
        ),
        _against_copies(engine, "fork-10000", "fork of 10,000 cells", _of_so_many("fork", 10_000)),
        _against_copies(
            engine,
            "merge",
            "100 of 10,000 cells written on a branch, then merged",
            _of_so_many("merge", 10_000, changes=100),
        ),
        Scenario("levels", "get of what lies so many forks below", engine, reads, "main"),
    ]


def _of_so_many(operation: Operation, cells: int, *, changes: int = 0) -> Work:
    own = len(Work(operation).all_cells())
    return Work(operation, others=cells - own, changes=changes)


def _against_copies(engine: Engine, name: str, title: str, work: Work) -> Scenario:
    contenders = [
        Contender("holdfast blocking", "holdfast_branches", work),
        Contender("holdfast async", "holdfast_branches_async", work),
    ]
    if engine == "sqlite":
        contenders.insert(0, Contender("strata", "strata_branches", work, "strata"))
    return Scenario(name, title, engine, tuple(contenders), contenders[0].label)


def _transfers(engine: Engine, colour: str, callers: int) -> Scenario:
    work = Work("transfer", callers)
    program = "holdfast_transfers" if colour == "threads" else "holdfast_transfers_async"
    contenders = tuple(
        Contender(label, program, work, options={"way": way, "pool_size": "32"})
        for label, way in (
            ("all in one cell, CAS", "one cell"),
            ("two CAS loops", "two loops"),
            ("session", "session"),
        )
    )
    crowd = "1 caller" if callers == 1 else f"{callers} {colour}"
    title = f"transfers between two of 64 accounts, {crowd}, {_COLOURS[colour]}"
    return Scenario(f"transfer-{callers}-{colour}", title, engine, contenders, contenders[0].label)


def _budget(engine: Engine) -> Scenario:
    contenders = (
        Contender("blocking, 1 caller", "holdfast_blocking", Work("set")),
        Contender("blocking, 32 threads", "holdfast_blocking", Work("set", 32)),
        Contender("async, 1 caller", "holdfast_async", Work("set")),
        Contender("async, 100 callers", "holdfast_async", Work("set", 100)),
    )
    title = "what a set costs in syncs and statements"
    return Scenario("budget", title, engine, contenders, counts_only=True)

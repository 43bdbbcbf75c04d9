"""The scenarios of `python -m bench records`: a record of 12 fields against drivers and peers."""

from typing import Final

from bench.scenario import Contender, Engine, Operation, Scenario, Work

TITLE: Final = (
    "records: put, get, set_field, compare_and_swap and an indexed scan against diskcache, "
    "py-key-value, redis-py and nats-py"
)
ENGINES: Final[tuple[Engine, ...]] = ("sqlite", "postgres", "redis", "nats")

ROWS: Final = 1_000_000
QUICK_ROWS: Final = 100_000
_FEW_ROWS: Final = 10_000

_UVLOOP: Final = {"loop": "uvloop"}
_NAMES: Final[dict[Operation, str]] = {
    "put": "put",
    "get": "get",
    "set_field": "field",
    "compare_and_swap": "swap",
}
# What each engine's first peer is: the others are divided by it.
_BASELINES: Final[dict[Engine, str]] = {
    "sqlite": "diskcache, FULL",
    "postgres": "py-key-value",
    "redis": "redis-py",
    "nats": "nats-py",
}


def scenarios(rows: int) -> list[Scenario]:
    """Every scenario, in the order in which they are run; `rows` is how many a scan is among."""
    return [scenario for engine in ENGINES for scenario in _of_engine(engine, rows)]


def _of_engine(engine: Engine, rows: int) -> list[Scenario]:
    found = [_operation(engine, op, callers) for op in _NAMES for callers in (1, 100)]
    return found if engine == "nats" else [*found, _scan(engine, rows)]


def _operation(engine: Engine, operation: Operation, callers: int) -> Scenario:
    work = Work(operation, callers, records=True)
    contenders = (*_peers(engine, work), *_ours(work))
    labels = [contender.label for contender in contenders]
    crowd = "1 caller" if callers == 1 else f"{callers} concurrent tasks, records of their own"
    baseline = _BASELINES[engine]
    return Scenario(
        f"record-{_NAMES[operation]}-{callers}",
        f"{operation} on a record of 12 fields, {crowd}",
        engine,
        contenders,
        baseline if baseline in labels else labels[0],
    )


def _ours(work: Work) -> list[Contender]:
    blocking = Contender("holdfast blocking", "holdfast_records", work)
    return [
        *([blocking] if work.callers == 1 else []),
        Contender("holdfast async", "holdfast_records_async", work),
        Contender("holdfast async uvloop", "holdfast_records_async", work, options=_UVLOOP),
    ]


def _peers(engine: Engine, work: Work) -> list[Contender]:
    return {
        "sqlite": _sqlite_peers,
        "postgres": _postgres_peers,
        "redis": _redis_peers,
        "nats": _nats_peers,
    }[engine](work)


def _sqlite_peers(work: Work) -> list[Contender]:
    """One writer and point reads of microseconds: who blocks gains nothing from many tasks."""
    alone = Work(work.operation, records=True)
    diskcache = Contender("diskcache, FULL", "diskcache", alone, "diskcache")
    if work.operation not in {"put", "get"}:
        return [diskcache]
    synced = {"synchronous": "full"}
    return [
        Contender("raw apsw", "raw_sqlite", alone),
        diskcache,
        Contender("py-key-value, NORMAL", "py_key_value", work, "py-key-value"),
        Contender("py-key-value, FULL", "py_key_value", work, "py-key-value", synced),
    ]


def _postgres_peers(work: Work) -> list[Contender]:
    if work.operation not in {"put", "get"}:
        return []
    raw = Contender("raw psycopg", "raw_postgres", work)
    return [
        *([raw] if work.callers == 1 else []),
        Contender("raw psycopg async", "raw_postgres_async", work),
        Contender("py-key-value", "py_key_value", work, "py-key-value"),
    ]


def _redis_peers(work: Work) -> list[Contender]:
    if work.operation == "compare_and_swap":
        return []
    peers = [Contender("redis-py async", "redis_py_async", work)]
    if work.callers == 1:
        peers.insert(0, Contender("redis-py", "redis_py", work))
    if work.operation != "set_field":
        peers.append(Contender("py-key-value", "py_key_value", work, "py-key-value"))
    return peers


def _nats_peers(work: Work) -> list[Contender]:
    return [Contender("nats-py", "nats_py", work)]


def _scan(engine: Engine, rows: int) -> Scenario:
    few, many = Work("scan", rows=_FEW_ROWS), Work("scan", rows=rows)
    contenders = (
        Contender("few", "holdfast_records", few),
        Contender("many", "holdfast_records", many),
        Contender("async, few", "holdfast_records_async", few),
        Contender("async, many", "holdfast_records_async", many),
    )
    title = f"scan of 100 due records among {_FEW_ROWS:,} (few) and {rows:,} (many), by an index"
    return Scenario("record-due", title, engine, contenders, "few")

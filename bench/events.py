"""The scenarios of `python -m bench events`: appends, replay, feed and snapshots."""

from typing import Final

from bench.scenario import Contender, Engine, Operation, Scenario, Work
from holdfast import Capability
from holdfast.backends.nats.backend import CAPABILITIES as NATS
from holdfast.backends.redis.backend import CAPABILITIES as REDIS

TITLE: Final = (
    "events: append, replay, feed and snapshot against the recorders of eventsourcing and raw "
    "drivers"
)
ENGINES: Final[tuple[Engine, ...]] = (
    "sqlite",
    "postgres",
    *(("redis",) if Capability.EVENTS in REDIS else ()),
    *(("nats",) if Capability.EVENTS in NATS else ()),
)

LONG: Final = 100_000
QUICK_LONG: Final = 10_000
_SHORT: Final = 10
_REPLAYED: Final = 5000

_UVLOOP: Final = {"loop": "uvloop"}
_TITLES: Final[dict[Operation, str]] = {
    "append": "append of one event",
    "append_ten": "append of ten events in one call",
    "replay": "replay of a run of {:,} events, decoded",
    "feed": "the feed of {:,} events from its beginning, decoded",
}


def scenarios(long: int) -> list[Scenario]:
    """Every scenario, in the order in which they are run; `long` is the length of a long run."""
    return [scenario for engine in ENGINES for scenario in _of_engine(engine, long)]


def _of_engine(engine: Engine, long: int) -> list[Scenario]:
    return [
        _one_caller(engine, "append-1", Work("append")),
        _crowd(engine),
        _hot(engine),
        _one_caller(engine, "append-ten", Work("append_ten")),
        _one_caller(engine, "replay", Work("replay", events=min(_REPLAYED, long))),
        _one_caller(engine, "feed", Work("feed", events=min(_REPLAYED, long))),
        _snapshot(engine, long),
    ]


def _one_caller(engine: Engine, name: str, work: Work) -> Scenario:
    contenders = (*_peers(engine, work), *_ours(work))
    title = f"{_TITLES[work.operation].format(work.events)}, 1 caller"
    return Scenario(name, title, engine, contenders, _baseline(contenders))


def _crowd(engine: Engine) -> Scenario:
    alone, work = Work("append"), Work("append", callers=100)
    contenders = []
    if engine in {"sqlite", "postgres"}:
        label = "eventsourcing, 1 caller"
        contenders.append(Contender(label, "eventsourcing", alone, "eventsourcing"))
    if engine == "sqlite":
        contenders.append(Contender("raw apsw, 1 caller", "raw_sqlite_events", alone))
    if engine == "postgres":
        # The peer locks its table: threads wait for each other.
        contenders.append(Contender("eventsourcing", "eventsourcing", work, "eventsourcing"))
        contenders.append(Contender("raw psycopg async", "raw_postgres_events_async", work))
    contenders += [Contender("holdfast, 100 threads", "holdfast_events", work), *_ours(work)[1:]]
    title = "append of one event, 100 concurrent callers, runs of their own"
    return Scenario("append-100", title, engine, tuple(contenders), _baseline(contenders))


def _hot(engine: Engine) -> Scenario:
    alone, crowd = Work("append", hot=True), Work("append", callers=100, hot=True)
    contenders = (
        Contender("one by one", "holdfast_events_async", alone),
        Contender("100 tasks", "holdfast_events_async", crowd),
        Contender("one by one, blocking", "holdfast_events", alone),
        Contender("100 threads", "holdfast_events", crowd),
    )
    title = "append of one event, all callers on one run"
    return Scenario("append-hot", title, engine, contenders, "one by one")


def _snapshot(engine: Engine, long: int) -> Scenario:
    few, many = Work("snapshot", events=_SHORT), Work("snapshot", events=long)
    contenders = (
        Contender("few", "holdfast_events", few),
        Contender("many", "holdfast_events", many),
        Contender("async, few", "holdfast_events_async", few),
        Contender("async, many", "holdfast_events_async", many),
    )
    title = f"get_snapshot of a run with {_SHORT} events (few) and with {long:,} (many), kept"
    return Scenario("snapshot", title, engine, contenders, "few")


def _ours(work: Work) -> list[Contender]:
    return [
        Contender("holdfast blocking", "holdfast_events", work),
        Contender("holdfast async", "holdfast_events_async", work),
        Contender("holdfast async uvloop", "holdfast_events_async", work, options=_UVLOOP),
    ]


def _peers(engine: Engine, work: Work) -> list[Contender]:
    """The library and the driver by hand; on Redis and NATS there is no such library."""
    if engine not in {"sqlite", "postgres"}:
        return []
    raw = {
        "sqlite": Contender("raw apsw", "raw_sqlite_events", work),
        "postgres": Contender("raw psycopg", "raw_postgres_events", work),
    }
    return [Contender("eventsourcing", "eventsourcing", work, "eventsourcing"), raw[engine]]


def _baseline(contenders: tuple[Contender, ...] | list[Contender]) -> str:
    return contenders[0].label

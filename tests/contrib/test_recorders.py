"""What the library's own test cases do not ask of the recorders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    DataError,
    InfrastructureFactory,
    InfrastructureFactoryError,
    IntegrityError,
    InterfaceError,
    StoredEvent,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.popo import POPOAggregateRecorder
from eventsourcing.utils import Environment

import holdfast
from holdfast.contrib.eventsourcing import HoldfastFactory
from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.valkey import ValkeyServer
from tests.contrib.cases import MODULE, environment
from tests.core.test_missing_extra import WITHOUT, python


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    server: PostgresServer = request.getfixturevalue("server")
    return server.fresh_store()


@pytest.fixture
def factory(url: str) -> Iterator[HoldfastFactory]:
    factory = HoldfastFactory(Environment("App", environment(url)))
    yield factory
    factory.close()


def event(originator: UUID | str, version: int, state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator, version, f"topic{version % 3}", state)


def versions(recorder: AggregateRecorder, originator: UUID, **options: int | bool) -> list[int]:
    found = recorder.select_events(originator, **options)  # type: ignore[arg-type]
    return [one.originator_version for one in found]


def in_order(found: list[int], options: dict[str, int | bool]) -> list[int]:
    """What the model selects; it knows only the order of insertion."""
    return sorted(found, reverse=bool(options.get("desc")))[: options.get("limit")]


@pytest.mark.parametrize("order", ["dense", "skipping", "falling"])
def test_ranges_of_versions_are_those_of_the_model(factory: HoldfastFactory, order: str) -> None:
    chance = random.Random(order)
    recorder, model, originator = factory.aggregate_recorder(), POPOAggregateRecorder(), uuid4()
    given = list(range(40)) if order == "dense" else chance.sample(range(100), 40)
    if order == "skipping":
        given.sort()
    while given:
        page = [event(originator, version) for version in given[: chance.randint(1, 9)]]
        del given[: len(page)]
        recorder.insert_events(page)
        model.insert_events(page)
    for _ in range(60):
        bounds: dict[str, int | bool] = {
            name: chance.randrange(-2, 102) for name in ("gt", "lte") if chance.random() < 0.6
        }
        options = dict(bounds)
        if chance.random() < 0.6:
            options["limit"] = chance.randint(1, 50)
        options["desc"] = chance.random() < 0.5
        wanted = in_order(versions(model, originator, **bounds), options)
        assert versions(recorder, originator, **options) == wanted, options


def test_long_sequence_is_read_from_its_middle(factory: HoldfastFactory) -> None:
    recorder, originator = factory.application_recorder(), uuid4()
    ids = recorder.insert_events([event(originator, number) for number in range(2500)])
    assert ids == list(range(1, 2501))
    assert versions(recorder, originator) == list(range(2500))
    assert versions(recorder, originator, gt=1200, lte=2400) == list(range(1201, 2401))
    assert versions(recorder, originator, desc=True, limit=2) == [2499, 2498]
    found = recorder.select_notifications(start=1, limit=2000, topics=["topic1"])
    assert [one.id for one in found] == [number + 1 for number in range(1, 2500, 3)]


def test_every_state_comes_back_byte_by_byte(factory: HoldfastFactory) -> None:
    recorder = factory.application_recorder()
    states = [b"", b"\x00", b"\xff\xfe", '{"ä": "\u2028"}'.encode(), bytes(range(256))]
    originator = uuid4()
    recorder.insert_events([event(originator, *one) for one in enumerate(states, 1)])
    assert [one.state for one in recorder.select_events(originator)] == states
    assert [one.state for one in recorder.select_notifications(None, 10)] == states


def test_snapshots_taken_at_once_are_all_kept_in_order(factory: HoldfastFactory) -> None:
    recorder, originator = factory.aggregate_recorder("snapshots"), uuid4()
    with ThreadPoolExecutor(8) as pool:
        for done in [
            pool.submit(recorder.insert_events, [event(originator, n)]) for n in range(40)
        ]:
            done.result()
    assert versions(recorder, originator) == list(range(40))
    assert versions(recorder, originator, lte=17, desc=True, limit=1) == [17]


def test_one_of_many_racers_records_a_version(factory: HoldfastFactory) -> None:
    recorder, originator = factory.application_recorder(), uuid4()

    def insert(number: int) -> int:
        try:
            recorder.insert_events([event(uuid4(), 1), event(originator, 1, b"%d" % number)])
        except IntegrityError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(insert, range(16))) == 1
    assert len(recorder.select_notifications(None, 10)) == 2
    assert recorder.max_notification_id() == 2


def test_refused_tracking_takes_the_events_along(factory: HoldfastFactory) -> None:
    recorder, originator = factory.process_recorder(), uuid4()
    recorder.insert_events([], tracking=Tracking("up:stream", 5))
    with pytest.raises(IntegrityError, match="5 is not above 5"):
        recorder.insert_events([event(originator, 1)], tracking=Tracking("up:stream", 5))
    assert versions(recorder, originator) == []
    assert recorder.max_notification_id() is None


def test_subscription_hears_of_another_store(factory: HoldfastFactory, url: str) -> None:
    other = HoldfastFactory(Environment("App", environment(url)))
    originator = uuid4()
    with factory.application_recorder().subscribe() as subscription, ThreadPoolExecutor(1) as pool:
        told = pool.submit(next, subscription)
        other.application_recorder().insert_events([event(originator, 1)])
        assert told.result(timeout=30).originator_id == originator
        waiting = pool.submit(next, subscription, None)
        subscription.stop()
        assert waiting.result(timeout=30) is None
    other.close()


def test_applications_of_one_store_do_not_see_each_other(
    factory: HoldfastFactory, url: str
) -> None:
    other = HoldfastFactory(Environment("Other", environment(url)))
    originator = uuid4()
    for each in (factory, other):
        assert each.application_recorder().insert_events([event(originator, 1)]) == [1]
    other.close()


def test_text_that_looks_like_a_uuid_stays_text(factory: HoldfastFactory) -> None:
    recorder: ApplicationRecorder = factory.application_recorder()
    recorder.insert_events([event(uuid4().hex, 1)])
    (found,) = recorder.select_notifications(None, 1)
    assert isinstance(found.originator_id, str)


def test_errors_are_those_of_the_library(url: str) -> None:
    factory = HoldfastFactory(Environment("App", environment(url)))
    recorder = factory.application_recorder()
    with pytest.raises(DataError, match="an event of"):
        recorder.insert_events([event(uuid4(), 1, b"x" * 3_000_000)])
    factory.close()
    with pytest.raises(InterfaceError) as caught:
        recorder.max_notification_id()
    assert isinstance(caught.value.__cause__, holdfast.StoreClosed)


# Settings


def test_factory_without_a_url_names_the_settings_that_it_looked_for() -> None:
    with pytest.raises(OSError, match="APP_HOLDFAST_URL, HOLDFAST_URL"):
        InfrastructureFactory.construct(Environment("App", {"PERSISTENCE_MODULE": MODULE}))


def test_the_settings_of_the_librarys_own_modules_say_where_the_store_is(
    tmp_path: Path, url: str
) -> None:
    target = urlsplit(url)
    if target.scheme == "sqlite":
        module, settings = "eventsourcing.sqlite", {"SQLITE_DBNAME": str(tmp_path / "a b%20.db")}
    else:
        module = "eventsourcing.postgres"
        settings = {
            "POSTGRES_DBNAME": target.path[1:],
            "POSTGRES_HOST": unquote(target.hostname or ""),
            "POSTGRES_PORT": str(target.port),
            "POSTGRES_USER": target.username or "",
            "POSTGRES_PASSWORD": unquote(target.password or "none"),
        }
    for persistence in (module, MODULE):  # one setting changes
        env = Environment("App", {"PERSISTENCE_MODULE": persistence, **settings})
        factory = InfrastructureFactory[TrackingRecorder].construct(env)
        recorder = factory.application_recorder()
        assert recorder.max_notification_id() is None
        recorder.insert_events([event(uuid4(), 1)])
        assert recorder.max_notification_id() == 1
        factory.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"SQLITE_DBNAME": "a.db", "POSTGRES_DBNAME": "a"}, "both"),
        ({"SQLITE_DBNAME": "file:a.db?mode=ro"}, "URI of SQLite's own"),
    ],
)
def test_settings_that_leave_it_open_are_told(settings: dict[str, str], said: str) -> None:
    with pytest.raises(OSError, match=said):
        HoldfastFactory(Environment("App", settings))


def test_memory_is_a_store_in_memory() -> None:
    factory = HoldfastFactory(Environment("App", {"SQLITE_DBNAME": ":memory:"}))
    assert factory.application_recorder().max_notification_id() is None
    factory.close()


def test_engine_without_transactions_is_refused() -> None:
    with (
        ValkeyServer() as server,
        pytest.raises(InfrastructureFactoryError, match="SQLite or Post"),
    ):
        InfrastructureFactory.construct(Environment("App", environment(server.url())))


def test_recorder_of_another_kind_is_refused(tmp_path: Path) -> None:
    env = environment(f"sqlite:///{tmp_path}/app.db")
    factory = HoldfastFactory(
        Environment("App", {**env, "APPLICATION_RECORDER_TOPIC": "builtins:int"})
    )
    with pytest.raises(InfrastructureFactoryError, match="is not a HoldfastApplicationRecorder"):
        factory.application_recorder()
    factory.close()


def test_missing_library_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    hook = WITHOUT.format(error="ModuleNotFoundError(f'No module named {name!r}', name=name)")
    code = f"""{hook.replace("psycopg", "eventsourcing")}
try:
    import holdfast.contrib.eventsourcing
except ImportError as exc:
    print(exc)
"""
    assert "pip install 'holdfast[eventsourcing]'" in python(code, tmp_path)

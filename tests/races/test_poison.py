"""A call that the engine itself refuses shares a batch with others and harms none of them."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import apsw
import psycopg
import pytest

import holdfast

CALLERS = 50

SQLITE_TRIGGER = """
CREATE TRIGGER poison BEFORE INSERT ON holdfast_{table}
WHEN NEW.name GLOB 'poison*'
BEGIN SELECT RAISE({how}, 'poison'); END
"""
POSTGRES_TRIGGER = """
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '{how}'; END $$;
CREATE TRIGGER poison BEFORE INSERT ON holdfast.{table}
FOR EACH ROW WHEN (NEW.name LIKE 'poison%') EXECUTE FUNCTION poison()
"""
# The transaction survives ABORT and FAIL, FAIL keeps what the statement did, ROLLBACK ends all.
# 40001 and 40P01 look as if a repeat could help; P0001 is a plain refusal.
POISONS = [
    *(("sqlite", how, "cell_versions") for how in ("ABORT", "FAIL", "ROLLBACK")),
    *(("postgres", how, "cell_versions") for how in ("P0001", "40001", "40P01")),
    ("postgres", "P0001", "cells"),
]


@pytest.fixture(params=POISONS, ids="-".join)
def poison(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    found: tuple[str, str, str] = request.param
    return found


@pytest.fixture
def engine(poison: tuple[str, str, str]) -> str:
    return poison[0]


@pytest.fixture
def url(new_url: Callable[[], str], poison: tuple[str, str, str]) -> str:
    """A database whose engine raises for cells named poison…"""
    url = new_url()
    engine, how, table = poison
    with holdfast.open(url) as store:
        store.ping()
    if engine == "sqlite":
        with apsw.Connection(url.removeprefix("sqlite:///")) as sqlite:
            sqlite.execute(SQLITE_TRIGGER.format(table=table, how=how))
        sqlite.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(POSTGRES_TRIGGER.format(table=table, how=how).encode())
    return url


def names(round_: int, poisoned: int) -> list[str]:
    """One cell for each caller; the poisoned ones come anywhere among the others."""
    bad = set(random.Random(f"{round_}/{poisoned}").sample(range(CALLERS), poisoned))
    return [
        f"{'poison' if caller in bad else 'good'}/{round_}/{caller}" for caller in range(CALLERS)
    ]


def verify(store: holdfast.Store, cells: list[str], answers: list[object]) -> None:
    """Every neighbour has its one version, every poisoned caller a typed error and no cell."""
    for name, answer in zip(cells, answers, strict=True):
        if name.startswith("poison"):
            assert isinstance(answer, holdfast.StoreError), f"{name}: {answer!r}"
            assert not answer.outcome_unknown, f"{name}: {answer!r}"
            assert store.cells.get_versioned(name) is None
        else:
            assert answer == 1, f"{name}: {answer!r}"
            assert [(cell.version, cell.value) for cell in store.cells.getv(name)] == [(1, name)]
    errors = [id(answer) for answer in answers if isinstance(answer, holdfast.StoreError)]
    assert len(errors) == len(set(errors)), "two callers were handed the same exception"


def transactions(url: str, prefix: str) -> int:
    """How many transactions wrote the cells."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            query = b"SELECT count(DISTINCT xmin::text) FROM holdfast.cells WHERE name LIKE %s"
            row = connection.execute(query, [prefix + "%"]).fetchone()
        assert row is not None
        return int(row[0])
    # SQLite reads the clock once in each.
    with holdfast.open(url) as store:
        found = [store.cells.get_versioned(name) for name in store.cells.list(prefix)]
    return len({cell.updated_at for cell in found if cell is not None})


ROUNDS = (0, 1, 3, 10, 1, CALLERS)


def test_async_neighbours_of_a_poisoned_call_succeed_once(url: str) -> None:
    async def race(cells: list[str]) -> list[object]:
        async with holdfast.open_async(url) as store:
            await store.ping()
            calls = (store.cells.set(name, name) for name in cells)
            return list(await asyncio.gather(*calls, return_exceptions=True))

    with holdfast.open(url) as store:
        for round_, poisoned in enumerate(ROUNDS):
            cells = names(round_, poisoned)
            verify(store, cells, asyncio.run(race(cells)))
    assert transactions(url, "good/0/") < CALLERS / 2, "void: no batch was formed"


def test_blocking_neighbours_of_a_poisoned_call_succeed_once(url: str) -> None:
    start = threading.Barrier(CALLERS)

    with holdfast.open(url) as store, ThreadPoolExecutor(CALLERS) as pool:

        def call(name: str) -> object:
            start.wait()
            try:
                return store.cells.set(name, name)
            except Exception as error:  # noqa: BLE001  the test looks at whatever came
                return error

        for round_, poisoned in enumerate(ROUNDS):
            cells = names(round_, poisoned)
            verify(store, cells, list(pool.map(call, cells)))
    assert transactions(url, "good/0/") < CALLERS, "void: no batch was formed"


def test_a_poisoned_set_many_leaves_nothing_and_harms_no_neighbour(url: str) -> None:
    async def race() -> list[object]:
        async with holdfast.open_async(url) as store:
            calls = [store.cells.set_many({f"many/{n}/a": n, f"many/{n}/b": n}) for n in range(20)]
            mixed = {"half/a": 1, "poison/half": 1, "half/z": 1}
            calls.insert(10, store.cells.set_many(mixed))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    answers = asyncio.run(race())
    failed = answers.pop(10)
    assert isinstance(failed, holdfast.StoreError)
    assert answers == [{f"many/{n}/a": 1, f"many/{n}/b": 1} for n in range(20)]
    with holdfast.open(url) as store:
        assert store.cells.list("half") == []
        assert len(store.cells.list("many")) == 40

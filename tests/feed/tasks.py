"""What the processes of a feed run do; each function is a task of `holdfast.testing.fleet`.

A change is known by its cell and version, so a follower can tell by itself whether one is
missing, doubled or out of order: each must be its cell's last version plus one.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

import holdfast
from holdfast.backends.sqlite.connection import SqliteConnection
from holdfast.sync.cells import Cells

CELLS = [f"cell{number}" for number in range(200)]
LONGEST = 0.03  # seconds that a slow transaction stays open between its writes
DONE = "done/"


def write(
    gate: Callable[[], None], *, url: str, seed: str, process: int, writers: int, changes: int
) -> int:
    """Make so many changes in all the ways there are, and say so when done."""
    chance = random.Random(seed)
    made = 0
    joined = url.startswith("postgresql")
    # Eight processes with slow transactions: on SQLite somebody may wait for long.
    with holdfast.open(url, config=holdfast.StoreConfig(busy_timeout=300)) as store:
        gate()
        while made < changes:
            way = chance.random()
            if way < 0.5:
                made += len(store.cells.set_many(_some(chance, 1, 150)))
            elif way < 0.9:
                store.cells.set(chance.choice(CELLS), made)
                made += 1
            elif way < 0.95 or not joined:
                made += _slow_transaction(store, chance)
            else:
                made += _joined_transaction(store, url, chance)
        store.cells.set(f"{DONE}{process}", writers)
    return made


def _some(chance: random.Random, least: int, most: int) -> dict[str, int]:
    names = chance.sample(CELLS, chance.randint(least, most))
    return {name: chance.randrange(1000) for name in names}


def _slow_transaction(store: holdfast.Store, chance: random.Random) -> int:
    """Write, stay open, write again; one in three is rolled back."""
    values = _some(chance, 2, 5)
    regretted = chance.random() < 1 / 3
    with contextlib.suppress(ZeroDivisionError, holdfast.Conflict):
        with store.transaction(timeout=60) as tx:
            made = _spread(tx.cells, values, chance)
            made //= not regretted
        return made
    return 0


def _joined_transaction(store: holdfast.Store, url: str, chance: random.Random) -> int:
    values = _some(chance, 2, 5)
    with psycopg.connect(url) as connection:
        tx = store.join(connection)
        try:
            made = _spread(tx.cells, values, chance)
        except holdfast.Conflict:
            connection.rollback()
            return 0
        connection.commit()
    return made


def _spread(cells: Cells, values: dict[str, int], chance: random.Random) -> int:
    # In the order of names, as every batch: others wait, and nobody in a circle.
    for name in sorted(values):
        cells.set(name, values[name])
        time.sleep(chance.uniform(0, LONGEST))
    return len(values)


def follow(
    gate: Callable[[], None], *, url: str, seed: str, start: str, writers: int
) -> dict[str, Any]:
    """Watch until all writers are done: the versions of each cell, and what was wrong.

    `start`: "live" watches from before the first change to the end; "resumed" begins a new watch
    again and again; "late" begins with the present state in the middle.
    """
    chance = random.Random(seed)
    follower = Follower(late=start == "late")
    with holdfast.open(url) as store:
        watch = store.cells.watch()
        if start != "late":
            assert watch.next(timeout=60) is holdfast.CAUGHT_UP
        gate()
        if start == "late":
            time.sleep(1)
        due = 0
        while len(follower.done) < writers:
            change = watch.next(timeout=60)
            assert change is not None, f"nothing for 60 s; {len(follower.done)} writers are done"
            if not isinstance(change, holdfast.CellChange):
                continue
            assert change.cell is not None
            follower.hear(change.name, change.cell.version)
            due -= 1
            if start == "resumed" and due <= 0 and watch.cursor is not None:
                due = chance.randint(1, 5000)
                cursor = watch.cursor
                watch.close()
                watch = store.cells.watch(after=cursor)
        watch.close()
    return follower.report()


def follow_naively(
    gate: Callable[[], None], *, url: str, seed: str, start: str, writers: int
) -> dict[str, Any]:
    """The control: remember the largest number seen, and ask for what is above."""
    del seed, start
    follower = Follower(late=False)
    read = _read_postgres(url) if url.startswith("postgresql") else _read_sqlite(url)
    next(read)
    gate()
    quiet_since = time.monotonic()
    while len(follower.done) < writers and time.monotonic() - quiet_since < 5:
        for name, version in next(read):
            follower.hear(name, version)
            quiet_since = time.monotonic()
    return follower.report()


class Follower:
    """Keeps the last version heard of each cell."""

    def __init__(self, *, late: bool) -> None:
        self._late = late
        self._last: dict[str, int] = {}
        self._heard = 0
        self._wrong: list[str] = []
        self.done: set[str] = set()

    def hear(self, name: str, version: int) -> None:
        """Take note of a change."""
        last = self._last.get(name, version - 1 if self._late else 0)
        if version != last + 1 and len(self._wrong) < 10:
            self._wrong.append(f"{name}: version {version} came after {last}")
        self._last[name] = max(version, last)
        self._heard += 1
        if name.startswith(DONE):
            self.done.add(name)

    def report(self) -> dict[str, Any]:
        """What a test wants to know."""
        return {"heard": self._heard, "last": self._last, "wrong": self._wrong}


def _read_postgres(url: str) -> Iterator[list[tuple[str, int]]]:
    last = 0
    with psycopg.connect(url, autocommit=True) as connection:
        yield []
        while True:
            rows = connection.execute(
                "SELECT commit_id, name, version FROM holdfast.cell_versions "
                "WHERE commit_id > %s ORDER BY commit_id LIMIT 1000",
                (last,),
            ).fetchall()
            last = rows[-1][0] if rows else last
            yield [(name, version) for _, name, version in rows]


def _read_sqlite(url: str) -> Iterator[list[tuple[str, int]]]:
    last = 0
    connection = SqliteConnection(url.removeprefix("sqlite://"), holdfast.StoreConfig())
    try:
        yield []
        while True:
            rows = connection.rows(
                "SELECT updated_at, name, version FROM holdfast_cell_versions "
                "WHERE updated_at > ? ORDER BY updated_at LIMIT 50",
                (last,),
            )
            last = rows[-1][0] if rows else last
            yield [(name, version) for _, name, version in rows]
    finally:
        connection.close()

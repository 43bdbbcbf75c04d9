"""Merges, deletes, retention and reads of branches race, between processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
from holdfast.facets.branches import BranchesBackend
from holdfast.testing.fleet import Fleet, TaskFailed

TASKS = Path(__file__).with_name("branch_tasks.py")
NAMES = [f"x{number}" for number in range(12)]

# What is left of branches that are gone: versions, heads, notes of merges.
LEFT = {
    "versions": "SELECT count(*) FROM {0}cell_versions WHERE branch_id > 0"
    " AND branch_id NOT IN (SELECT id FROM {0}branches)",
    "heads": "SELECT count(*) FROM {0}cells WHERE branch_id > 0"
    " AND branch_id NOT IN (SELECT id FROM {0}branches)",
    "merges": "SELECT count(*) FROM {0}merges WHERE high_id NOT IN (SELECT id FROM {0}branches)"
    " OR low_id > 0 AND low_id NOT IN (SELECT id FROM {0}branches)",
    "branches": "SELECT count(*) FROM {0}branches",
}


def test_deletes_race_with_merges_and_reads(fleet: Fleet, new_url: Callable[[], str]) -> None:
    url = new_url()
    with holdfast.open(url) as store:
        store.cells.set_many(dict.fromkeys(NAMES, "main"))
        store.branches.fork("sink")
        store.namespace("control").cells.set("wanted", 3)
        churns = [{"url": url, "me": me, "rounds": 15} for me in range(3)]
        others = [{"url": url, "seed": str(number)} for number in range(5)]
        tasks = ["churn"] * 3 + ["look"] * 3 + ["merge_the_doomed"] * 2
        results = fleet.run([f"{TASKS}:{task}" for task in tasks], [*churns, *others])
        assert [branch.name for branch in store.branches.list()] == ["sink"]
        store.branches.delete("sink")  # frees what a racing delete left, too
    assert sum(results[3:6]) > 0, "void: nobody saw a branch"
    assert sum(results[6:]) > 0, "void: nobody merged"
    assert _left_behind(url) == {}


@pytest.mark.parametrize("history", [None, 1])
def test_merges_race_with_writers(
    fleet: Fleet, new_url: Callable[[], str], history: int | None
) -> None:
    """Each merge is a true cut of its source and one commit of its target."""
    url = new_url()
    order = {"url": url, "history": history}
    with holdfast.open(url) as store:
        store.branches.fork("trial")
        store.namespace("control").cells.set("wanted", 1)
        tasks = ["write_pairs_on"] * 4 + ["merge_pairs"] * 2 + ["prune", "fork_and_compare"]
        results = fleet.run(
            [f"{TASKS}:{task}" for task in tasks],
            [
                *({**order, "branch": "trial", "writer": writer} for writer in range(3)),
                {**order, "branch": "main", "writer": 3},
                *[{**order, "source": "trial", "target": "main"}] * 2,
                {"url": url, "branches": ["main", "trial"] if history else []},
                {"url": url, "me": 0, "sources": ["main", "main", "trial"], "forks": 20},
            ],
        )
        assert all(results[:4]), "void: a writer never wrote"
        assert sum(results[4:6]) > 0, "void: nobody merged"
        assert results[-1] > 5, "void: the forks saw nothing new"
        store.branches.merge("trial", strategy="source_wins")
        assert [change for change in store.branches.diff("trial") if change.kind != "target"] == []


def test_merge_of_what_was_not_one_commit_is_seen_half_done(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    """The control: the same race, but the halves are written one after the other."""
    url = new_url()
    order = {"url": url, "history": None}
    with holdfast.open(url) as store:
        store.branches.fork("trial")
        store.namespace("control").cells.set("wanted", 1)
        tasks = ["write_pairs_on"] * 3 + ["merge_pairs", "fork_and_compare"]
        writers = [
            {**order, "branch": "trial", "writer": writer, "together": False} for writer in range(3)
        ]
        merger = {**order, "source": "trial", "target": "main"}
        looker = {"url": url, "me": 0, "sources": ["main"], "forks": 1000}
        with pytest.raises(TaskFailed, match="half of a commit"):
            fleet.run([f"{TASKS}:{task}" for task in tasks], [*writers, merger, looker])


def test_retention_keeps_the_past_of_forks_made_meanwhile(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    url = new_url()
    with holdfast.open(url) as store:
        _fork_under_retention(fleet, store, url)
        (cell,) = store.cells.getv("0/left")
        assert cell.version > 10, "void: there was hardly anything to drop"
        assert store.branches.list() == []
        store.branches.delete("none")
    assert _left_behind(url) == {}


def test_retention_that_knows_of_no_forks_loses_their_past(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    """The control."""
    url = new_url()
    with holdfast.open(url) as store:
        view = "CREATE VIEW {0}cuts (namespace, branch_id, commit_id) AS"
        nothing = "SELECT namespace, parent_id, fork_commit FROM {0}branches WHERE id < 0"
        if url.startswith("postgresql"):
            with psycopg.connect(url, autocommit=True) as raw:
                raw.execute(
                    f"{view} {nothing}".replace("CREATE", "CREATE OR REPLACE").format("holdfast.")
                )
        else:
            sqlite = apsw.Connection(url.removeprefix("sqlite:///"))
            sqlite.execute(f"DROP VIEW holdfast_cuts; {view} {nothing}".format("holdfast_"))
            sqlite.close()
        with pytest.raises(TaskFailed, match="another past"):
            _fork_under_retention(fleet, store, url)


def _fork_under_retention(fleet: Fleet, store: holdfast.Store, url: str) -> None:
    """Fork chains while others write, keeping one version, and prune."""
    store.namespace("control").cells.set("wanted", 4)
    tasks = ["write_pairs_on"] * 3 + ["prune"] + ["fork_chains"] * 4
    writer = {"url": url, "branch": "main", "history": 1}
    orders: list[dict[str, object]] = [
        *({**writer, "writer": number} for number in range(3)),
        {"url": url, "branches": ["main"]},
        *({"url": url, "me": me, "seed": f"{me}", "chains": 4} for me in range(4)),
    ]
    fleet.run([f"{TASKS}:{task}" for task in tasks], orders)


class Overtaken:
    """The backend of branches; before the first page of differences something happens."""

    def __init__(self, backend: BranchesBackend, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._backend = backend
        self._meanwhile: Callable[[], Awaitable[None]] | None = meanwhile

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the backend has
        return getattr(self._backend, name)

    async def differences(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await self._backend.differences(*args, **options)


def test_diff_overtaken_by_a_merge_still_knows_who_changed_what(new_url: Callable[[], str]) -> None:
    """The merge moves the base, and retention then drops the old one."""

    async def race() -> None:
        brief = holdfast.StoreConfig(history=1)
        async with holdfast.open_async(new_url(), config=brief) as store:
            await store.cells.set("x", 0)
            await store.branches.fork("b")
            await store.cells.set("x", 1)
            await store.branches.merge("main", "b")  # the base is main as it is now
            await store.cells.set("x", 2)

            async def meanwhile() -> None:
                await store.branches.merge("b")  # has nothing to write; the base is b now
                await store.cells.prune()

            branches = store.branches
            branches._branches = Overtaken(branches._branches, meanwhile)  # noqa: SLF001
            assert await branches.diff("b") == [holdfast.Change("x", "target", 3, 3)]

    asyncio.run(race())


def _left_behind(url: str) -> dict[str, int]:
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as raw:
            counts = {
                what: raw.execute(query.format("holdfast.").encode()).fetchone()
                for what, query in LEFT.items()
            }
    else:
        sqlite = apsw.Connection(url.removeprefix("sqlite:///"))
        counts = {
            what: sqlite.execute(query.format("holdfast_")).fetchone()
            for what, query in LEFT.items()
            if what != "heads"  # SQLite has none
        }
        sqlite.close()
    return {what: count[0] for what, count in counts.items() if count is not None and count[0]}

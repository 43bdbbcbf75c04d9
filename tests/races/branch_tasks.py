"""What the processes do that race on branches; see tests/races/test_branches.py."""

import contextlib
import random
from collections.abc import Callable
from itertools import pairwise

import holdfast
from holdfast import StoreConfig
from holdfast.sync.cells import Cells

NAMES = [f"x{number}" for number in range(12)]
BRANCHES = [f"t{number}" for number in range(3)]


def churn(gate: Callable[[], None], *, url: str, me: int, rounds: int) -> int:
    """Fork a branch and a child of it, delete the branch and then the child, again and again."""
    name, child = BRANCHES[me], f"child of {BRANCHES[me]}"
    with holdfast.open(url) as store:
        gate()
        for number in range(rounds):
            store.branches.fork(name)
            store.cells.on(name).set_many(dict.fromkeys(NAMES, number))
            store.branches.fork(child, source=name)
            assert store.branches.delete(name)
            assert_whole(store.cells.on(child))
            assert store.branches.delete(child)
        _enough(store, me)
    return rounds


def look(gate: Callable[[], None], *, url: str, seed: str) -> int:
    """Look at branches that may be gone at any moment: either they are, or all is there."""
    rng = random.Random(seed)
    seen = 0
    with holdfast.open(url) as store:
        gate()
        while not _all_have_enough(store):
            with contextlib.suppress(holdfast.NotFound):
                assert_whole(store.cells.on(f"child of {rng.choice(BRANCHES)}"))
                seen += 1
    return seen


def merge_the_doomed(gate: Callable[[], None], *, url: str, seed: str) -> int:
    """Merge from and into branches that may be gone at any moment; `sink` takes what they have."""
    rng = random.Random(seed)
    merged = 0
    with holdfast.open(url) as store:
        gate()
        while not _all_have_enough(store):
            store.cells.set("changing", merged)
            doomed = rng.choice([*BRANCHES, *(f"child of {name}" for name in BRANCHES)])
            sides = rng.choice([("main", doomed), (doomed, "sink")])
            with contextlib.suppress(holdfast.NotFound, holdfast.Conflict):
                store.branches.merge(*sides, strategy="target_wins")
                merged += 1
    return merged


def assert_whole(cells: Cells) -> None:
    """The branch shows every cell with what its parent wrote and what `main` held before."""
    assert cells.list("x") == sorted(NAMES)
    values = set()
    for name in NAMES:
        history = cells.getv(name)
        assert [cell.version for cell in history] == list(range(len(history), 0, -1)), history
        assert len(history) >= 2, history
        assert history[-1].value == "main", history
        values.add(history[-2].value)
    # A branch of that name may have been replaced between two reads, but each of them is whole.
    assert all(isinstance(value, int) for value in values), values


def write_pairs_on(
    gate: Callable[[], None],
    *,
    url: str,
    branch: str,
    writer: int,
    history: int | None,
    together: bool = True,
) -> int:
    """Write the two halves of some cells of a branch, until told.

    Without `together` they are two commits: the control, which others can see half done.
    """
    written = 0
    with holdfast.open(url, config=_keeping(history)) as store:
        cells = store.cells.on(branch)
        gate()
        while not _all_have_enough(store):
            value = f"{writer}.{written}"
            pair = (writer + written) % 5
            halves = {f"{pair}/left": value, f"{pair}/right": value}
            if together:
                cells.set_many(halves)
            else:
                for name in halves:
                    cells.set(name, value)
            written += 1
    return written


def merge_pairs(
    gate: Callable[[], None], *, url: str, source: str, target: str, history: int | None
) -> int:
    """Merge all the time; the source wins."""
    merged = 0
    with holdfast.open(url, config=_keeping(history)) as store:
        gate()
        while not _all_have_enough(store):
            with contextlib.suppress(holdfast.Conflict):  # the target kept changing
                merged += bool(store.branches.merge(source, target, strategy="source_wins").merged)
    return merged


def fork_and_compare(
    gate: Callable[[], None], *, url: str, me: int, sources: list[str], forks: int
) -> int:
    """Fork, look twice, and see both halves of every pair alike; return how many looks differed."""
    looks: set[str] = set()
    with holdfast.open(url) as store:
        gate()
        try:
            for number in range(forks):
                name = f"look{me}.{number}"
                store.branches.fork(name, source=sources[number % len(sources)])
                cells = store.cells.on(name)
                first = _held(cells)
                for cell, value in first.items():
                    other = cell.replace("left", "right")
                    assert first.get(other) == value, f"half of a commit: {cell} {first}"
                assert _held(cells) == first
                looks.add(str(sorted(first.items())))
                store.branches.delete(name)
        finally:
            _enough(store, me)
    return len(looks)


def fork_chains(gate: Callable[[], None], *, url: str, me: int, seed: str, chains: int) -> int:
    """Fork chains of branches and write on all their levels; no past may change."""
    rng = random.Random(seed)
    with holdfast.open(url, config=_keeping(1)) as store:
        gate()
        try:
            for number in range(chains):
                names = [f"chain{me}.{number}.{level}" for level in range(4)]
                looks: dict[str, dict[str, object]] = {}
                for source, name in pairwise(["main", *names]):
                    store.branches.fork(name, source=source)
                    # A child that nobody writes to keeps what its parent was.
                    store.branches.fork(f"still {name}", source=name)
                    looks[f"still {name}"] = _held(store.cells.on(name))
                    for written in range(rng.randrange(1, 4)):
                        above = store.cells.on(rng.choice(names[: names.index(name) + 1]))
                        above.set_many(dict.fromkeys(["0/left", "0/right"], f"{name} {written}"))
                        above.delete(f"{rng.randrange(1, 5)}/left")
                    store.cells.on(name).prune()
                rng.shuffle(names)
                for name in names:
                    store.branches.delete(name)
                    for still, look in looks.items():
                        assert _held(store.cells.on(still)) == look, f"{still} has another past"
                for still in looks:
                    store.branches.delete(still)
        finally:
            _enough(store, me)
    return chains


def _held(cells: Cells) -> dict[str, object]:
    return {name: cells.get(name) for name in cells.list()}


def prune(gate: Callable[[], None], *, url: str, branches: list[str]) -> int:
    """Prune all the time."""
    gone = 0
    with holdfast.open(url, config=_keeping(1)) as store:
        gate()
        while not _all_have_enough(store):
            for branch in branches:
                gone += store.cells.on(branch).prune()
    return gone


def _keeping(history: int | None) -> StoreConfig:
    return StoreConfig() if history is None else StoreConfig(history=history)


def _enough(store: holdfast.Store, me: int) -> None:
    store.namespace("control").cells.set(f"enough{me}", value=True)


def _all_have_enough(store: holdfast.Store) -> bool:
    control = store.namespace("control").cells
    wanted: int = control.get("wanted")
    return len(control.list("enough")) == wanted

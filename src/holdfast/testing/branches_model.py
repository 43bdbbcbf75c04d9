"""A model of branches in plain Python: a fork copies everything, a merge compares everything.

Written from the specification; it shares no line with the engines.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.testing.cells_model import (
    GONE,
    Missing,
    ModelBranch,
    ModelCells,
    ModelSpace,
    ModelStore,
    Written,
)

_MOST_FORKS = 16

# Inside the class, `list` is the method.
Names = list[str]
Differing = tuple[str, str, int | None, int | None]
Changes = list[Differing]
Side = Written | None
Sides = list[tuple[str, Side, Side, Side]]


class Taken(Exception):
    """The engine's Conflict; with the names of the cells that a merge found."""


class TooDeep(Exception):
    """The engine's InvalidState."""


class ModelBranches:
    """The branches of one namespace, with the methods of `store.branches`."""

    def __init__(self, store: ModelStore, space: ModelSpace) -> None:
        self._store = store
        self._space = space

    def fork(self, name: str, *, source: str = "main", op_id: UUID | None = None) -> str:
        """The name of the source."""
        if op_id is not None and op_id in self._space.forks:
            first, made = self._space.forks[op_id]
            if any(made in dict(_ancestors(branch)) for branch in self._space.branches.values()):
                return first  # it is there, or others still see it
        parent = self._branch(source)
        depth, above = 0, parent
        while above.parent is not None:
            depth, above = depth + 1, above.parent
        if depth >= _MOST_FORKS:
            raise TooDeep(source)
        if name in self._space.branches:
            raise Taken
        made = parent.fork(self._store.commits)
        self._space.branches[name] = made
        if op_id is not None:
            self._space.forks[op_id] = source, made
        return source

    def list(self) -> Names:
        """The names of all but main."""
        return sorted(set(self._space.branches) - {"main"})

    def delete(self, name: str) -> bool:
        """True if there was one."""
        return self._space.branches.pop(name, None) is not None

    def diff(self, source: str, target: str) -> Changes:
        """Name, who changed it, and the versions on both sides."""
        changes = []
        for name, base, left, right in self._sides(source, target):
            if not _same(left, right):
                kind = "both"
                if _same(left, base):
                    kind = "target"
                elif _same(right, base):
                    kind = "source"
                changes.append((name, kind, _version(left), _version(right)))
        return changes

    def merge(
        self, source: str, target: str = "main", *, strategy: str = "strict"
    ) -> tuple[dict[str, int], Names]:
        """The merged versions and the deleted names."""
        takes, conflicts = [], []
        for name, base, left, right in self._sides(source, target):
            if _same(left, base) or _same(left, right):
                continue
            if not _same(right, base):
                conflicts.append(name)
                if strategy == "target_wins":
                    continue
            takes.append((name, left, right))
        if conflicts and strategy == "strict":
            raise Taken(conflicts)
        self._store.commits += 1
        cells = ModelCells(self._store, self._space, target)
        merged, deleted = {}, []
        for name, left, right in takes:
            counter = max(entry.version if entry else 0 for entry in (left, right))
            if left is None or left.value is GONE:
                cells.add(name, GONE, counter, None)
                deleted.append(name)
            else:
                cells.add(name, left.value, counter + 1, None)
                merged[name] = counter + 1
        pair = frozenset({self._branch(source), self._branch(target)})
        self._space.merges[pair] = self._branch(source).state()
        return merged, deleted

    def _sides(self, source: str, target: str) -> Sides:
        left, right = self._branch(source), self._branch(target)
        base = self._space.merges.get(frozenset({left, right}))
        if base is None:
            base = _parted(left, right)
        states = (base, left.state(), right.state())
        names = sorted({name for state in states for name in state})
        return [
            (name, states[0].get(name), states[1].get(name), states[2].get(name)) for name in names
        ]

    def _branch(self, name: str) -> ModelBranch:
        if name not in self._space.branches:
            raise Missing(name)
        return self._space.branches[name]


def _parted(left: ModelBranch, right: ModelBranch) -> dict[str, Written]:
    """The state that both had last in common."""
    seen = dict(_ancestors(right))
    for branch, commit in _ancestors(left):
        if branch in seen:
            return branch.state(min(commit, seen[branch]))
    raise AssertionError("no common ancestor")


def _ancestors(branch: ModelBranch) -> list[tuple[ModelBranch, float]]:
    """The branch and those above it, each with the last commit that was seen of it."""
    found: list[tuple[ModelBranch, float]] = [(branch, float("inf"))]
    while branch.parent is not None:
        found.append((branch.parent, branch.fork_commit))
        branch = branch.parent
    return found


def _same(one: Written | None, other: Written | None) -> bool:
    """True for the same value of the same type, or absent both."""
    values = [entry.value if entry else GONE for entry in (one, other)]
    return repr(values[0]) == repr(values[1])


def _version(entry: Written | None) -> int | None:
    return None if entry is None or entry.value is GONE else entry.version

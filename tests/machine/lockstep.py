"""A real store and the model, driven in lockstep: every answer of the two is compared.

The model counts time in hours. The store's clock is moved by whole hours, and an example
lasts far less than one, so the hour of every instant is known although microseconds are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from holdfast import (
    AsyncStore,
    Capability,
    Cell,
    Conflict,
    InvalidArgument,
    InvalidState,
    NotFound,
    StoreConfig,
)
from holdfast.config import History
from holdfast.testing.branches_model import ModelBranches, Taken, TooDeep
from holdfast.testing.cells_model import Missing, ModelCells, ModelStore, Refused, Written
from holdfast.testing.world import BlockingColour, Colour, LoopColour, move_clock

HOUR = 3_600_000_000
COLOURS: dict[str, Callable[[], Colour]] = {"blocking": BlockingColour, "asyncio": LoopColour}
BRANCHES = ("main", "b", "c", "d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The model's errors and what the engines raise instead.
_ERRORS: dict[type[Exception], type[Exception]] = {
    InvalidArgument: Refused,
    NotFound: Missing,
    Conflict: Taken,
    InvalidState: TooDeep,
}


class Bench(NamedTuple):
    """What all examples on one engine share."""

    url: Callable[[], str]
    """Where the next example takes place: not always a new database, so namespaces are."""

    counts: Counter[str]
    cells: Callable[[AsyncStore, str], Any] = lambda store, name: store.namespace(name).cells
    """The cells of a namespace; a planted fault gets in here."""

    branches: Callable[[AsyncStore, str], Any] = lambda store, name: store.namespace(name).branches
    """The branches of a namespace; and here."""

    patience: float = 30.0
    """Seconds until a change that a watch does not tell is a failure."""

    last: bool = True
    """Whether each program ends with one of everything; a planted fault is found by chance."""


class Opened(NamedTuple):
    """An open store and how its coroutines are run."""

    colour: Colour
    store: AsyncStore

    def call(self, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever is made
        """The result of a plain function that wants to be called where the loop runs."""

        async def called() -> Any:  # noqa: ANN401
            return make()

        return self.colour.run(called())


class Call(NamedTuple):
    """A method of cells and its arguments."""

    method: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def on(self, cells: object) -> Any:  # noqa: ANN401 - the store's answer or the model's
        return getattr(cells, self.method)(*self.args, **self.options)


class Lockstep:
    """One example: a model, and one or two stores open on the same database."""

    def __init__(self, bench: Bench, colour: str, keep: int | None) -> None:
        self.counts = bench.counts
        self.counts["examples"] += 1
        self.patience = bench.patience
        self.model = ModelStore(keep)
        self.stores: list[Opened] = []
        self._bench = bench
        self._url = bench.url()
        self._history: History = "all" if keep is None else keep
        number = self.counts["examples"]
        self._namespaces = [f"n{number}", f"n{number}%"]
        self._commit_ids: dict[int, int] = {}
        self._together: dict[int, int] = {}
        self.trimmed = keep is not None  # so branches may show less of their past
        self._forked = False
        self.open(colour)
        first = self.stores[0]
        now = first.colour.run(first.store.now())
        # A minute of room, should this machine's clock be set back a little meanwhile.
        self._start = (now - _EPOCH) // timedelta(microseconds=1) - HOUR // 60

    def open(self, colour: str) -> None:
        """One more store on the database."""
        self.stores.append(self._open(colour, StoreConfig(history=self._history)))
        self.counts[colour] += 1

    def close(self, opened: Opened) -> None:
        opened.colour.run(opened.store.close())
        opened.colour.close()

    @property
    def shared(self) -> bool:
        """True where others can open the store as well."""
        return Capability.SHARED in self.stores[0].store.capabilities

    def live_version(self, at: int, name: str) -> int:
        try:
            cell = self.cells(at)[2].get_versioned(name)
        except Missing:
            return 0
        return cell.version if cell else 0

    def move_clock(self, hours: int) -> None:
        opened = self.stores[-1]
        opened.colour.run(move_clock(opened.store, hours * HOUR / 1_000_000))
        self.model.now += hours
        self.counts["clock moved"] += 1

    def both(self, at: int, call: Call) -> None:
        opened, real, model = self.cells(at)
        call = self._without_forgotten_id(call)
        expected = outcome(lambda: call.on(model))
        found = outcome(lambda: opened.colour.run(call.on(real)))
        if call.method == "getv" and isinstance(expected, list) and call.args[1] != 0:
            name, limit = call.args
            self.compare_versions(model, name, found, limit)
        else:
            assert self.seen(found) == self.seen(expected)
        self.counts[call.method] += 1
        if expected is Refused:
            self.counts["refused"] += 1
        elif expected is Missing:
            self.counts["missing branch"] += 1
        elif call.method == "cas":
            self.counts["cas lost" if expected is None else "cas won"] += 1

    def burst(self, at: int, calls: list[Call]) -> None:
        """Writes that are queued at once: under asyncio they share a batch, in this order."""
        opened, real, model = self.cells(at)
        calls = [self._without_forgotten_id(call) for call in calls]
        first = self.model.commits + 1
        try:
            expected = [call.on(model) for call in calls]
        except Missing:
            return
        # Within one commit an engine may number the cells in any order.
        self._together |= dict.fromkeys(range(first, self.model.commits + 1), first)
        found = opened.colour.run(_in_order(opened.colour, [call.on(real) for call in calls]))
        assert found == expected
        self.counts["burst"] += 1

    def on_branches(self, at: int, call: Call) -> None:
        """The same change of branches, on the store and on the model."""
        opened, namespace, _ = self.place(at)
        model = ModelBranches(self.model, self.model.space(namespace))
        real = self._bench.branches(opened.store, namespace)
        expected = outcome(lambda: call.on(model))
        found = outcome(lambda: opened.colour.run(call.on(real)))
        if isinstance(expected, Taken):
            assert isinstance(found, Conflict)
            assert list(expected.args) == [found.cells] if expected.args else True
            self.counts["merge conflict" if expected.args else "fork taken"] += 1
            return
        if expected in _ERRORS.values():
            assert found is expected
            self.counts["missing branch"] += 1
            return
        assert not isinstance(found, Conflict), found
        assert self._branch_answer(call.method, found) == expected
        self.counts[f"{call.method} of branches"] += 1
        self._forked |= call.method == "fork"
        if call.method == "merge":
            self.counts["merged cells"] += len(found.merged)
            self.counts["merged deletes"] += len(found.deleted)
        elif call.method == "diff":
            self.counts["differences"] += len(found)
        names = [branch.name for branch in opened.colour.run(real.list())]
        assert names == model.list()

    @staticmethod
    def _branch_answer(method: str, found: Any) -> object:  # noqa: ANN401 - what branches answer
        """The answer as the model gives it."""
        if method == "fork":
            return found.parent
        if method == "merge":
            return found.merged, found.deleted
        if method == "diff":
            return [(change.name, change.kind, change.source, change.target) for change in found]
        return found

    def _without_forgotten_id(self, call: Call) -> Call:
        """Without the operation id where it depends on other branches whether it is still kept."""
        if self.trimmed and self._forked and "op_id" in call.options:
            return call._replace(options={})
        return call

    def get_at_hour(self, at: int, name: str, hour: int) -> None:
        """What was current at the end of the hour."""
        opened, real, model = self.cells(at)
        try:
            expected = model.get_at(name, hour)
        except Missing:
            return
        found = opened.colour.run(real.get_at(name, self._start + (hour + 1) * HOUR - 1))
        if model.is_main or not self.trimmed or model.unchanged_since(name, hour):
            assert self.seen(found) == self.seen(expected)
        else:
            # It may be kept no longer, or still: but what is told is what was.
            assert found is None or self.seen(found) == self.seen(model.ever_at(name, hour))
        self.counts["get_at"] += 1

    def get_at_write(self, at: int, name: str, which: int, earlier: int) -> None:
        """What was current at the very moment of one of the writes, or just before."""
        opened, real, model = self.cells(at)
        if self._branch(at) not in self.model.space(self.place(at)[1]).branches:
            return
        history = opened.colour.run(real.getv(name))
        if not history:
            return
        when = history[which % len(history)].updated_at - earlier
        newest = next((cell for cell in history if cell.updated_at <= when), None)
        found = opened.colour.run(real.get_at(name, _EPOCH + timedelta(microseconds=when)))
        if found is None and newest is not None:
            # Nobody is told when exactly it was deleted, only that it was.
            assert model.deleted_after(name, newest.version)
        elif newest is None and found is not None and self.trimmed and not model.is_main:
            # From before a gap, at which the history ends; but what is told is what was.
            assert found.updated_at <= when
            assert self.seen(found) in [self.seen(entry) for entry in model.everything(name)]
        else:
            assert found == newest
        self.counts["get_at"] += 1

    def prune(self, at: int, keep: int) -> None:
        """Let a store that keeps less throw away the history of a namespace."""
        keeper = self._open("blocking", StoreConfig(history=keep))
        _, namespace, branch = self.place(at)
        cells = self._bench.cells(keeper.store, namespace)
        gone = keeper.colour.run((cells if branch == "main" else cells.on(branch)).prune())
        self.close(keeper)
        expected = self.cells(at)[2].prune(keep)
        assert gone == expected if branch == "main" else gone <= expected
        self.trimmed = True
        self.counts["prune"] += 1
        self.counts["pruned versions"] += gone

    def look(self, turn: int) -> None:
        """Compare all names and histories, on main and in turn on another, and all commit ids."""
        for number in range(2):
            others = sorted(self.model.space(self._namespaces[number]).branches.keys() - {"main"})
            branches = ["main", *others[turn % 3 : turn % 3 + 1]]
            for branch in branches:
                opened, real, model = self.cells(number + 4 * BRANCHES.index(branch))
                assert opened.colour.run(real.list()) == model.list()
                names = model.every_name()
                pending = [real.getv(name) for name in names]
                histories = opened.colour.run(_in_order(opened.colour, pending))
                for name, found in zip(names, histories, strict=True):
                    self._compare_history(model, name, found)
        commits = [commit for _, commit in sorted(self._commit_ids.items())]
        assert commits == sorted(commits), "commit ids do not rise with the writes"
        self.counts["looks"] += 1

    def _compare_history(self, model: ModelCells, name: str, found: list[Cell]) -> None:
        self.compare_versions(model, name, found, None)
        ids = [cell.commit_id for cell in found]
        assert ids == sorted(set(ids), reverse=True), name
        for commit_id, entry in zip(ids, model.everything(name), strict=False):
            commit = self._together.get(entry.commit, entry.commit)
            assert self._commit_ids.setdefault(commit_id, commit) == commit

    def compare_versions(
        self, model: ModelCells, name: str, found: list[Cell], limit: int | None
    ) -> None:
        """All that is kept; on a branch at least that, and nothing that never was."""
        everything = model.everything(name)[:limit]
        if not self.trimmed:
            assert self.seen(found) == self.seen(everything), name
            return
        assert self.seen(found) == self.seen(everything[: len(found)]), name
        certain = min(model.certain(name), len(everything))
        exact = model.is_main
        assert len(found) == certain if exact else len(found) >= certain, name

    def seen(self, answer: object) -> object:
        """The answer in a form that is equal only for equal values of equal types."""
        if type(answer) is list:
            return [self.seen(item) for item in answer]
        if isinstance(answer, Cell):
            hour = (answer.updated_at - self._start) // HOUR
            return repr(answer.value), answer.version, hour if answer.commit_id else None
        if isinstance(answer, Written):
            return repr(answer.value), answer.version, answer.updated_at if answer.commit else None
        return repr(answer)

    def cells(self, at: int) -> tuple[Opened, Any, ModelCells]:
        opened, namespace, branch = self.place(at)
        real = self._bench.cells(opened.store, namespace)
        model = self.model.namespace(namespace)
        if branch == "main":
            return opened, real, model
        return opened, real.on(branch), model.on(branch)

    def place(self, at: int) -> tuple[Opened, str, str]:
        return self.stores[at // 2 % len(self.stores)], self._namespaces[at % 2], self._branch(at)

    @staticmethod
    def _branch(at: int) -> str:
        return BRANCHES[at // 4]

    def _open(self, kind: str, config: StoreConfig) -> Opened:
        colour = COLOURS[kind]()
        return Opened(colour, colour.run(colour.open(self._url, "default", config)))


async def _in_order(colour: Colour, calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of calls that begin in this order, together where there is a loop."""
    if not isinstance(colour, LoopColour):
        return [await call for call in calls]
    outcomes = await colour.together(calls)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def outcome(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the store's answer or the model's
    """The answer, or what kind of refusal it was; what a merge found is worth more than that."""
    try:
        return call()
    except (Refused, Missing, TooDeep) as exc:
        return type(exc)
    except (Taken, Conflict) as exc:
        return exc
    except (InvalidArgument, NotFound, InvalidState) as exc:
        return _ERRORS[type(exc)]

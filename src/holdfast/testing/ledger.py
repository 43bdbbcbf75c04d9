"""What the cells and runs of a store may hold, kept beside it while disks and processes fail.

A write that was answered has happened. A write that failed has not, unless its error
says that the outcome is unknown: then both worlds stay possible until an answer or a
look at the store tells them apart. After a crash the store must hold one of them.

    ledger.acknowledge(set a=1, answer 1)     possible: {a: 1}
    ledger.doubt(set b=2)                     possible: {a: 1} or {a: 1, b: 2}
    ledger.acknowledge(set b=3, answer 2)     possible: {a: 1, b: 3}, b's version 1 was there

A run is kept like a cell: its events are versions, and its name begins with `run:`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.errors import NotFound
from holdfast.facets.events import Event

if TYPE_CHECKING:
    from holdfast import AsyncStore

Verb = Literal["init", "set", "cas", "delete", "set_many", "append", "delete_run"]
RUN = "run:"


class CellState(NamedTuple):
    """A cell's versions and values, newest first, and whether it is deleted now."""

    versions: tuple[tuple[int, Any], ...] = ()
    deleted: bool = False

    @property
    def live(self) -> int:
        """The version that a cas must name, 0 when there is none."""
        return 0 if self.deleted or not self.versions else self.versions[0][0]

    def after(self, value: Any) -> CellState:  # noqa: ANN401 - a cell holds any JSON value
        """The state with one version more."""
        counter = self.versions[0][0] if self.versions else 0
        return CellState(((counter + 1, value), *self.versions))


State = Mapping[str, CellState]


class Call(NamedTuple):
    """One call on `store.cells` or `store.events`: its name and its arguments."""

    verb: Verb
    arguments: tuple[Any, ...]

    async def make(self, store: AsyncStore) -> object:
        """The store's answer."""
        if self.verb == "append":
            run_id, values = self.arguments
            # No event without a key of its own: values are long, and random.
            events = [Event(run_id, "Noted", value[:64], value) for value in values]
            return [one.run_seq for one in await store.events.append_events(events)]
        if self.verb == "delete_run":
            try:
                await store.events.delete_run(*self.arguments, force=True)
            except NotFound:
                return False
            return True
        return await getattr(store.cells, self.verb)(*self.arguments)

    def apply(self, state: State) -> tuple[State, object]:  # noqa: PLR0911 - one for each verb
        """The state after the call, and the answer that it must give."""
        if self.verb == "set_many":
            (values,) = self.arguments
            new = {
                name: state.get(name, CellState()).after(value) for name, value in values.items()
            }
            return {**state, **new}, {name: cell.live for name, cell in new.items()}
        name, *rest = self.arguments
        cell = state.get(name, CellState())
        if self.verb == "append":
            for value in rest[0]:
                cell = cell.after(value)
            last = cell.live + 1
            return {**state, name: cell}, [*range(last - len(rest[0]), last)]
        if self.verb == "delete_run":
            return {**state, name: CellState()}, cell.live > 0
        if self.verb == "delete":
            return {**state, name: CellState(cell.versions, deleted=True)}, cell.live > 0
        if self.verb == "init" and cell.live:
            return state, cell.live
        if self.verb == "cas" and (rest[0] or 0) != cell.live:
            return state, None
        new_cell = cell.after(rest[-1])
        return {**state, name: new_cell}, new_cell.live


class Ledger:
    """The states that a store may be in."""

    def __init__(self, state: State | None = None) -> None:
        self.possible: list[State] = [state or {}]

    def acknowledge(self, call: Call, answer: object) -> None:
        """The call was answered; AssertionError when no possible state gives that answer."""
        outcomes = [call.apply(state) for state in self.possible]
        self._narrow([state for state, expected in outcomes if expected == answer])
        assert self.possible, f"{_short(call)}: answered {answer!r}, wanted {_short(outcomes)}"

    def doubt(self, call: Call) -> None:
        """The call failed and may have happened."""
        self._narrow([*self.possible, *(call.apply(state)[0] for state in self.possible)])

    def allows(self, state: State) -> bool:
        """Whether the store may be in this state."""
        return _known(state) in [_known(possible) for possible in self.possible]

    def observe(self, state: State) -> None:
        """The store is in this state; AssertionError when it must not be."""
        assert self.allows(state), f"found {_short(state)}, wanted one of {_short(self.possible)}"
        self.possible = [state]

    def _narrow(self, states: list[State]) -> None:
        self.possible = []
        for state in states:
            if state not in self.possible:
                self.possible.append(state)


async def read_state(store: AsyncStore, names: Iterable[str]) -> State:
    """All that the store says about these cells, and all of its runs.

    AssertionError when it contradicts itself.
    """
    listed = set(await store.cells.list())
    state = {}
    for name in names:
        newest = await store.cells.get_versioned(name)
        versions = tuple((cell.version, cell.value) for cell in await store.cells.getv(name))
        assert (newest is not None) == (name in listed), f"cell {name!r}: listed are {listed}"
        assert newest is None or versions[:1] == ((newest.version, newest.value),)
        state[name] = CellState(versions, deleted=newest is None)
    for run_id in await store.events.list_runs():
        events = await store.events.fetch_events(run_id)
        versions = tuple((event.run_seq, event.event_data) for event in reversed(events))
        assert versions, f"run {run_id!r} is listed, and has no events"
        state[run_id] = CellState(versions)
        snapshot = await store.events.get_snapshot(run_id)
        assert snapshot is not None
        assert versions[0][0] == snapshot.last_event_seq, f"run {run_id!r}: {snapshot}"
    return state


def _known(state: State) -> State:
    """The state without the cells that never were."""
    return {name: cell for name, cell in state.items() if cell.versions}


def _short(thing: object) -> str:
    """Its repr with long values cut: they run to several pages."""
    shortener = reprlib.Repr()
    shortener.maxlevel = 8
    shortener.maxdict = shortener.maxlist = 20
    return shortener.repr(thing)

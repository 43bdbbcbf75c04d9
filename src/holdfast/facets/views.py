"""Views: what a fold makes of the events of a run, under a name.

    def total(state: int, event: Event) -> int:
        return state + event.event_data["cents"]

    cost = Projection("cost", total, initial=0)

The snapshot of a run is one of them. A view may be kept, true up to some event: whoever asks goes
on from there. Kept is, as JSON, the state and the numbers below it that the log did not have:

    {"state": 1250}                      of events 1 … n
    {"state": 1250, "gaps": [[4, 5]]}    without 4 and 5

Engines of this library number without gaps; other stores need not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import InvalidArgument, ProjectionFailed, Serialization
from holdfast.facets.events import RUN_VIEW, Event, StoredSnapshot
from holdfast.facets.names import check_name
from holdfast.facets.projection import RunSnapshot, fold

S = TypeVar("S")
_LONGEST_NAME = 200

Gap = tuple[int, int]
"""The first and the last number that are not there."""


class View(msgspec.Struct, Generic[S], frozen=True):
    """A view of a run, true up to that event of it.

    `last_seq` is what to expect when the next event depends on the state.
    """

    state: S
    last_seq: int


class Projection(Generic[S]):
    """A fold with a name.

    `fold(state, event)` gives the next state and depends on nothing else: it is called again
    whenever a view is rebuilt, by whoever needs it. The state is a JSON value, or a dataclass,
    msgspec Struct or pydantic model like `initial` (or of `state_type`). When the fold changes,
    raise `version`: views of another version are not used any more, and built anew.
    """

    def __init__(
        self,
        name: str,
        fold: Callable[[S, Event], S],
        *,
        initial: S,
        version: int = 1,
        state_type: type[S] | None = None,
    ) -> None:
        if type(version) is not int or version < 1:
            raise InvalidArgument(f"version: wanted a whole number from 1 on, found {version!r}")
        if not callable(fold):
            raise InvalidArgument(f"fold: wanted a function, found {type(fold).__name__}")
        if len(check_name(name, what="projection")) > _LONGEST_NAME:
            raise InvalidArgument(f"projection: at most {_LONGEST_NAME} letters, found {len(name)}")
        self.name = name
        self.version = version
        self._fold = fold
        self._type = _model(initial) if state_type is None else state_type
        # Text, so that a fold which changes its state in place spoils nobody else's.
        self._initial = codec.encode(initial)

    @property
    def view(self) -> str:
        """The name that its views are kept under."""
        return f"{self.name}@{self.version}"

    def begin(self, run_id: str) -> S:
        """The state of a run without events."""
        del run_id
        return self.restore(codec.decode(self._initial))

    def advance(self, state: S, events: Iterable[Event]) -> S:
        """The state after these events, which are the next ones; ProjectionFailed by the fold."""
        for event in events:
            try:
                state = self._fold(state, event)
            except Exception as exc:
                raise failure(self.view, event, exc) from exc
        return state

    def restore(self, plain: Any) -> S:  # noqa: ANN401 - any JSON value
        """The state that was encoded so."""
        if self._type is None:
            return plain  # type: ignore[no-any-return]
        try:
            if hasattr(self._type, "model_validate"):
                return self._type.model_validate(plain)  # type: ignore[attr-defined, no-any-return]
            return msgspec.convert(plain, self._type)
        except ValueError as exc:
            raise Serialization(
                f"view {self.view!r}: what is kept is no {self._type.__name__}: {exc}; "
                "raise the projection's version when its state changes",
                view=self.view,
            ) from exc

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.view}>"


class _RunProjection(Projection[RunSnapshot]):
    """The built-in one: many events in one go."""

    def __init__(self) -> None:
        super().__init__(RUN_VIEW, _no_fold, initial=RunSnapshot(""), state_type=RunSnapshot)

    @property
    def view(self) -> str:
        return RUN_VIEW

    def begin(self, run_id: str) -> RunSnapshot:
        return RunSnapshot(run_id)

    def advance(self, state: RunSnapshot, events: Iterable[Event]) -> RunSnapshot:
        return fold(state, events)


def _no_fold(state: RunSnapshot, event: Event) -> RunSnapshot:
    return fold(state, [event])


RUN: Projection[RunSnapshot] = _RunProjection()
"""The snapshot of a run."""


class Kept(NamedTuple, Generic[S]):
    """A view with what tells where to go on."""

    state: S
    last_seq: int = 0
    gaps: tuple[Gap, ...] = ()

    def has_gap_at(self, seq: int) -> bool:
        """True if the log had no such event when it was folded."""
        return any(first <= seq <= last for first, last in self.gaps)


class _Payload(msgspec.Struct, omit_defaults=True):
    state: Any = None
    gaps: tuple[Gap, ...] = ()


def to_stored(projection: Projection[S], run_id: str, kept: Kept[S]) -> StoredSnapshot:
    """The view as it is kept; ProjectionFailed when the state is no JSON value."""
    plain: dict[str, Any] = {"state": kept.state}
    if kept.gaps:
        plain["gaps"] = kept.gaps
    try:
        payload = codec.encode(plain).decode()
    except (InvalidArgument, Serialization) as exc:
        raise ProjectionFailed(
            f"view {projection.view!r} of run {run_id!r}: its state cannot be kept: {exc}",
            view=projection.view,
            run_id=run_id,
            run_seq=kept.last_seq,
        ) from exc
    return StoredSnapshot(kept.last_seq, payload)


def from_stored(projection: Projection[S], stored: StoredSnapshot) -> Kept[S]:
    """The view that was kept so."""
    try:
        found = msgspec.convert(codec.decode(stored.payload), _Payload)
    except msgspec.ValidationError as exc:
        raise Serialization(f"view {projection.view!r}: what is kept is no view: {exc}") from exc
    return Kept(projection.restore(found.state), stored.last_seq, found.gaps)


def failure(view: str, event: Event, exc: Exception) -> ProjectionFailed:
    """The error for a fold that raised."""
    return ProjectionFailed(
        f"view {view!r} of run {event.run_id!r}: the fold failed at event {event.run_seq} "
        f"({event.event_type}): {type(exc).__name__}: {exc}",
        view=view,
        run_id=event.run_id,
        run_seq=event.run_seq,
    )


def check_projection(projection: Projection[S]) -> Projection[S]:
    """The projection itself, if it is one."""
    if not isinstance(projection, Projection):
        raise InvalidArgument(f"wanted a Projection, found {type(projection).__name__}")
    return projection


def _model(initial: S) -> type[S] | None:
    kind = type(initial)
    is_model = isinstance(initial, msgspec.Struct) or hasattr(initial, "model_validate")
    return kind if is_model or dataclasses.is_dataclass(initial) else None

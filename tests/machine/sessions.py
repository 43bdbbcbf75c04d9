"""Sessions that stay open while the machine goes on, on the store and on the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast import Cell, Conflict
from holdfast.testing.cells_model import Missing
from holdfast.testing.sessions_model import ModelSession
from tests.machine.lockstep import Call, Lockstep, Opened, outcome

MOST = 2
"""Sessions that are open at once."""


class OpenSession(NamedTuple):
    """One session, twice."""

    opened: Opened
    real: Any
    model: ModelSession


class Sessions:
    """The open sessions of one example."""

    def __init__(self, pair: Lockstep) -> None:
        self.open: list[OpenSession] = []
        self._pair = pair
        self._counts = pair.counts

    def begin(self, at: int) -> None:
        """Open one more; nothing is read yet."""
        opened, real, model = self._pair.cells(at)
        session = ModelSession(self._pair.model, model)
        self.open.append(OpenSession(opened, opened.call(real.session), session))

    def live_version(self, which: int, name: str) -> int:
        """The version that the session sees, 0 for none."""
        try:
            return self._session(which).model.live_version(name)
        except Missing:
            return 0

    def work(self, which: int, call: Call) -> None:
        """The same call in both; on a missing branch that is the session's end."""
        session = self._session(which)
        expected = outcome(lambda: call.on(session.model))
        found = outcome(lambda: session.opened.colour.run(call.on(session.real)))
        self._counts[f"{call.method} in a session"] += 1
        if expected is Missing or call.method != "getv":
            assert self._pair.seen(found) == self._pair.seen(expected)
        else:
            self._compare_versions(session.model, found, *call.args)
        if expected is Missing:
            self.roll_back(which)

    def commit(self, which: int) -> None:
        """The same versions, the same Conflict, or the same NotFound."""
        session = self._pop(which)
        found = outcome(lambda: session.opened.colour.run(session.real.commit()))
        try:
            certain, possible = session.model.changed()
        except Missing:
            assert found is Missing
            self._counts["sessions without branch"] += 1
            return
        if isinstance(found, Conflict):
            assert found.retryable
            assert found.cells == sorted(found.cells)
            assert certain <= set(found.cells) <= possible
            self._counts["sessions in conflict"] += 1
            return
        assert not certain, f"committed, though others changed {certain}"
        versions = session.model.write()
        assert found == versions
        self._counts["sessions committed" if versions else "sessions without values"] += 1

    def roll_back(self, which: int) -> None:
        """Leave nothing behind."""
        session = self._pop(which)
        session.opened.colour.run(session.real.rollback())
        self._counts["sessions rolled back"] += 1

    def leave(self, store: Opened) -> None:
        """Give up those on a store that is about to be closed."""
        for session in [session for session in self.open if session.opened is store]:
            self.open.remove(session)
            store.colour.run(session.real.rollback())

    def _compare_versions(
        self,
        model: ModelSession,
        found: list[Cell],
        name: str,
        limit: int | None,
    ) -> None:
        own = None if limit == 0 else model.own(name)
        if own is not None:
            assert self._pair.seen(found[:1]) == self._pair.seen([own])
            found, limit = found[1:], None if limit is None else limit - 1
        if limit == 0:
            assert found == []
        else:
            self._pair.compare_versions(model.past, name, found, limit)

    def _session(self, which: int) -> OpenSession:
        return self.open[which % len(self.open)]

    def _pop(self, which: int) -> OpenSession:
        return self.open.pop(which % len(self.open))

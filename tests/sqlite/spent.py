"""What SQLite spends on the work that a test does, counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import apsw


class Spent:
    """Statements and steps of SQLite's virtual machine, on all connections made since."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.steps = 0

    def watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add)

    def take(self) -> tuple[list[str], int]:
        """What was spent since the last call."""
        taken = self.statements, self.steps
        self.statements, self.steps = [], 0
        return taken

    def _add(self, event: dict[str, object]) -> None:
        status = event["stmt_status"]
        assert isinstance(status, dict)
        self.statements.append(str(event["sql"]))
        self.steps += status["SQLITE_STMTSTATUS_VM_STEP"]


@contextlib.contextmanager
def counted() -> Iterator[Spent]:
    """Counts on every connection that is made inside."""
    spent = Spent()
    apsw.connection_hooks.append(spent.watch)
    try:
        yield spent
    finally:
        apsw.connection_hooks.remove(spent.watch)

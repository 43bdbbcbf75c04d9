"""Hooks into every apsw connection of this process, ours and a contender's alike, for a tally."""

from typing import Any

import apsw

from bench.tally import Tally
from holdfast.testing.counting import CountingDisk


def count_statements(tally: Tally) -> None:
    """Count statements (BEGIN and COMMIT too, triggers' not) and commits of writes from now on."""

    def traced(event: dict[str, Any]) -> None:
        if not event["trigger"]:
            tally.statement()

    def committing() -> bool:
        tally.transaction()
        return False  # True would roll back

    def attach(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, traced, id=tally)
        connection.set_commit_hook(committing, id=tally)

    apsw.connection_hooks.append(attach)
    tally.hooked = True


def count_syncs(tally: Tally) -> str:
    """The name of a file system on which syncs are counted, for a process without the shim."""
    disk = CountingDisk("bench-counting")
    tally.sync_source = lambda: disk.total().syncs
    return disk.name

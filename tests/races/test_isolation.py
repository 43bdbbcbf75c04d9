"""Sessions of several processes: no history shows what sessions rule out.

HOLDFAST_SESSION_HISTORIES (per engine) and HOLDFAST_SESSIONS (per history) scale the run;
HOLDFAST_SEED repeats one.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

import holdfast
from holdfast.testing.fleet import Fleet
from holdfast.testing.isolation import Attempt, History
from holdfast.testing.session_load import FAULTS, SEATS_AT_MOST, history

COLOURS = [["blocking"], ["async"], ["blocking", "async"]]
HISTORIES = -(-int(os.environ.get("HOLDFAST_SESSION_HISTORIES", "3")) // len(COLOURS))
SESSIONS = int(os.environ.get("HOLDFAST_SESSIONS", "300"))
SEED = os.environ.get("HOLDFAST_SEED") or str(random.randrange(10**9))
PROCESSES = 6
CALLERS = 2


def run(
    fleet: Fleet, url: str, *, number: int, colours: Sequence[str], fault: str = "none"
) -> list[Attempt]:
    records = fleet.run(
        "holdfast.testing.session_load:record",
        [
            {
                "url": url,
                "process": process,
                "callers": CALLERS,
                "attempts": -(-SESSIONS // (PROCESSES * CALLERS)),
                "seed": f"{SEED}/{number}/{process}",
                "colour": colours[process % len(colours)],
                "fault": fault,
            }
            for process in range(PROCESSES)
        ],
    )
    cells = {cell for rows in records for row in rows for cell in row["made"]}
    with holdfast.open(url) as store:
        return history(records, [store.cells.getv(cell) for cell in sorted(cells)])


def void(attempts: Sequence[Attempt]) -> str:
    """Why the run proves nothing, or an empty string."""
    outcomes = Counter(attempt.outcome for attempt in attempts)
    absent = sum(not state.there for attempt in attempts for state in attempt.reads.values())
    found = {
        "sessions": (len(attempts), SESSIONS),
        "committed": (outcomes["committed"], SESSIONS // 4),
        "conflicts": (outcomes["conflict"], SESSIONS // 50),
        "rolled back": (outcomes["rolled back"], SESSIONS // 50),
        "read absences": (absent, SESSIONS // 10),
        "lists": (sum(bool(attempt.lists) for attempt in attempts), SESSIONS // 5),
    }
    return ", ".join(
        f"{what}: {n}, needs {least}" for what, (n, least) in found.items() if n < least
    )


@pytest.mark.parametrize("colours", COLOURS, ids="+".join)
def test_sessions_are_isolated(
    fleet: Fleet,
    new_url: Callable[[], str],
    engine: str,
    colours: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    sys.stderr.write(f"HOLDFAST_SEED={SEED}\n")
    for number in range(HISTORIES):
        attempts = run(fleet, new_url(), number=number, colours=colours)
        found = History(attempts).violations()
        assert found == [], f"HOLDFAST_SEED={SEED}, history {number}"
        assert not void(attempts), f"history {number} is void: {void(attempts)}"
        seats = [len(names) for attempt in attempts for names in attempt.lists.values()]
        assert max(seats) == SEATS_AT_MOST
        if "HOLDFAST_SESSION_HISTORIES" in os.environ:
            with capfd.disabled():
                done = f"{engine} {'+'.join(colours)}: {number + 1} of {HISTORIES} histories"
                sys.stderr.write(f"\r{done} ")
                sys.stderr.flush()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "none"])
def test_a_broken_rule_is_found(fleet: Fleet, new_url: Callable[[], str], fault: str) -> None:
    kinds: Counter[str] = Counter()
    for number in range(10):
        attempts = run(fleet, new_url(), number=number, colours=["blocking"], fault=fault)
        kinds.update(found.kind for found in History(attempts).violations())
        if kinds[fault]:
            return
    pytest.fail(f"HOLDFAST_SEED={SEED}: ten histories without a {fault}, only {kinds}")

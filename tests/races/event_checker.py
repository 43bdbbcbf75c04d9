"""Finds what is wrong with runs, given what writers and readers were told of them.

acknowledged   (run, key, run_seq, whether it was new), by all writers
log            what each run holds in the end: (run_seq, key), in the order it is read in
told           what a reader of the feed heard: (run, run_seq, key)
"""

from collections import Counter
from collections.abc import Mapping, Sequence

Acknowledged = tuple[str, str, int, bool]
Log = Mapping[str, Sequence[tuple[int, str]]]
Told = list[tuple[str, int, str]]


def wrong_in_log(acknowledged: Sequence[Acknowledged], log: Log) -> list[str]:
    """Gaps, doubles, and what was acknowledged otherwise than it is there."""
    wrong = []
    held = {}
    for run, events in log.items():
        numbers = [seq for seq, _ in events]
        if numbers != [*range(1, len(events) + 1)]:
            wrong.append(f"{run}: numbers are not 1 to {len(events)} in order")
        twice = [key for key, count in Counter(key for _, key in events).items() if count > 1]
        wrong += [f"{run}: key {key} is there twice" for key in twice]
        held.update({(run, key): seq for seq, key in events})
    news: Counter[tuple[str, str]] = Counter()
    for run, key, seq, new in acknowledged:
        news[run, key] += new
        if held.get((run, key)) != seq:
            wrong.append(f"{run}: {key} was acknowledged as {seq}, is {held.get((run, key))}")
    for place in held:
        if news[place] != 1:
            wrong.append(f"{place[0]}: {place[1]} was new for {news[place]} writers")
    return wrong


def wrong_in_feed(told: Told, log: Log) -> list[str]:
    """What was missed, told twice, or told before what comes first in its run."""
    wrong = []
    last: Counter[str] = Counter()
    for run, seq, key in told:
        if seq != last[run] + 1:
            wrong.append(f"{run}: event {seq} came after {last[run]}")
        last[run] = max(seq, last[run])
        events = log.get(run, ())
        if not 0 < seq <= len(events) or events[seq - 1] != (seq, key):
            wrong.append(f"{run}: event {seq} was told as {key}")
    for run, events in log.items():
        if last[run] != len(events):
            wrong.append(f"{run}: was told up to {last[run]} of {len(events)}")
    return wrong

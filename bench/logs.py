"""What the contenders of events share: the events of the past, and the count in the end."""

from collections.abc import Iterator
from typing import Final

from bench.scenario import Work
from holdfast import Event

KIND: Final = "StepCompleted"
_AT_ONCE: Final = 1000


def new_event(work: Work, run: str, number: int) -> Event:
    """The event of that number, with a key of its own.

    For a snapshot it is about a step: one of ten, else the snapshot would grow with the run.
    """
    step = f"step-{number % 10}" if work.operation == "snapshot" else None
    return Event(run, KIND, f"key-{number}", work.content(number), step)


def past_events(work: Work) -> Iterator[list[Event]]:
    """What is there before the clock starts, page by page."""
    run = work.cells(0)[0]
    for begin in range(0, work.events, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, work.events))
        yield [new_event(work, run, -number) for number in numbers]


def check_log(work: Work, found: int, done: int) -> None:
    """Raise unless there are exactly the events that were appended."""
    written = {"append": done, "append_ten": 10 * done}.get(work.operation, 0)
    wanted = work.events + written
    assert found == wanted, f"{found} events arrived, {wanted} were appended"

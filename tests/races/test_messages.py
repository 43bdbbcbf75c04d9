"""Publishers and consumers of several processes: every message is done once, in every group."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.fleet import Fleet

TASKS = Path(__file__).with_name("message_tasks.py")
PUBLISHERS, CONSUMERS = 3, 3
GROUPS = ("one", "two")


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def race(
    fleet: Fleet, url: str, *, messages: int, ack_first: bool = False
) -> tuple[set[str], dict[str, Counter[str]], int]:
    """What was published, how often each was done in each group, and how many were seen again."""
    if url.startswith("sqlite:"):
        url += "?busy_timeout=60"  # nine processes, and SQLite's lock is not fair
    with holdfast.open(url) as store:
        for group in GROUPS:
            store.transport.create_group(group, "work", ack_timeout=0.2, max_deliveries=1000)
    names = [f"{TASKS}:publish"] * PUBLISHERS + [f"{TASKS}:consume"] * CONSUMERS * len(GROUPS)
    each = [{"url": url, "racer": racer, "messages": messages} for racer in range(PUBLISHERS)]
    each += [
        {"url": url, "racer": racer, "group": group, "ack_first": ack_first}
        for group in GROUPS
        for racer in range(CONSUMERS)
    ]
    results = fleet.run(names, each)
    published = {message for sent in results[:PUBLISHERS] for message in sent}
    done: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    again = 0
    for place, result in enumerate(results[PUBLISHERS:]):
        done[GROUPS[place // CONSUMERS]].update(result["done"])
        again += len(result["seen"]) - len(result["done"])
    return published, done, again


def test_every_message_is_done_once_in_every_group(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    published, done, again = race(fleet, new_url(), messages=120)
    assert len(published) > 200
    for group in GROUPS:
        assert set(done[group]) == published
        assert set(done[group].values()) == {1}
    assert again > 10, "void: hardly any message was delivered again"


def test_answers_that_came_too_late_would_be_noticed(
    fleet: Fleet, new_url: Callable[[], str]
) -> None:
    for _ in range(5):
        _, done, _ = race(fleet, new_url(), messages=60, ack_first=True)
        if any(count > 1 for group in GROUPS for count in done[group].values()):
            return
    pytest.fail("five races counted late answers, and no message was done twice")

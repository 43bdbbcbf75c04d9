"""Calls that are due later, for threads."""

import threading
import time

from holdfast.runtime.watchdog import Watchdog

PATIENCE = 30
LONG = 3600


def test_calls_come_in_the_order_in_which_they_are_due() -> None:
    watchdog = Watchdog()
    called: list[int] = []
    over = threading.Event()
    watchdog.add(0.03, over.set)
    watchdog.add(0.02, lambda: called.append(2))
    watchdog.add(0.01, lambda: called.append(1))
    assert over.wait(PATIENCE)
    assert called == [1, 2]


def test_a_call_is_not_made_before_it_is_due() -> None:
    watchdog = Watchdog()
    over = threading.Event()
    started = time.monotonic()
    watchdog.add(0.05, over.set)
    assert over.wait(PATIENCE)
    assert time.monotonic() - started >= 0.05


def test_what_is_called_off_is_not_called() -> None:
    watchdog = Watchdog()
    called: list[str] = []
    over = threading.Event()
    call_off = watchdog.add(0.01, lambda: called.append("called off"))
    call_off()
    watchdog.add(0.02, over.set)
    assert over.wait(PATIENCE)
    assert called == []


def test_a_nearer_call_does_not_wait_for_a_farther_one() -> None:
    watchdog = Watchdog()
    over = threading.Event()
    watchdog.add(LONG, lambda: None)
    watchdog.add(0.01, over.set)
    assert over.wait(PATIENCE)


def test_a_failing_call_does_not_harm_the_next() -> None:
    watchdog = Watchdog()
    over = threading.Event()

    def fail() -> None:
        raise RuntimeError("a defect")

    watchdog.add(0.0, fail)
    watchdog.add(0.01, over.set)
    assert over.wait(PATIENCE)

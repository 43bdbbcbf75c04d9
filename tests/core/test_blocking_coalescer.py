"""The threads' coalescer: one flushes, the others' calls gather, and no interruption hangs anyone.

Every unit tells when it is queued behind a flush, so nothing here waits for time to pass.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import msgspec
import pytest

from holdfast import InvalidState, Unavailable
from holdfast.runtime import blocking
from holdfast.runtime.blocking import ThreadCoalescer, run
from holdfast.runtime.contract import MAX_BATCH_ITEMS, Unit

PATIENCE = 30


class Queued(Unit, eq=False, kw_only=True):
    """A unit that tells when its thread begins to wait, and can be interrupted there."""

    interrupt: Callable[[Any], object] | None
    queued: threading.Event = msgspec.field(default_factory=threading.Event)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - of any field
        waits = name == "waiter" and value is not None
        super().__setattr__(name, _Waiter(value, self) if waits else value)


class _Waiter:
    """The lock on which a thread waits; its second acquire is where an interrupt strikes."""

    def __init__(self, lock: Any, unit: Queued) -> None:  # noqa: ANN401 - a lock
        self._lock = lock
        self._unit = unit
        self._held = False

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def acquire(self, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return bool(self._lock.acquire())
        self._unit.queued.set()
        if self._unit.interrupt is not None:
            self._unit.interrupt(self._lock)
            raise KeyboardInterrupt
        return bool(self._lock.acquire(timeout=timeout))

    def release(self) -> None:
        self._lock.release()


class Caller:
    """One call on a thread of its own."""

    def __init__(self, coalescer: ThreadCoalescer, unit: Queued) -> None:
        self._coalescer = coalescer
        self.unit = unit
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            run(self._coalescer.submit(self.unit))
        except BaseException as exc:  # noqa: BLE001 - looked at by the test
            self.error = exc

    def result(self) -> list[Any]:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), f"the call with {self.unit.items} never ended"
        if self.error is not None:
            raise self.error
        return list(self.unit.result())


class Flusher:
    """Answers every unit with its items; a flush that holds a closed gate stops there."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.threads: list[threading.Thread] = []
        self.gates: dict[str, threading.Event] = {}
        self.entered: dict[str, threading.Event] = {}
        self.errors: dict[str, BaseException] = {}
        self.coalescer = ThreadCoalescer(self.flush)

    async def flush(self, units: list[Unit]) -> None:
        names = [unit.items[0] for unit in units]
        self.batches.append(names)
        self.threads.append(threading.current_thread())
        for name in names:
            if name in self.gates:
                self.entered[name].set()
                assert self.gates[name].wait(PATIENCE)
            if name in self.errors:
                raise self.errors[name]
        for unit in units:
            unit.answers = list(unit.items)
            unit.settled = True

    def call(self, *items: object, interrupt: Callable[[Any], object] | None = None) -> Caller:
        return Caller(self.coalescer, Queued(None, list(items), interrupt=interrupt))

    def stop_inside(self, name: str) -> Caller:
        """A call that leads a flush, which waits for `gates[name]`."""
        self.gates[name], self.entered[name] = threading.Event(), threading.Event()
        caller = self.call(name)
        assert self.entered[name].wait(PATIENCE)
        return caller

    def queue(self, *items: object, interrupt: Callable[[Any], object] | None = None) -> Caller:
        """A call that waits behind the flush of another."""
        caller = self.call(*items, interrupt=interrupt)
        assert caller.unit.queued.wait(PATIENCE)
        return caller


@pytest.fixture
def flusher() -> Iterator[Flusher]:
    flusher = Flusher()
    yield flusher
    for gate in flusher.gates.values():
        gate.set()


def test_caller_that_finds_nobody_flushes_on_its_own_thread(flusher: Flusher) -> None:
    run(flusher.coalescer.submit(Unit(None, ["x"])))
    assert flusher.threads == [threading.current_thread()]


def test_calls_during_a_flush_form_the_next_one_in_order(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    others = [flusher.queue(number) for number in range(8)]
    assert flusher.batches == [["first"]]
    flusher.gates["first"].set()
    assert [caller.result() for caller in [first, *others]] == [
        ["first"],
        *([number] for number in range(8)),
    ]
    assert flusher.batches == [["first"], list(range(8))]
    assert flusher.threads == [first.thread, others[0].thread]


def test_nobody_works_for_others_after_its_own_answer(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    flusher.gates["second"], flusher.entered["second"] = threading.Event(), threading.Event()
    second = flusher.queue("second")
    flusher.gates["first"].set()
    assert flusher.entered["second"].wait(PATIENCE)
    assert first.result() == ["first"]  # while the second flush still runs
    flusher.gates["second"].set()
    assert second.result() == ["second"]


def test_flush_takes_so_many_items_and_no_more(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    sizes = [MAX_BATCH_ITEMS - 1, 1, 1, MAX_BATCH_ITEMS + 5, MAX_BATCH_ITEMS, 1]
    callers = [flusher.queue(*([number] * size)) for number, size in enumerate(sizes)]
    flusher.gates["first"].set()
    assert [len(caller.result()) for caller in callers] == sizes
    first.result()
    assert flusher.batches == [["first"], [0, 1], [2], [3], [4], [5]]


def test_failing_flush_answers_everybody_in_it_and_the_next_one_works(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    others = [flusher.queue(name) for name in ("a", "bad", "c")]
    flusher.errors["bad"] = RuntimeError("a defect")
    flusher.gates["first"].set()
    for caller in others:
        with pytest.raises(RuntimeError, match="a defect"):
            caller.result()
    assert first.result() == ["first"]
    assert flusher.call("next").result() == ["next"]


def test_interrupted_leader_tells_the_others_that_nobody_knows(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    leader, *others = (flusher.queue(name) for name in ("leader", "a", "b"))
    flusher.errors["leader"] = KeyboardInterrupt()
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    for caller in others:
        with pytest.raises(Unavailable, match="interrupted") as caught:
            caller.result()
        assert (caught.value.outcome_unknown, caught.value.retryable) == (True, True)
    assert first.result() == ["first"]


def test_interrupted_leader_hands_the_lead_over(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    flusher.errors["first"] = KeyboardInterrupt()
    waiting = flusher.queue("waiting")
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert waiting.result() == ["waiting"]


def test_caller_interrupted_while_it_waits_is_not_flushed(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    gone = flusher.queue("gone", interrupt=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        gone.result()
    stays = flusher.queue("stays")
    flusher.gates["first"].set()
    assert (first.result(), stays.result()) == (["first"], ["stays"])
    assert flusher.batches == [["first"], ["stays"]]


def test_caller_interrupted_as_the_lead_comes_to_it_hands_it_over(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    gone = flusher.queue("gone", interrupt=lambda lock: lock.acquire(timeout=PATIENCE))
    stays = flusher.queue("stays")
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        gone.result()
    assert (first.result(), stays.result()) == (["first"], ["stays"])
    assert flusher.batches == [["first"], ["stays"]]


def test_caller_interrupted_during_its_flush_harms_nobody(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    flusher.gates["leader"], flusher.entered["leader"] = threading.Event(), threading.Event()
    leader = flusher.queue("leader")
    inside = flusher.entered["leader"]
    gone = flusher.queue("gone", interrupt=lambda _: inside.wait(PATIENCE))
    stays = flusher.queue("stays")
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        gone.result()
    flusher.gates["leader"].set()
    assert [caller.result() for caller in (first, leader, stays)] == [
        ["first"],
        ["leader"],
        ["stays"],
    ]
    assert flusher.batches == [["first"], ["leader", "gone", "stays"]]
    assert flusher.call("next").result() == ["next"]


def test_drain_waits_for_what_is_in_flight_and_queued(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    second = flusher.queue("second")
    drained = threading.Event()

    def drain() -> None:
        run(flusher.coalescer.drain())
        drained.set()

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    assert not drained.is_set()
    flusher.gates["first"].set()
    assert drained.wait(PATIENCE)
    assert flusher.batches == [["first"], ["second"]]
    assert (first.result(), second.result()) == (["first"], ["second"])


def test_drain_of_an_idle_coalescer_returns_at_once(flusher: Flusher) -> None:
    run(flusher.coalescer.drain())
    assert flusher.call("x").result() == ["x"]
    run(flusher.coalescer.drain())


def test_many_threads_all_get_their_own_answers(flusher: Flusher) -> None:
    callers = [flusher.call(number) for number in range(50)]
    assert [caller.result() for caller in callers] == [[number] for number in range(50)]
    assert sorted(name for batch in flusher.batches for name in batch) == list(range(50))


# Stepping coroutines


async def nothing() -> str:
    return "done"


async def failing() -> None:
    raise KeyError("x")


def test_coroutine_is_run_to_its_end() -> None:
    assert run(nothing()) == "done"
    with pytest.raises(KeyError):
        run(failing())


def test_coroutine_that_suspends_is_refused() -> None:
    class Suspend:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def suspending() -> None:
        await Suspend()

    coroutine: Coroutine[Any, Any, None] = suspending()
    with pytest.raises(InvalidState, match="suspended"):
        run(coroutine)
    assert coroutine.cr_frame is None  # type: ignore[attr-defined] # closed, not left hanging


# Holding the lead


def test_nothing_is_flushed_while_somebody_holds_the_lead(flusher: Flusher) -> None:
    hold = run(flusher.coalescer.hold(PATIENCE))
    assert hold is not None
    waiting = [flusher.queue(name) for name in ("a", "b")]
    assert flusher.batches == []
    hold.release()
    assert [caller.result() for caller in waiting] == [["a"], ["b"]]
    assert flusher.batches == [["a", "b"]]
    hold.release()  # a second time does nothing
    assert flusher.call("after").result() == ["after"]


def test_a_hold_comes_in_turn(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    before = flusher.queue("before")
    holds: list[Any] = []
    holder = threading.Thread(target=lambda: holds.append(run(flusher.coalescer.hold(PATIENCE))))
    holder.start()
    waiting = flusher.coalescer._waiting  # noqa: SLF001 - no other sign that it waits
    while len(waiting) < 2:
        threading.Event().wait(0.001)
    after = flusher.queue("after")
    flusher.gates["first"].set()
    assert (first.result(), before.result()) == (["first"], ["before"])
    holder.join(PATIENCE)
    assert flusher.batches == [["first"], ["before"]]
    holds[0].release()
    assert after.result() == ["after"]


def test_a_hold_that_cannot_be_had_in_time_harms_nobody(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    assert run(flusher.coalescer.hold(0.01)) is None
    after = flusher.queue("after")
    flusher.gates["first"].set()
    assert (first.result(), after.result()) == (["first"], ["after"])


def test_drain_waits_for_who_holds_the_lead(flusher: Flusher) -> None:
    hold = run(flusher.coalescer.hold(PATIENCE))
    assert hold is not None
    drained = threading.Event()

    def drain() -> None:
        run(flusher.coalescer.drain())
        drained.set()

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    assert not drained.wait(0.05)
    hold.release()
    assert drained.wait(PATIENCE)


# Interrupts while a thread leaves


def test_a_thread_that_is_interrupted_again_and_again_still_leaves(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flusher.stop_inside("first")
    leader, follower = flusher.queue("leader"), flusher.queue("follower")
    leave, tries = ThreadCoalescer._leave, iter(range(5))  # noqa: SLF001 - what is interrupted

    def interrupted(self: ThreadCoalescer, unit: Unit) -> None:
        if unit is leader.unit and next(tries, None) is not None:
            raise KeyboardInterrupt
        leave(self, unit)

    monkeypatch.setattr(ThreadCoalescer, "_leave", interrupted)
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    assert next(tries, None) is None
    assert (first.result(), follower.result()) == (["first"], ["follower"])
    assert flusher.call("after").result() == ["after"]


def test_who_is_not_told_of_a_free_lead_takes_it(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flusher.stop_inside("first")
    waiting = flusher.queue("waiting")
    hand_on = ThreadCoalescer._hand_on  # noqa: SLF001 - what is interrupted

    def interrupted(self: ThreadCoalescer) -> None:
        if threading.current_thread() is first.thread:
            raise KeyboardInterrupt
        hand_on(self)

    monkeypatch.setattr(ThreadCoalescer, "_hand_on", interrupted)
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert waiting.result() == ["waiting"]


def test_who_leads_but_was_not_woken_looks_again(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flusher.stop_inside("first")
    leader = flusher.queue("leader")
    flusher.gates["leader"], flusher.entered["leader"] = threading.Event(), threading.Event()
    flusher.gates["first"].set()
    assert flusher.entered["leader"].wait(PATIENCE)
    waiting = flusher.queue("waiting")

    wake = blocking._wake  # noqa: SLF001 - what is interrupted

    def interrupted(unit: Unit) -> None:
        if threading.current_thread() is leader.thread and unit is waiting.unit:
            raise KeyboardInterrupt
        wake(unit)

    monkeypatch.setattr(blocking, "_wake", interrupted)
    flusher.gates["leader"].set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    assert (first.result(), waiting.result()) == (["first"], ["waiting"])


def test_a_thread_interrupted_while_it_waits_for_a_hold_harms_nobody(flusher: Flusher) -> None:
    first = flusher.stop_inside("first")
    errors: list[BaseException] = []

    class Interrupting(Unit, eq=False):
        def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - of any field
            if name == "waiter" and value is not None:
                super().__setattr__(name, _InterruptedWait())
            else:
                super().__setattr__(name, value)

    class _InterruptedWait:
        def acquire(self, timeout: float = -1) -> bool:
            if timeout == -1:
                return True
            raise KeyboardInterrupt

    def hold() -> None:
        try:
            run(flusher.coalescer.hold(PATIENCE))
        except BaseException as exc:  # noqa: BLE001 - looked at below
            errors.append(exc)

    with pytest.MonkeyPatch.context() as now:
        now.setattr(blocking, "Unit", Interrupting)
        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        holder.join(PATIENCE)
    assert [type(error) for error in errors] == [KeyboardInterrupt]
    after = flusher.queue("after")
    flusher.gates["first"].set()
    assert (first.result(), after.result()) == (["first"], ["after"])


def test_a_thread_interrupted_where_its_leaving_begins_still_leaves(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flusher.stop_inside("first")
    leader = flusher.queue("leader")
    flush = flusher.flush
    interrupt = functools.partial(
        ctypes.pythonapi.PyThreadState_SetAsyncExc,
        ctypes.c_ulong(leader.thread.ident or 0),
        ctypes.py_object(KeyboardInterrupt),
    )

    class Strike(int):
        # A call from C, which Python does not notice before the next function begins. (It is
        # an int because the call is given the object, and C takes that for a number.)
        now = property(interrupt)

    strike = Strike(0)

    def interrupted(units: list[Unit]) -> None:
        run(flush(units))
        strike.now  # noqa: B018 - what it does is all

    monkeypatch.setattr(flusher.coalescer, "_flush", interrupted)
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    monkeypatch.setattr(flusher.coalescer, "_flush", flush)
    assert (first.result(), flusher.call("after").result()) == (["first"], ["after"])


def test_units_left_in_both_lists_are_not_handed_the_lead(
    flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flusher.stop_inside("first")
    leader, follower = flusher.queue("leader"), flusher.queue("follower")
    interrupts = iter(("between the two lines that take a batch", "while it tells the others"))

    class Waiting(list[Unit]):
        def __delitem__(self, key: Any) -> None:  # noqa: ANN401 - as a list has it
            if threading.current_thread() is leader.thread and next(interrupts, None):
                raise KeyboardInterrupt
            super().__delitem__(key)

    waiting = Waiting(flusher.coalescer._waiting)  # noqa: SLF001 - what is interrupted
    monkeypatch.setattr(flusher.coalescer, "_waiting", waiting)
    fail = Unit.fail

    def told(self: Unit, error: BaseException) -> None:
        fail(self, error)
        if self is follower.unit and next(interrupts, None):
            follower.unit.waiter.release()  # it hears of it, and leaves, before all are told
            follower.thread.join(PATIENCE)
            raise KeyboardInterrupt

    monkeypatch.setattr(Unit, "fail", told)
    flusher.gates["first"].set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    with pytest.raises(Unavailable, match="interrupted"):
        follower.result()
    assert next(interrupts, None) is None
    assert (first.result(), flusher.call("after").result()) == (["first"], ["after"])


@pytest.mark.usefixtures("garbage_waits")
def test_a_stack_without_room_leaves_the_lead() -> None:
    def settle(units: list[Unit]) -> None:
        for unit in units:
            unit.answers, unit.settled = unit.items, True

    coalescer = ThreadCoalescer(lambda units: settle(units))  # noqa: PLW0108 - needs frames
    holds: list[Any] = []

    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
        else:
            run(coalescer.submit(Unit(None, ["deep"])))
            holds.append(run(coalescer.hold(PATIENCE)))

    def at_the_end_of_the_stack() -> None:
        for frames in range(sys.getrecursionlimit()):
            with contextlib.suppress(RecursionError):
                deep(frames)
            while holds:
                holds.pop().release()

    for work in (at_the_end_of_the_stack, lambda: deep(0)):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()

"""A thread that is interrupted in the middle of its writes, beside others that are not.

A task of `holdfast.testing.fleet`: signals reach only the main thread of a process, and a
process that hangs can be ended.
"""

import ctypes
import faulthandler
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import holdfast

OTHERS = 6


class Interrupted(KeyboardInterrupt):
    """What the victim is hit with: the kind of exception that Ctrl-C raises."""


class Victim:
    """Writes three cells as one until it is interrupted, then looks what became of them."""

    def __init__(self, store: holdfast.Store) -> None:
        self._store = store
        self._names = ["victim/a", "victim/b", "victim/c"]
        self._done = 0
        self.armed = False

    def write_until_interrupted(self) -> None:
        try:
            self.armed = True
            while True:
                self.write()
        except Interrupted:
            self.armed = False

    def write(self) -> None:
        value = self._done + 1
        versions = self._store.cells.set_many(dict.fromkeys(self._names, value))
        assert versions == dict.fromkeys(self._names, value), versions
        self._done = value

    def look(self) -> str:
        """Whether the interrupted write was made; a half of it, or another value, is an error."""
        # A write that still waited when its thread gave it up is gone, one in flight is over
        # before this one: writes are made in the order they were asked for.
        self._store.cells.set("victim/barrier", self._done)
        cells = [self._store.cells.get_versioned(name) for name in self._names]
        found = {(cell.version, cell.value) if cell else (0, 0) for cell in cells}
        assert found in ({(self._done, self._done)}, {(self._done + 1, self._done + 1)}), found
        outcome = "not written" if found == {(self._done, self._done)} else "written"
        self._done = max(found)[0]
        return outcome


class Other:
    """A thread that is never interrupted: each of its writes happens exactly once."""

    def __init__(self, store: holdfast.Store, number: int, over: threading.Event) -> None:
        self._store = store
        self._name = f"other{number}"
        self._over = over
        self.done = 0
        self.repeats = 0
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True, name=self._name)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._write(self.done + 1, uuid.uuid4())
                self.done += 1
        except BaseException as error:  # noqa: BLE001  the task reports it
            self.error = error

    def _write(self, value: int, op_id: uuid.UUID) -> None:
        while True:
            try:
                version = self._store.cells.set(self._name, value, op_id=op_id)
            except holdfast.StoreError as error:
                # The one excuse: the thread that wrote the shared batch was interrupted.
                if not error.outcome_unknown:
                    raise
                self.repeats += 1
            else:
                assert version == value, f"{self._name}: version {version}, wanted {value}"
                return


def interrupt(
    gate: Callable[[], None], *, url: str, seed: str, how: str, rounds: int, patience: int
) -> dict[str, int]:
    """What was seen; raises when anybody got a wrong answer, dies when anybody hangs."""
    gate()
    faulthandler.dump_traceback_later(patience, exit=True)
    store = holdfast.open(url)
    over = threading.Event()
    others = [Other(store, number, over) for number in range(OTHERS)]
    for other in others:
        other.thread.start()
    drive = _by_signal if how == "signal" else _by_thread
    seen = drive(Victim(store), random.Random(seed), rounds)
    over.set()
    for other in others:
        other.thread.join()
        if other.error is not None:
            raise other.error
    store.close()
    faulthandler.cancel_dump_traceback_later()
    done = sum(other.done for other in others)
    return {**seen, "others": done, "repeats": sum(other.repeats for other in others)}


def _by_signal(victim: Victim, rng: random.Random, rounds: int) -> Counter[str]:
    def hit(signal_: int, frame: object) -> None:
        del signal_, frame
        if victim.armed:
            victim.armed = False  # once: on a busy machine the timer may tick again at once
            raise Interrupted

    seen: Counter[str] = Counter()
    before = signal.signal(signal.SIGALRM, hit)
    for _ in range(rounds):
        # Repeated, in case the first one comes before the victim is armed.
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3), 0.01)
        victim.write_until_interrupted()
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen[victim.look()] += 1
    signal.signal(signal.SIGALRM, before)
    return seen


def _by_thread(victim: Victim, rng: random.Random, rounds: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(rounds):
                victim.write_until_interrupted()
                seen[victim.look()] += 1
        except BaseException as error:  # noqa: BLE001  the task reports it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="victim")
    thread.start()
    while thread.is_alive():
        time.sleep(rng.uniform(1e-5, 3e-3))
        if victim.armed:
            victim.armed = False
            identity = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(Interrupted))
    if errors:
        raise errors[0]
    return seen

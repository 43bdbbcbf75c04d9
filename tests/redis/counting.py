"""Writers that go on while servers die, and what was acknowledged to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import holdfast
from holdfast.testing.world import Colour

PATIENCE = 60.0
WRITERS = 4
MORE = 10  # steps of each writer that show that all is well


class Counting:
    """Writers that count up in a record each, one step after the other, whatever it takes."""

    def __init__(self) -> None:
        self.acknowledged = dict.fromkeys(map(str, range(WRITERS)), 0)
        self.errors: list[str] = []  # as text: with their tracebacks thousands take gigabytes
        self.stop = threading.Event()
        self._step = threading.Condition()

    async def write(self, store: holdfast.AsyncStore, key: str) -> None:
        number = 0
        await store.records.put(key, {"n": 0})
        while not self.stop.is_set():
            op = uuid4()
            while not await self._swap(store, key, number, op):
                pass
            number += 1
            with self._step:
                self.acknowledged[key] = number
                self._step.notify_all()

    @contextlib.contextmanager
    def going_on(self, colour: Colour, url: str, namespace: str) -> Iterator[None]:
        """They write on one open store meanwhile."""
        ended: list[object] = []

        async def work() -> list[BaseException | None]:
            store = await colour.open(url, namespace, None)
            try:
                return await colour.together(self.write(store, key) for key in self.acknowledged)
            finally:
                await store.close()

        thread = threading.Thread(target=lambda: ended.extend(colour.run(work())))
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join(PATIENCE)
        assert ended == [None] * WRITERS

    async def _swap(self, store: holdfast.AsyncStore, key: str, number: int, op: UUID) -> bool:
        try:
            swapped = await store.records.compare_and_swap(key, "n", number, number + 1, op_id=op)
        except (holdfast.Unavailable, holdfast.Timeout) as error:
            with self._step:
                self.errors.append(str(error))
                self._step.notify_all()
            return False
        assert swapped is True
        return True

    def wait_for_error(self) -> None:
        """Return when somebody has noticed that something is wrong."""
        with self._step:
            assert self._step.wait_for(lambda: self.errors, PATIENCE), "void: nobody noticed"

    def wait_for_more(self) -> None:
        """Return when every writer has got on by some steps."""
        goals = {key: number + MORE for key, number in self.acknowledged.items()}
        before = len(self.errors)
        with self._step:
            done = self._step.wait_for(
                lambda: all(self.acknowledged[key] >= goal for key, goal in goals.items()), PATIENCE
            )
        since = self.errors[before:]
        assert done, f"wanted {goals}, got {self.acknowledged}; {len(since)} errors, {since[-1:]}"

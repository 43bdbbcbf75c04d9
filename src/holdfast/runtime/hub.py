"""Who waits for what: wake-ups inside a process.

A wake-up is a hint, "look again". What there is to see is read from a log by
cursor, so one too many costs a look, and one too few a little patience.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable

from holdfast.runtime.contract import Runtime, Signal, Topic


class Listener:
    """One waiter for one topic; forgotten as soon as nobody holds it."""

    def __init__(self, hub: Hub, signal: Signal) -> None:
        self._hub = hub
        self._signal = signal
        self.wake = signal.set

    async def wait(self, seconds: float) -> None:
        """Return when there may be something new, or after so long; at times for no reason."""
        await self._signal.wait(max(0.0, min(seconds, self._hub.patience())))


class Hub:
    """The listeners of one store in this process."""

    def __init__(self, runtime: Runtime, patience: Callable[[], float]) -> None:
        self._runtime = runtime
        self.patience = patience  # how long a listener waits at most before it looks again
        self._lock = threading.Lock()
        # Read without the lock by every commit: empty is what it is nearly always.
        self.topics: dict[Topic, weakref.WeakSet[Listener]] = {}

    def listen(self, topic: Topic) -> Listener:
        """A listener that hears of every commit about the topic from now on."""
        listener = Listener(self, self._runtime.signal())
        with self._lock:
            self._forget_left()
            topics = dict(self.topics)  # a new one: others may be reading the old
            topics.setdefault(topic, weakref.WeakSet()).add(listener)
            self.topics = topics
        return listener

    @property
    def listening(self) -> bool:
        """True while anybody does."""
        if any(self.topics.values()):
            return True
        with self._lock:
            self._forget_left()
        return bool(self.topics)

    def tell(self, topics: Iterable[Topic | None]) -> None:
        """Wake who listens to one of these."""
        with self._lock:
            woken = [
                listener
                for topic in set(topics)
                if topic is not None
                for listener in self.topics.get(topic, ())
            ]
        for listener in woken:
            listener.wake()

    def tell_all(self) -> None:
        """Wake everybody."""
        self.tell(list(self.topics))

    def _forget_left(self) -> None:
        left = {topic: listeners for topic, listeners in self.topics.items() if listeners}
        if len(left) < len(self.topics):
            self.topics = left

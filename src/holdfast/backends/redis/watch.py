"""Wake-ups between processes: one thread that subscribes to the store's channel.

A pipeline with changes publishes at its end, no more than which log of which namespace; what
changed is read from there. The thread runs only while somebody listens, on a connection of its own.
Who writes may not know of it at once (see hints.py), so it looks again a little later.

All of it is hints: where it fails, listeners look again after `poll_interval`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from redis import exceptions

from holdfast.backends.redis.hints import MOMENT
from holdfast.backends.redis.protocol import pack
from holdfast.errors import StoreError
from holdfast.runtime import Runtime, Topic
from holdfast.runtime.hub import Hub, Listener

_log = logging.getLogger("holdfast.redis")

_LOOK = 0.1  # seconds between looks whether anybody still listens
_PING = 5.0  # seconds between looks whether the server is still there
_LONG = 10.0  # how long a listener waits who would hear of everything
# After this one looks again who has just subscribed: of what was changed before that was noticed.
_AGAIN = (2 * MOMENT, 20 * MOMENT)
_FIRST_RETRY, _LONGEST_RETRY = 0.2, 10.0


class Subscriber:
    """Hears of the changes of other processes, and tells of our own in this one."""

    def __init__(
        self,
        connect: Callable[[], Any],
        runtime: Runtime,
        channel: bytes,
        topic: Callable[[bytes], Topic],
        poll_interval: float,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._topic = topic
        self._poll_interval = poll_interval
        self._again: deque[float] = deque()  # when to look again, since the last subscription
        self.hub = Hub(runtime, self._patience)
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._subscribed = False
        self._stopped = threading.Event()

    def listen(self, topic: Topic) -> Listener:
        """One who hears of changes about the topic, in whichever process."""
        listener = self.hub.listen(topic)
        with self._guard:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast watch", daemon=True
                )
                self._thread.start()
        return listener

    def tell(self, topics: Iterable[Topic | None]) -> None:
        """These were written about."""
        if self.hub.topics:
            self.hub.tell(topics)

    def end(self) -> None:
        """Let the thread end, without waiting for it."""
        self._stopped.set()

    def stop(self) -> None:
        """End the thread; one that waits for a dead server is left to its time-out."""
        self.end()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _patience(self) -> float:
        return _LONG if self._subscribed else self._poll_interval

    def _goes_on(self) -> bool:
        with self._guard:
            goes_on = not self._stopped.is_set() and self.hub.listening
            if not goes_on:
                self._thread = None
        return goes_on

    def _run(self) -> None:
        retry = _FIRST_RETRY
        while self._goes_on():
            try:
                self._serve()
                retry = _FIRST_RETRY
            except (StoreError, exceptions.RedisError, OSError) as exc:
                _log.debug("wake-ups from other processes are late: %s", exc)
                self._stopped.wait(retry)
                retry = min(2 * retry, _LONGEST_RETRY)
            finally:
                self._subscribed = False
                self._again.clear()
                self.hub.tell_all()

    def _serve(self) -> None:
        """Until nobody listens any more."""
        raw = self._connect()
        try:
            raw.send_packed_command([pack([(b"SUBSCRIBE", self._channel)])], check_health=False)
            heard_at = time.monotonic()
            asked = False
            while not self._stopped.is_set() and self.hub.listening:
                if self._again and time.monotonic() >= self._again[0]:
                    self._again.popleft()
                    self.hub.tell_all()
                if raw.can_read(timeout=_LOOK):
                    self._hear(raw.read_response(disable_decoding=True))
                    heard_at, asked = time.monotonic(), False
                elif time.monotonic() - heard_at > _PING:
                    if asked:
                        raise OSError("the server does not answer")
                    raw.send_packed_command([pack([(b"PING",)])], check_health=False)
                    heard_at, asked = time.monotonic(), True
        finally:
            raw.disconnect()

    def _hear(self, message: list[bytes]) -> None:
        if message[0] == b"subscribe":
            self._subscribed = True
            now = time.monotonic()
            self._again = deque(now + seconds for seconds in _AGAIN)
            self.hub.tell_all()  # of what may have come before
        elif message[0] == b"message":
            self.hub.tell([self._topic(message[2])])

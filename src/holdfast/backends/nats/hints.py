"""Who waits for changes hears of them: one consumer of the stream for all watches of a store.

It delivers what was stored, without content, and says every other second that it is alive. It
lives in the memory of one server: when that or the connection goes, it is made anew, and
everybody looks, because something may have been missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from uuid import uuid4

from nats.aio.msg import Msg

from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.records import KIND
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.waiter import STATUS
from holdfast.errors import StoreError
from holdfast.facets.records import LOG
from holdfast.facets.watch import Listener
from holdfast.runtime.hub import Hub

_SECOND_NS = 1_000_000_000
_HEARTBEAT = 2.0
_SILENCE = 3 * _HEARTBEAT
_PATIENCE = 5.0  # of a listener, beside what it hears
_LAG = 1.0  # seconds that a replica may be behind what was heard


class Hints:
    """See above."""

    def __init__(self, db: NatsDb, stream: Stream, poll_interval: float) -> None:
        self._connection = db.connection  # not the db: see there
        self._stream = stream
        self._poll_interval = poll_interval
        self.hub = Hub(db.runtime, self._patience)
        self._inbox = f"_INBOX.{uuid4().hex}"
        self._consumer = f"watch_{uuid4().hex}"
        self._lock = threading.Lock()
        self._kept = False
        self._alive = False
        self._lost = asyncio.Event()
        self._last = float("-inf")  # when something was heard, also that nothing is new
        self._news_at = float("-inf")
        self.heard = 0
        """The highest sequence number that was heard of."""

    def listen(self, db: NatsDb, namespace_token: str) -> Listener:
        """One who hears of the namespace's records."""
        listener = self.hub.listen((LOG, namespace_token))
        with self._lock:
            start = not self._kept
            self._kept = True
        if start:
            db.begin(self._keep())
        return listener

    def lost(self) -> None:
        """After a lost connection: see whether the consumer is still there."""
        self._lost.set()
        self.hub.tell_all()

    @property
    def recent(self) -> bool:
        """True if there was news a moment ago, which a replica may not have yet."""
        return time.monotonic() < self._news_at + _LAG

    def _patience(self) -> float:
        return _PATIENCE if self._alive else self._poll_interval

    async def _keep(self) -> None:
        await self._connection.hear(self._inbox, self._told)
        while True:
            try:
                await self._follow()
            except StoreError:
                await asyncio.sleep(self._poll_interval)
            finally:
                self._alive = False
            with self._lock:
                if not self.hub.listening:
                    self._kept = False
                    break
        with contextlib.suppress(StoreError):  # then the server forgets it by itself
            await self._stream.unfollow(self._consumer, self._stream.deadline())

    async def _follow(self) -> None:
        """Return when the consumer seems to be gone, or nobody needs it any more."""
        consumer = {
            "name": self._consumer,
            "deliver_subject": self._inbox,
            "deliver_policy": "new",
            "ack_policy": "none",
            "filter_subject": f"{self._stream.root}.{KIND}.>",
            "headers_only": True,
            "idle_heartbeat": int(_HEARTBEAT * _SECOND_NS),
            "inactive_threshold": 60 * _SECOND_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        self._lost.clear()
        await self._stream.follow(consumer, self._stream.deadline())
        self._alive = True
        self._last = time.monotonic()
        self.hub.tell_all()  # what came before the consumer was there
        while time.monotonic() < self._last + _SILENCE and self.hub.listening:
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await self._lost.wait()
                return
            except TimeoutError:
                continue

    async def _told(self, message: Msg) -> None:
        self._last = time.monotonic()
        if STATUS in (message.headers or {}):
            return
        self.heard = max(self.heard, message.metadata.sequence.stream)
        self._news_at = self._last
        token = message.subject.removeprefix(f"{self._stream.root}.{KIND}.").partition(".")[0]
        self.hub.tell([(LOG, token)])

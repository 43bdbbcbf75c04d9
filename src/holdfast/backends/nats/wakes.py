"""Who waits for messages or events is woken by a plain message of NATS, sent when one was stored.

It may be lost, with who sent it or with a connection: who waits looks every few seconds anyway.
"""

from __future__ import annotations

import contextlib
import threading

from nats.aio.msg import Msg

from holdfast.backends.nats.db import NatsDb
from holdfast.backends.nats.errors import NotSent
from holdfast.backends.nats.stream import Stream
from holdfast.backends.nats.subjects import namespace_token
from holdfast.errors import StoreError
from holdfast.facets.watch import Listener
from holdfast.runtime.hub import Hub

_PATIENCE = 5.0  # of a listener, beside what it hears


class Wakes:
    """See above."""

    def __init__(self, db: NatsDb, stream: Stream, poll_interval: float, word: str) -> None:
        self._connection = db.connection  # not the db: see there
        self._stream = stream
        self._word = word
        self._root = f"{stream.root}.{word}."
        self._poll_interval = poll_interval
        self.hub = Hub(db.runtime, self._patience)
        self._lock = threading.Lock()
        self._asked = False
        self._hearing = False

    def listen(self, db: NatsDb, namespace: str) -> Listener:
        """One who hears of what is new in the namespace."""
        listener = self.hub.listen((self._word, namespace_token(namespace)))
        with self._lock:
            start = not self._asked
            self._asked = True
        if start:
            db.begin(self._hear())
        return listener

    async def tell(self, namespace: str) -> None:
        """Wake who waits for that, in whatever process."""
        token = namespace_token(namespace)
        self.hub.tell([(self._word, token)])
        with contextlib.suppress(NotSent):
            await self._connection.tell(self._root + token, b"", {})

    def _patience(self) -> float:
        return _PATIENCE if self._hearing else self._poll_interval

    async def _hear(self) -> None:
        try:
            await self._connection.hear(f"{self._root}*", self._told)
            await self._stream.info(self._stream.deadline())  # now the server knows of it
        except StoreError:
            self._asked = False  # the next listener tries again
        else:
            self._hearing = True
        self.hub.tell_all()  # what came before it was heard

    async def _told(self, message: Msg) -> None:
        self.hub.tell([(self._word, message.subject.removeprefix(self._root))])

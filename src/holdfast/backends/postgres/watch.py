"""Wake-ups between processes: LISTEN and NOTIFY on a connection of their own.

A NOTIFY inside a writing transaction takes a lock of the whole database at its
commit; 32 writers fell to a third. So commits are told of afterwards, from one
side connection, as many as have come together by then, and only while somebody
listens. Who listens holds a shared advisory lock: a writer that can have it
exclusively knows that nobody does.

All of it is hints. Where it fails, or cannot be (a pooler in transaction mode),
listeners look again after `poll_interval`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import psycopg

from holdfast.runtime import Runtime, Topic
from holdfast.runtime.hub import Hub, Listener

_log = logging.getLogger("holdfast.postgres")

_FIRST_CONNECT = 0.5  # seconds after the first commit: who is gone by then needs no connection
_LOOK = 1.0  # seconds between looks for listeners, and for commits that nobody told of
_SETTLED = 3.0  # seconds after which every writer must have found a new listener
_EAGER = 0.02  # how often a new listener looks by itself until then
_LONG = 30.0
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 30.0

# Changes with every transaction that begins or ends to write. Not the last commit id: that is
# drawn before its commit, and reading it takes a right that who only watches need not have.
_SNAPSHOT = "SELECT pg_current_snapshot()::text"

# Not select(), which knows no descriptors above 1023, and none that needs a descriptor itself.
_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)

_NOTHING: frozenset[Topic | None] = frozenset({None})

Connection = psycopg.Connection[Any]


class Exchange:
    """Tells other processes of commits, and hears of theirs; one thread, made when needed."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        runtime: Runtime,
        schema: str,
        *,
        can_listen: bool,
        poll_interval: float,
    ) -> None:
        self._connect = connect
        self._channel = f"holdfast_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"
        self._seen: tuple[Any, ...] | None = None
        # Seeded with what is no branch: a namespace of that name must not share it.
        self._lock = f"hashtextextended('holdfast watch {schema}', -1)"
        self._can_listen = can_listen
        self._poll_interval = poll_interval
        self.hub = Hub(runtime, self._patience)
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._sleeper, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._outgoing: SimpleQueue[Topic] = SimpleQueue()
        self._committed = False  # since the last look
        self._listening_since: float | None = None
        self._stopped = False
        self._retry = _FIRST_RETRY
        self.heard_elsewhere = False

    def listen(self, topic: Topic) -> Listener:
        """One who hears of commits about the topic, in whichever process."""
        listener = self.hub.listen(topic)
        self._start()
        self._wake()
        return listener

    def tell(self, topics: set[Topic | None]) -> None:
        """These were written about, and the commit is done."""
        if not topics - _NOTHING:
            return
        if self.hub.topics:
            self.hub.tell(topics)
        self._note_commit()
        if self.heard_elsewhere:
            for topic in topics:
                if topic is not None:
                    self._outgoing.put(topic)
            self._wake()

    def notice(self, topic: Topic) -> tuple[str, tuple[str, str]] | None:
        """The statement by which a transaction that is not ours tells of its own commit.

        None when nobody listens, in this process or another, as far as we know.
        """
        unknown = self._thread is None
        self._note_commit()
        if not (unknown or self.heard_elsewhere or self.hub.topics):
            return None
        return "SELECT pg_notify(%s, %s)", (self._channel, _to_payload(topic))

    def end(self) -> None:
        """Let the thread end, without waiting for it."""
        self._stopped = True
        self._wake()
        if self._thread is None:
            self._close_sockets()

    def stop(self) -> None:
        """End the thread; one that waits for a dead server is left to its time-out."""
        self.end()
        if self._thread is not None:
            self._thread.join(timeout=_LOOK)

    def _patience(self) -> float:
        since = self._listening_since
        if since is None:
            return self._poll_interval
        return _LONG if time.monotonic() - since > _SETTLED else min(_EAGER, self._poll_interval)

    def _start(self) -> None:
        with self._guard:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast watch", daemon=True
                )
                self._thread.start()

    def _note_commit(self) -> None:
        """See to it that we learn whether anybody listens."""
        if self._thread is None:
            self._start()
        self._committed = True

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody is there
            self._waker.send(b"!")

    def _run(self) -> None:
        if not self.hub.listening:
            self._sleep(_FIRST_CONNECT)
        while not self._stopped:
            try:
                with contextlib.closing(self._connect()) as connection:
                    self._serve(connection)
            except Exception as exc:  # noqa: BLE001 - else nobody would be woken any more
                _log.debug("wake-ups from other processes are late: %s", exc)
            self._listening_since = None
            if not self._stopped:
                self.hub.tell_all()
                self._sleep(self._retry)
                self._retry = min(2 * self._retry, _LONGEST_RETRY)
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._sleeper.close()
        self._waker.close()

    def _serve(self, connection: Connection) -> None:
        own_pid = connection.info.backend_pid

        def heard(notify: psycopg.Notify) -> None:
            if notify.pid != own_pid:
                self.hub.tell([_from_payload(notify.payload)])

        connection.add_notify_handler(heard)
        next_look = 0.0
        while not self._stopped:
            self._listen_if_wanted(connection)
            if time.monotonic() >= next_look:
                self._look(connection)
                next_look = time.monotonic() + _LOOK
            self._send(connection)
            self._retry = _FIRST_RETRY  # all of it works
            self._sleep(_LOOK, connection)
            _receive(connection, heard)
        self._send(connection)

    def _listen_if_wanted(self, connection: Connection) -> None:
        wanted = self._can_listen and self.hub.listening
        if wanted and self._listening_since is None:
            connection.execute(f"LISTEN {self._channel}")
            connection.execute(f"SELECT pg_advisory_lock_shared({self._lock})")
            self._listening_since = time.monotonic()
            self.hub.tell_all()  # of what may have come before
        elif not wanted and self._listening_since is not None:
            self._listening_since = None
            connection.execute(f"SELECT pg_advisory_unlock_shared({self._lock})")
            connection.execute(f"UNLISTEN {self._channel}")

    def _look(self, connection: Connection) -> None:
        """Who writes asks whether anybody listens; who listens, whether anything was written.

        The second is for what was committed and nobody told of: by a process that died before,
        or by a transaction that was joined when nobody listened.
        """
        if self._committed:
            self._committed = False
            row = connection.execute(f"SELECT pg_try_advisory_xact_lock({self._lock})").fetchone()
            self.heard_elsewhere = row is not None and not row[0]
        if self._listening_since is not None:
            row = connection.execute(_SNAPSHOT).fetchone()
            if row != self._seen:
                self._seen = row
                self.hub.tell_all()

    def _send(self, connection: Connection) -> None:
        topics: set[Topic] = set()
        with contextlib.suppress(Empty):
            while True:
                topics.add(self._outgoing.get_nowait())
        if topics:
            # Nobody waits for this to be on disk.
            with connection.transaction():
                connection.execute("SET LOCAL synchronous_commit = off")
                connection.execute(
                    "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload",
                    (self._channel, [_to_payload(topic) for topic in topics]),
                )

    def _sleep(self, seconds: float, connection: Connection | None = None) -> None:
        """Until there is something to do, or for so long."""
        with _Selector() as selector:
            selector.register(self._sleeper, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            ready = selector.select(seconds)
        if any(key.fileobj is self._sleeper for key, _ in ready):
            self._sleeper.recv(4096)


def _receive(connection: Connection, heard: Callable[[psycopg.Notify], None]) -> None:
    connection.pgconn.consume_input()
    while (found := connection.pgconn.notifies()) is not None:
        heard(psycopg.Notify(found.relname.decode(), found.extra.decode(), found.be_pid))


def _to_payload(topic: Topic) -> str:
    return "\n".join(topic)


def _from_payload(payload: str) -> Topic:
    log, _, namespace = payload.partition("\n")
    return log, namespace

"""A TCP proxy that breaks connections where a test wants them broken.

    with FaultProxy("127.0.0.1", server.port) as proxy:
        url = proxy.through(server.create_database())
        proxy.cut_before_reply(b"UPDATE", times=2)

It runs on an event loop in a thread of its own, so blocking and async tests use it
alike; a fault is in force when its method returns. A cut is a reset (RST) of both
sides. A *request* is what a client sends until the server answers: the proxy expects
one request in flight per connection, not a pipeline.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from holdfast.testing.cuts import (
    AfterBytes,
    AtRequest,
    Direction,
    Link,
    Plan,
    Then,
    ready_for_query,
)

__all__ = ["Counts", "Direction", "FaultProxy", "ready_for_query"]

T = TypeVar("T")

_ADDRESS: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 65_536
_CALL_SECS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What a proxy has done so far; bytes are those passed on, a cut is one connection."""

    connections: int = 0
    to_server: int = 0
    to_client: int = 0
    cuts: int = 0


class FaultProxy:
    """A proxy on a free port of 127.0.0.1 towards one server, faultless until told otherwise.

    `answered` says whether the bytes are a whole answer of the server; it knows
    PostgreSQL's unless told otherwise. One plan for a cut holds at a time, the newest.
    """

    def __init__(
        self, host: str, port: int, *, answered: Callable[[bytes], bool] = ready_for_query
    ) -> None:
        self._target: Final = (host, port)
        self._answered: Final = answered
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, daemon=True)
        # Bound, not listening: keeps the port ours while connections are refused.
        self._reservation: Final = socket.socket()
        self._listener: asyncio.Server | None = None
        self._links: Final[set[Link]] = set()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._flowing: Final = asyncio.Event()
        self._delay_secs = 0.0
        self._plan: Plan | None = None
        self._counts = Counts()

        self._flowing.set()
        self._thread.start()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind((_ADDRESS, 0))
        self.port: Final[int] = self._reservation.getsockname()[1]
        self._run(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Reset what is open and stop listening."""
        self._run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reservation.close()

    def through(self, url: str) -> str:
        """The same URL, but through this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{_ADDRESS}:{self.port}").geturl()

    @property
    def counts(self) -> Counts:
        """What the proxy has done so far."""
        return self._call(lambda: self._counts)

    def wait_until_closed(self) -> None:
        """Return when no connection is open: clients close without waiting for the proxy."""
        self._run(self._wait_until_closed())

    def heal(self) -> None:
        """End every fault: bytes held by a black hole flow again, new connections are accepted."""
        self._run(self._heal())

    def delay(self, secs: float) -> None:
        """Pass on every piece of data later by this time, in both directions."""
        self._call(lambda: setattr(self, "_delay_secs", secs))

    def black_hole(self) -> None:
        """Keep connections open, accept new ones, and let nothing through in either direction."""
        self._call(self._flowing.clear)

    def black_hole_at(self, match: bytes = b"", *, nth: int = 1) -> None:
        """The same from the nth request on that contains `match`, which does not pass either."""
        self._arm(AtRequest(match, Then.BLACK_HOLE, nth=nth, times=1))

    def refuse(self) -> None:
        """Refuse new connections; open ones stay."""
        self._call(self._stop_listening)

    def half_close(self, direction: Direction) -> None:
        """End one direction of all open connections (FIN); the other one stays open."""
        self._call(lambda: self._end_all(direction))

    def cut(self) -> int:
        """Reset all open connections and return their number."""
        return self._call(lambda: sum([self._cut(link) for link in set(self._links)]))

    def cut_after(
        self, *, to_server: int | None = None, to_client: int | None = None, times: int = 1
    ) -> None:
        """Reset the next connections that pass so many more bytes in this direction.

        Every connection counts for itself, from now on. 0 bytes: the reset comes
        instead of the first byte.
        """
        if (to_server is None) == (to_client is None):
            raise ValueError("cut_after: give either to_server or to_client")
        if to_server is not None:
            plan = AfterBytes("to_server", to_server, times=times)
        else:
            plan = AfterBytes("to_client", to_client or 0, times=times)
        self._arm(plan)

    def cut_before_reply(self, match: bytes = b"", *, nth: int = 1, times: int = 1) -> None:
        """Pass a request on, wait for the server's whole answer, reset instead of passing it on.

        It is the nth request from now that contains `match`, and the following ones up
        to `times` cuts. Without `match` it is any, also those that open a connection.
        """
        self._arm(AtRequest(match, Then.CUT_AT_ANSWER, nth=nth, times=times))

    def cut_before_server(self, match: bytes = b"", *, nth: int = 1, times: int = 1) -> None:
        """Reset instead of passing on the request; chosen as in `cut_before_reply`."""
        self._arm(AtRequest(match, Then.CUT, nth=nth, times=times))

    # Everything below runs on the loop's thread, except _run and _call.

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_SECS)

    def _call(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return self._run(act())

    def _arm(self, plan: Plan) -> None:
        self._call(lambda: setattr(self, "_plan", plan))

    async def _listen(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((_ADDRESS, self.port))
        self._listener = await asyncio.start_server(self._accept, sock=listening)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _end_all(self, direction: Direction) -> None:
        for link in self._links:
            link.end(direction)

    async def _heal(self) -> None:
        self._plan = None
        self._delay_secs = 0.0
        self._flowing.set()
        if self._listener is None:
            await self._listen()

    async def _wait_until_closed(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _shut_down(self) -> None:
        self._stop_listening()
        for link in set(self._links):
            self._cut(link)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        # A task of our own: the one that asyncio would make complains when it is cancelled.
        task = self._loop.create_task(self._serve(client, to_client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        link = Link({"to_client": to_client})
        self._links.add(link)
        self._count(connections=1)
        try:
            await self._flowing.wait()
            server, link.writers["to_server"] = await asyncio.open_connection(*self._target)
            for writer in link.writers.values():
                # drain() then waits until all is sent: what may pass before a cut, passes.
                writer.transport.set_write_buffer_limits(high=0)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, client, "to_server"))
                pumps.create_task(self._pump(link, server, "to_client"))
        except* OSError:
            link.reset()  # one side is gone: so is the other
        finally:
            self._links.discard(link)
            for writer in link.writers.values():
                writer.close()

    async def _pump(self, link: Link, source: asyncio.StreamReader, direction: Direction) -> None:
        while chunk := await source.read(_CHUNK_BYTES):
            if self._delay_secs:
                await asyncio.sleep(self._delay_secs)
            await self._flowing.wait()
            if direction not in link.ended:
                await self._pass_on(link, direction, chunk)
        if link.doomed and direction == "to_client":
            self._cut(link)
        link.end(direction)

    async def _pass_on(self, link: Link, direction: Direction, chunk: bytes) -> None:
        link.follow(direction, chunk)
        if link.doomed and direction == "to_client":
            if self._answered(bytes(link.answer)):
                self._cut(link)
            return
        passing, then = len(chunk), Then.GO_ON
        if self._plan is not None:
            passing, then = self._plan.decide(link, direction, chunk)
            if self._plan.times_left == 0:
                self._plan = None
        if then is Then.BLACK_HOLE:
            self._flowing.clear()
            await self._flowing.wait()
        link.doomed = link.doomed or then is Then.CUT_AT_ANSWER
        link.writers[direction].write(chunk[:passing])
        self._count(**{direction: passing})
        await link.writers[direction].drain()
        if then is Then.CUT:
            self._cut(link)

    def _cut(self, link: Link) -> bool:
        if link not in self._links:
            return False
        self._links.discard(link)
        self._count(cuts=1)
        link.reset()
        return True

    def _count(self, **more: int) -> None:
        grown = {name: getattr(self._counts, name) + number for name, number in more.items()}
        self._counts = replace(self._counts, **grown)

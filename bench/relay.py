"""A relay in front of PostgreSQL that counts what passes, for runs that are not timed.

It reads the protocol's message headers only. A statement is an Execute or a Query message of
the client; a transaction is a ReadyForQuery of the server that says "idle": in autocommit that
is each round trip, with BEGIN and COMMIT it is the whole block. Reads count like writes.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

from bench.counters import Counters, Slot

_PROTOCOL_3: Final = 3
_HEADER: Final = 5
_LENGTH: Final = 4


class CountingRelay:
    """Listens on a free port of 127.0.0.1 and passes on to the server's, on a thread of its own."""

    def __init__(self, server_port: int, counters: Counters) -> None:
        self._server_port: Final = server_port
        self.counters: Final = counters
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection("127.0.0.1", self._server_port)
        await asyncio.gather(
            _until_closed(forth, lambda: self._from_client(client, forth)),
            _until_closed(back, lambda: self._from_server(server, back)),
        )

    async def _from_client(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> None:
        # Before the start-up message, requests without a type: for TLS, for a cancellation.
        protocol = 0
        while protocol != _PROTOCOL_3:
            length = await client.readexactly(_LENGTH)
            body = await client.readexactly(int.from_bytes(length) - _LENGTH)
            protocol = int.from_bytes(body[:2])
            server.write(length + body)
        while True:
            kind, message = await _message(client)
            if kind in b"EQ":
                self.counters.add(Slot.STATEMENTS, 1)
            server.write(message)
            await server.drain()

    async def _from_server(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        # The server has no TLS and says so by a lone N, which looks like no message.
        while (first := await server.readexactly(1)) == b"N":
            client.write(first)
        kind, message = await _message(server, first)
        while True:
            if kind == b"Z" and message.endswith(b"I"):
                self.counters.add(Slot.TRANSACTIONS, 1)
            client.write(message)
            await client.drain()
            kind, message = await _message(server)


async def _message(reader: asyncio.StreamReader, first: bytes = b"") -> tuple[bytes, bytes]:
    header = first + await reader.readexactly(_HEADER - len(first))
    return header[:1], header + await reader.readexactly(int.from_bytes(header[1:]) - _LENGTH)


async def _until_closed(writer: asyncio.StreamWriter, pump: Callable[[], Awaitable[None]]) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await pump()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()

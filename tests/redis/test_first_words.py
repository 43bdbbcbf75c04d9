"""What redis-py has read, or heard of an end, before the connection of an event loop is ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holdfast.backends.redis.connection_async import AsyncConnection
from holdfast.backends.redis.protocol import Refusal, Reply
from holdfast.errors import Unavailable

FULL = b"-ERR max number of clients reached\r\n"


async def _asked(before: Callable[[asyncio.StreamReader], None]) -> list[Reply]:
    """The answers to a question, when that came first; the server itself stays silent."""

    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        before(reader)
        raw = SimpleNamespace(_reader=reader, _writer=writer)
        connection = AsyncConnection(raw, "here", call_timeout=30)
        await connection.take_over()
        replies: list[Reply] = []
        try:
            await connection.exchange([(b"PING",)], replies)
        finally:
            writer.close()
            await ended.wait()
        assert not connection.usable
        return replies


def test_words_that_came_before_a_question_are_its_answer() -> None:
    (reply,) = asyncio.run(_asked(lambda reader: reader.feed_data(FULL)))
    assert isinstance(reply, Refusal)
    assert str(reply) == "ERR max number of clients reached"


def test_an_end_that_came_before_a_question_is_a_loss() -> None:
    with pytest.raises(Unavailable, match="the server has closed it"):
        asyncio.run(_asked(lambda reader: reader.feed_eof()))

"""Answers under asyncio: each may take its whole time, and no longer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.waiting import WAIT_R, WAIT_RW

from holdfast.backends.postgres.driver import AsyncDriver

LIMIT = 10.0


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time the test moves."""

    moved = 0.0

    def time(self) -> float:
        return super().time() + self.moved


class Driver(AsyncDriver):
    """On one end of a pair of sockets, with nothing of PostgreSQL's."""

    def __init__(self, end: socket.socket) -> None:
        self.pgconn = SimpleNamespace(socket=end.fileno())  # type: ignore[assignment]
        self.answer_timeout = LIMIT

    def __del__(self, *_: object) -> None:
        pass


def run(loop: Loop, main: Coroutine[Any, Any, object]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)


@contextmanager
def connected() -> Iterator[tuple[Driver, socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield Driver(here), here, there


def reading(here: socket.socket) -> PQGen[bytes]:
    yield WAIT_R
    return here.recv(10)


def writing_and_reading(here: socket.socket) -> PQGen[bytes]:
    yield WAIT_RW
    here.send(b"?")
    yield WAIT_R
    return here.recv(10)


def test_answer_within_its_own_limit_comes_although_the_first_one_s_is_over() -> None:
    loop = Loop()

    async def main() -> None:
        with connected() as (driver, here, there):
            there.send(b"first")
            assert await driver.wait(reading(here)) == b"first"
            loop.moved += LIMIT - 1
            second = asyncio.create_task(driver.wait(reading(here)))
            await asyncio.sleep(0)
            loop.moved += LIMIT - 1  # the timer of the first goes off
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not second.done()
            there.send(b"second")
            assert await second == b"second"

    run(loop, main())


def test_answer_that_is_overdue_is_given_up() -> None:
    loop = Loop()

    async def main() -> None:
        with connected() as (driver, here, there):
            for _ in range(2):
                late = asyncio.create_task(driver.wait(reading(here)))
                await asyncio.sleep(0)
                loop.moved += LIMIT + 1
                with pytest.raises(_WaitTimeout):
                    await late
            there.send(b"in time")
            assert await driver.wait(reading(here)) == b"in time"

    run(loop, main())


def test_nothing_is_left_in_the_loop_when_nobody_waits() -> None:
    loop = Loop()

    async def main() -> None:
        with connected() as (driver, here, there):
            there.send(b"answer")
            assert await driver.wait(reading(here)) == b"answer"
            assert not loop.remove_reader(here)
            waiting = asyncio.create_task(driver.wait(reading(here)))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not loop.remove_reader(here)

    run(loop, main())


def test_what_does_not_fit_is_sent_when_there_is_room() -> None:
    async def main() -> None:
        with connected() as (driver, here, there):
            asked = asyncio.create_task(driver.wait(writing_and_reading(here)))
            there.setblocking(False)
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(there, 10) == b"?"
            await loop.sock_sendall(there, b"!")
            assert await asked == b"!"

    run(Loop(), main())

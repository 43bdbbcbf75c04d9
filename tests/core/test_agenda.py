"""The agenda: whether a loop has anything to run, asked while it stands still."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from holdfast.runtime.agenda import Agenda

_LONG = 3600.0


def _selector_loop(kind: type[selectors.BaseSelector]) -> Callable[[], asyncio.AbstractEventLoop]:
    return lambda: asyncio.SelectorEventLoop(kind())


LOOPS = {
    "its own": asyncio.new_event_loop,
    "poll": _selector_loop(selectors.PollSelector),
    "select": _selector_loop(selectors.SelectSelector),
}


def on_every_loop(scene: Callable[[Agenda], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    @pytest.mark.parametrize("loop", LOOPS)
    def test(loop: str) -> None:
        async def body() -> None:
            async with asyncio.timeout(_LONG):  # a timer that is not due
                await asyncio.sleep(0)
                await scene(Agenda(asyncio.get_running_loop()))

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(body())

    test.__name__ = scene.__name__
    return test


@on_every_loop
async def test_nothing_to_run(agenda: Agenda) -> None:
    assert not agenda.ready
    assert not agenda.has_news()


@on_every_loop
async def test_what_is_to_be_run_at_once_is_ready(agenda: Agenda) -> None:
    asyncio.get_running_loop().call_soon(lambda: None)
    assert agenda.ready


@on_every_loop
async def test_a_socket_is_news_and_stays_it_until_the_loop_turns(agenda: Agenda) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        heard = asyncio.Event()
        loop.add_reader(ours, heard.set)
        assert not agenda.has_news()
        theirs.send(b"x")
        assert agenda.has_news()
        assert agenda.has_news()
        await heard.wait()
        loop.remove_reader(ours)
    assert not agenda.has_news()


@on_every_loop
async def test_a_timer_is_news_when_it_is_due(agenda: Agenda) -> None:
    loop = asyncio.get_running_loop()
    fired = asyncio.Event()
    loop.call_later(_LONG, fired.set)
    assert not agenda.has_news()
    loop.call_at(loop.time(), fired.set)
    assert agenda.has_news()
    await fired.wait()
    assert not agenda.has_news()


@on_every_loop
async def test_a_call_from_another_thread_is_ready(agenda: Agenda) -> None:
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    caller = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
    caller.start()
    caller.join()
    assert agenda.ready
    await called.wait()


@on_every_loop
async def test_timers_are_seen_after_others_were_called_off(agenda: Agenda) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(200):  # the loop makes a new list of those that are left
        loop.call_later(_LONG, lambda: None).cancel()
    await asyncio.sleep(0)
    fired = asyncio.Event()
    loop.call_at(loop.time(), fired.set)
    assert agenda.has_news()
    await fired.wait()


class _Own(selectors.DefaultSelector):
    """A selector that might do more than select, as those that serve a window do."""


SILENT = {"uvloop": uvloop.new_event_loop, "a selector of one's own": _selector_loop(_Own)}


@pytest.mark.parametrize("loop", SILENT)
def test_of_a_loop_that_does_not_tell_nothing_is_known(loop: str) -> None:
    async def scene() -> None:
        agenda = Agenda(asyncio.get_running_loop())
        assert not agenda.ready
        assert agenda.has_news()

    with asyncio.Runner(loop_factory=SILENT[loop]) as runner:
        runner.run(scene())

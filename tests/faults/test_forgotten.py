"""A store on a server that is forgotten without `close()`: its thread ends, and it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.testing.servers import CARELESS, PostgresServer
from holdfast.testing.valkey import ValkeyServer

FORGETS = """
import asyncio, gc, sys, threading, time
import holdfast

def use(url):
    store = holdfast.open(url)
    watch = store.records.watch()  # which has a thread of the store's
    store.records.put("a", {"x": 1})
    assert watch.next(20) is not None

async def use_async(url):
    store = await holdfast.open_async(url)
    watch = store.records.watch()
    await store.records.put("a", {"x": 1})
    assert await watch.next(20) is not None

def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast")]

_, colour, url = sys.argv
use(url) if colour == "blocking" else asyncio.run(use_async(url))
deadline = time.monotonic() + 20
while ours():
    assert time.monotonic() < deadline, ours()
    gc.collect()
    time.sleep(0.01)
"""

BEGINS_TO_CLOSE = """
import asyncio, gc, sys, threading, time
import holdfast

async def use(url):
    store = await holdfast.open_async(url)
    watch = store.records.watch()
    await store.records.put("a", {"x": 1})
    assert await watch.next(20) is not None
    return asyncio.create_task(store.close())

loop = asyncio.new_event_loop()
loop.run_until_complete(use(sys.argv[1]))
loop.close()
deadline = time.monotonic() + 20
while any(thread.name.startswith("holdfast") for thread in threading.enumerate()):
    assert time.monotonic() < deadline, threading.enumerate()
    gc.collect()
    time.sleep(0.01)
"""

CLOSES = """
import gc, sys
import holdfast

url = sys.argv[2]
with holdfast.open(url) as store:
    store.records.put("a", {"x": 1})
del store
gc.collect()
try:
    holdfast.open(sys.argv[1] + "://127.0.0.1:1/0?connect_timeout=1")
except holdfast.Unavailable:
    gc.collect()
else:
    raise AssertionError("there is a server")
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with PostgresServer("18", settings=CARELESS) as server:
        yield server.create_database()


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.fresh_url()


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def _told(program: str, *arguments: str) -> list[str]:
    """Where the stores are that the program has forgotten, as Python tells it on its stderr."""
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return re.findall(r"ResourceWarning: unclosed store on (.*)", done.stderr)


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_forgotten_store_ends_its_thread_and_says_so(url: str, colour: str) -> None:
    (where,) = _told(FORGETS, colour, url)
    port = re.search(r":(\d+)/", url)
    assert port is not None
    assert f":{port[1]}" in where


def test_a_store_that_was_closed_or_not_opened_says_nothing(url: str) -> None:
    assert _told(CLOSES, url.partition(":")[0], url) == []


def test_a_store_whose_loop_ends_while_it_closes_ends_its_thread(url: str) -> None:
    assert _told(BEGINS_TO_CLOSE, url) == []

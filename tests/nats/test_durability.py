"""What was acknowledged is there after a kill: of the server, of a node, of the leader.

A tenth of HOLDFAST_KILLS is how often the server is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import AsyncStore
from holdfast.testing.nats import NatsCluster, NatsServer

KILLS = int(os.environ.get("HOLDFAST_KILLS", "0"))
WRITERS = 8
PATIENCE = 60.0


class Load:
    """Writers that go on until they are told to stop, and what was acknowledged to them."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._stopped = False
        self._news = asyncio.Event()
        self.written: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.counter = 0

    async def write(self, number: int) -> None:
        for step in itertools.count():
            if self._stopped:
                return
            key = f"w{number}.{step}"
            try:
                await self._store.records.put(key, {"n": step})
                self.written[key] = step
                self._news.set()
                await self._store.cells.set(f"w{number}", step)
                self.written[f"cell w{number}"] = step
                await self._add()
            except (holdfast.Unavailable, holdfast.Timeout):
                self.unknown |= {key, f"cell w{number}"}

    async def _add(self) -> None:
        while True:
            found = await self._store.records.get_field("sum", "n")
            assert found is not None
            if await self._store.records.compare_and_swap("sum", "n", found, int(found) + 1):
                self.counter += 1
                return

    async def more(self, count: int) -> None:
        """Return when so many more writes have been acknowledged."""
        wanted = len(self.written) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.written) < wanted:
                self._news.clear()
                await self._news.wait()

    def stop(self) -> None:
        self._stopped = True

    async def check(self, store: AsyncStore) -> None:
        found = {key: int(record.fields["n"]) async for key, record in store.records.scan("w")}
        for name in await store.cells.list("w"):
            found[f"cell {name}"] = await store.cells.get(name)
        lost = {
            key: (step, found.get(key))
            for key, step in self.written.items()
            if found.get(key, -1) < step or (key not in self.unknown and found[key] != step)
        }
        assert lost == {}
        counter = await store.records.get_field("sum", "n")
        assert counter is not None
        assert int(counter) >= self.counter
        if not self.unknown:
            assert int(counter) == self.counter


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with NatsCluster() as cluster:
        yield cluster


def test_kill_and_restart_of_the_server_lose_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    kills = KILLS // 10 or 3

    async def main() -> None:
        with NatsServer() as server:
            async with holdfast.open_async(server.fresh_url()) as store:
                load = Load(store)
                await store.records.put("sum", {"n": 0})
                async with asyncio.TaskGroup() as group:
                    for number in range(WRITERS):
                        group.create_task(load.write(number))
                    for number in range(kills):
                        await load.more(200)
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                        if KILLS:
                            with capfd.disabled():
                                sys.stderr.write(f"\rnats: {number + 1} of {kills} kills ")
                    await load.more(200)
                    load.stop()
                await load.check(store)
                # And the check does see what is missing.
                sure = load.written.keys() - load.unknown
                await store.records.delete(next(key for key in sure if not key.startswith("cell")))
                with pytest.raises(AssertionError):
                    await load.check(store)

    asyncio.run(main())


def test_a_node_killed_under_load_loses_nothing_and_the_rest_works_on(
    cluster: NatsCluster,
) -> None:
    async def main() -> None:
        url = cluster.fresh_url(replicas="3")
        async with holdfast.open_async(url) as store, holdfast.open_async(url) as other:
            load = Load(store)
            await store.records.put("sum", {"n": 0})
            async with asyncio.TaskGroup() as group:
                for number in range(WRITERS):
                    group.create_task(load.write(number))
                for node in range(3):  # the leader is one of them, and the one we talk to
                    await load.more(100)
                    await asyncio.to_thread(cluster.kill, node)
                    await load.more(100)
                    await asyncio.to_thread(cluster.start_node, node)
                load.stop()
            await load.check(other)

    asyncio.run(main())


def test_three_replicas_are_read_as_they_were_written(cluster: NatsCluster) -> None:
    async def main() -> None:
        url = cluster.fresh_url(replicas="3")
        async with holdfast.open_async(url) as store, holdfast.open_async(url) as other:
            for number in range(100):
                await store.records.put("a", {"n": number})
                await store.cells.set("c", number)
                assert await other.records.get_field("a", "n") == b"%d" % number
                assert await other.cells.get("c") == number
                listed = [(key, one.fields) async for key, one in other.records.scan()]
                assert listed == [("a", {"n": b"%d" % number})]

    asyncio.run(main())


def test_a_watch_of_three_replicas_tells_everything(cluster: NatsCluster) -> None:
    async def main() -> None:
        url = cluster.fresh_url(replicas="3")
        async with (
            holdfast.open_async(url) as store,
            holdfast.open_async(url) as other,
            other.records.watch("a.") as watch,
        ):
            assert await watch.next(PATIENCE) is holdfast.CAUGHT_UP
            for number in range(50):
                await store.records.put(f"b.{number}", {"n": number})
                await store.records.put(f"a.{number}", {"n": number})
                change = await watch.next(PATIENCE)
                assert isinstance(change, holdfast.RecordChange)
                assert change.key == f"a.{number}"

    asyncio.run(main())

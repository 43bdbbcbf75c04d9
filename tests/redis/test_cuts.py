"""Connections that break, servers that stall or die: each write has exactly one effect."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest

import holdfast
from holdfast import Event, Record
from holdfast.backends.redis.records import SeenWrite
from holdfast.facets.records import KEEP_TTL, RecordWrite
from holdfast.runtime.blocking import run
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.valkey import ValkeyServer

PATIENCE = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def proxy(server: ValkeyServer) -> Iterator[FaultProxy]:
    # What is cut is one script's answer and a hint's: they come together, and end a line.
    with FaultProxy(
        "127.0.0.1", server.port, answered=lambda answer: answer.endswith(b"\r\n")
    ) as proxy:
        yield proxy


def test_a_lost_answer_is_asked_for_again_and_has_one_effect(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.records.put("a", {"n": 0})
        proxy.cut_before_reply(b"EVALSHA")
        assert store.records.compare_and_swap("a", "n", 0, 1) is True
        proxy.cut_before_reply(b"EVALSHA")
        assert store.records.delete("a") is True
        proxy.cut_before_reply(b"EVALSHA")
        assert store.cells.set("c", "x") == 1
        proxy.cut_before_reply(b"EVALSHA")
        assert store.cells.cas("c", 1, "y") == 2
        proxy.cut_before_reply(b"EVALSHA")
        assert store.cells.delete("c") is True
        proxy.cut_before_reply(b"EVALSHA")
        assert store.events.append_event(Event("r", "Noted", "k")).run_seq == 1
        proxy.cut_before_reply(b"EVALSHA")
        assert len(store.events.fetch_events("r")) == 1
        proxy.cut_before_reply(b"HMGET")
        assert store.cells.get("c") is None
        proxy.cut_before_reply(b"ZRANGEBYLEX")
        assert list(store.records.scan()) == []
        assert proxy.counts.cuts == 9


def test_a_request_that_was_lost_is_done_by_the_repeat(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.records.put("a", {"n": 0})
        for number in range(5):
            proxy.cut_before_server(b"EVALSHA")
            assert store.records.compare_and_swap("a", "n", number, number + 1) is True
            proxy.cut_before_server(b"EVALSHA")
            assert store.cells.set("c", number) == number + 1
            proxy.cut_before_server(b"EVALSHA")
            appended = store.events.append_event(Event("r", "Noted", f"{number}"))
            assert (appended.run_seq, appended.idempotent) == (number + 1, False)
        assert store.records.get("a") == Record({"n": b"5"})


@pytest.mark.parametrize("where", ["reply", "server"])
def test_two_lost_answers_are_unknown_and_the_callers_repeat_settles_it(
    server: ValkeyServer, proxy: FaultProxy, where: str
) -> None:
    cut = proxy.cut_before_reply if where == "reply" else proxy.cut_before_server
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.records.put("a", {"n": 0})
        calls: list[Callable[[UUID], object]] = [
            lambda op: store.records.compare_and_swap("a", "n", 0, 1, op_id=op),
            lambda op: store.cells.cas("c", None, "x", op_id=op),
            lambda op: (
                store.events.append_event(Event("r", "Noted", str(op)), expected_seq=0).run_seq
            ),
        ]
        for call in calls:
            op = uuid4()
            cut(b"EVALSHA", times=2)
            with pytest.raises(holdfast.Unavailable) as caught:
                call(op)
            assert caught.value.outcome_unknown
            assert caught.value.retryable
            assert call(op)
            assert call(op)
        assert store.records.get("a") == Record({"n": b"1"})
        found = store.cells.get_versioned("c")
        assert found is not None
        assert (found.version, found.value) == (1, "x")
        assert len(store.events.fetch_events("r")) == 1


def test_every_caller_of_a_cut_pipeline_gets_one_effect(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    async def work() -> None:
        async with holdfast.open_async(proxy.through(server.fresh_url())) as store:
            await store.records.put("a", {"x": 0})
            for number in range(10):
                # Somewhere among the answers, which are 4 bytes each.
                proxy.cut_after(to_client=4 * number + number % 3)
                versions = await asyncio.gather(*(store.cells.set("c", n) for n in range(20)))
                assert sorted(versions) == list(range(20 * number + 1, 20 * number + 21))
                proxy.heal()
            assert proxy.counts.cuts >= 5

    asyncio.run(work())


def test_a_silent_server_is_a_timeout_and_only_writes_are_unknown(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    url = proxy.through(server.fresh_url(call_timeout="0.2"))
    with holdfast.open(url) as store:
        store.cells.set("x", 1)
        proxy.black_hole()
        with pytest.raises(holdfast.Timeout, match="call_timeout") as caught:
            store.cells.set("x", 2)
        assert caught.value.outcome_unknown
        proxy.heal()
        store.cells.get("x")
        proxy.black_hole()
        with pytest.raises(holdfast.Timeout) as caught:
            store.cells.get("x")
        assert not caught.value.outcome_unknown
        proxy.heal()
        assert store.cells.get("x") in (1, 2)


def test_a_server_that_is_away_is_unavailable_and_nothing_was_done(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with holdfast.open(proxy.through(server.fresh_url())) as store:
        store.cells.set("x", 1)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(holdfast.Unavailable) as caught:
            store.records.get("a")
        assert caught.value.retryable
        with pytest.raises(holdfast.Unavailable) as caught:
            store.cells.set("x", 2)
        assert not caught.value.outcome_unknown
        proxy.heal()
        assert store.cells.set("x", 3) == 2


def test_a_cancelled_caller_harms_nobody(server: ValkeyServer, proxy: FaultProxy) -> None:
    async def work() -> None:
        async with holdfast.open_async(proxy.through(server.fresh_url())) as store:
            await store.records.put("a", {"x": 1})
            proxy.delay(0.05)
            tasks = [asyncio.ensure_future(store.cells.set("c", n)) for n in range(10)]
            scan = asyncio.ensure_future(_scan(store))
            await asyncio.sleep(0.02)
            for task in (*tasks[::2], scan):
                task.cancel()
            await asyncio.gather(*tasks, scan, return_exceptions=True)
            proxy.delay(0)
            assert all(task.result() >= 1 for task in tasks[1::2])
            assert await _scan(store) == ["a"]

    async def _scan(store: holdfast.AsyncStore) -> list[str]:
        return [key async for key, _ in store.records.scan()]

    asyncio.run(work())


def test_what_an_interrupted_thread_writes_next_comes_second(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    url = server.fresh_url()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with holdfast.open(proxy.through(url)) as store:
            store.records.put("a", {"n": 0})
            proxy.delay(0.3)  # the server hears of it after the interrupt
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                store.records.put("a", {"n": "interrupted"})
            proxy.delay(0)
            store.records.put("a", {"n": "second"})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    proxy.wait_until_closed()  # nothing is on its way any more
    with holdfast.open(url) as store:
        assert store.records.get_field("a", "n") == b"second"


# Repeats that cannot tell


def _swap(op: bytes, begun: float) -> RecordWrite:
    return RecordWrite(
        ("default", "a"), {"n": b"0"}, {"n": b"1"}, False, False, KEEP_TTL, op, begun
    )  # fmt: skip


def test_a_repeat_is_uncertain_only_if_something_was_forgotten_since(server: ValkeyServer) -> None:
    with (
        holdfast.open(server.url(prefix="doubt")) as store,
        contextlib.closing(server.client()) as client,
    ):
        backend = store._backend  # noqa: SLF001
        operation = backend.records._write  # type: ignore[attr-defined]  # noqa: SLF001
        db = backend.records._db  # type: ignore[attr-defined]  # noqa: SLF001
        store.records.put("b", {"n": 0})
        store.records.put("a", {"n": 0})
        space = backend.records._spaces["default"]  # type: ignore[attr-defined]  # noqa: SLF001
        write = SeenWrite(_swap(uuid4().bytes, time.monotonic()), space, 0)
        command = operation.command(write, repeat=True)
        client.hdel("doubt:{default}:log", "1")
        assert run(db.ask([command], b"")) == [[-1]]
        with pytest.raises(holdfast.Unavailable, match="others have written") as caught:
            operation.answer(-1, write)
        assert caught.value.outcome_unknown
        run(backend.move_clock(3600 * 1_000_000))
        assert run(db.ask([command], b"")) == [[4]]  # what is there is older than the first try
        assert store.records.get("a") == Record({"n": b"1"})
        store.records.put("a", {"n": 5})
        assert run(db.ask([command], b"")) == [[4]]  # known, though not the newest
        assert store.records.get("a") == Record({"n": b"5"})


def test_a_repeat_after_somebody_elses_write_is_certain(
    server: ValkeyServer, proxy: FaultProxy
) -> None:
    with (
        holdfast.open(server.url(prefix="two")) as other,
        holdfast.open(proxy.through(server.url(prefix="two"))) as store,
    ):
        other.records.put("a", {"n": 0})
        store.records.put("b", {"n": 0})
        other.records.put("a", {"n": 1})
        proxy.cut_before_server(b"EVALSHA")
        assert store.records.compare_and_swap("a", "n", 1, 2) is True
        other.records.put("a", {"n": 3})
        proxy.cut_before_reply(b"EVALSHA")
        store.records.put("a", {"n": 4})
        assert other.records.get("a") == Record({"n": b"4"})


def test_every_caller_on_a_hot_record_is_settled(server: ValkeyServer, proxy: FaultProxy) -> None:
    async def work() -> None:
        async with holdfast.open_async(proxy.through(server.fresh_url())) as store:
            for number in range(10):
                await store.records.put("hot", {"n": 0})
                proxy.cut_after(to_client=5 * number)
                won = await asyncio.gather(
                    *(store.records.set_field("hot", f"f{n}", n) for n in range(20)),
                    *(store.records.compare_and_swap("hot", "n", 0, n) for n in range(1, 21)),
                )
                proxy.heal()
                assert won[20:].count(True) == 1
                found = await store.records.get("hot")
                assert found is not None
                assert len(found.fields) == 21
                assert found.fields["n"] == b"%d" % (won.index(True, 20) - 19)
            assert proxy.counts.cuts >= 8

    asyncio.run(work())


def test_a_cell_remembers_its_last_hundred_operations(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        ops = [uuid4() for _ in range(100)]
        for number, op in enumerate(ops):
            assert store.cells.set("c", number, op_id=op) == number + 1
        for number, op in enumerate(ops):
            assert store.cells.set("c", "again", op_id=op) == number + 1
        assert store.cells.get("c") == 99
        for number in range(20):
            store.cells.set("c", number)
        assert store.cells.set("c", "again", op_id=ops[0]) == 121  # forgotten: a new write


# Servers that go down


def test_a_restart_is_not_noticed(server: ValkeyServer) -> None:
    with holdfast.open(server.fresh_url()) as store:
        store.records.put("a", {"x": 1})
        with store.records.watch() as watch:
            while watch.next(PATIENCE) is not holdfast.CAUGHT_UP:
                pass
            for number in range(3):
                server.restart()
                store.records.put("a", {"x": number})
                change = watch.next(PATIENCE)
                assert isinstance(change, holdfast.RecordChange)
                assert change.record == Record({"x": b"%d" % number})
                assert store.cells.set("c", number) == number + 1


class _Writers:
    """Four threads that write rising numbers, and what was acknowledged of them."""

    def __init__(self, server: ValkeyServer) -> None:
        self.server = server
        self.acknowledged = {f"k{number}": 0 for number in range(4)}
        self.url = server.fresh_url(durability="standard")

    def work_until_killed(self, more: int) -> None:
        goal = max(self.acknowledged.values()) + more
        enough = threading.Semaphore(0)
        threads = [
            threading.Thread(target=self._write, args=(key, goal, enough))
            for key in self.acknowledged
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert enough.acquire(timeout=PATIENCE), "a writer did not get as far as it should"
        self.server.kill()
        for thread in threads:
            thread.join()
        self.server.start()

    def lost(self) -> list[str]:
        """Where the store has less than was acknowledged, or more than was asked for."""
        lost = []
        with holdfast.open(self.url) as store:
            for key, number in self.acknowledged.items():
                field = store.records.get_field(key, "n")
                events = store.events.fetch_events(key)
                assert [one.run_seq for one in events] == [*range(1, len(events) + 1)]
                found = (int(field or 0), store.cells.get(key, 0), len(events))
                if min(found) < number or max(found) > number + 1:
                    lost.append(f"{key}: {number} was acknowledged, found {found}")
                self.acknowledged[key] = min(found)
        return lost

    def _write(self, key: str, goal: int, enough: threading.Semaphore) -> None:
        with holdfast.open(self.url) as store:
            while True:
                number = self.acknowledged[key] + 1
                try:
                    store.records.put(key, {"n": number})
                    store.cells.set(key, number)
                    store.events.append_event(Event(key, "Noted", f"{number}"))
                except holdfast.StoreError:
                    return
                self.acknowledged[key] = number
                if number == goal:
                    enough.release()


def test_killing_the_server_loses_no_acknowledged_write(server: ValkeyServer) -> None:
    writers = _Writers(server)
    for _ in range(5):
        writers.work_until_killed(more=10)
        assert writers.lost() == []


def test_without_a_log_the_same_kill_loses_writes() -> None:
    with ValkeyServer({"appendonly": "no"}) as server:
        writers = _Writers(server)
        writers.work_until_killed(more=10)
        assert writers.lost() != []

"""Every fault of the proxy, shown on a real PostgreSQL connection."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from holdfast.testing.proxy import Counts, Direction, FaultProxy
from holdfast.testing.servers import PostgresServer

INSERT: LiteralString = "INSERT INTO written VALUES (%s)"
LOST = psycopg.OperationalError
SOON = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("18") as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> str:
    # One for each test: what a client has given up may commit when the next test runs.
    url = server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE written (number int)")
    return url


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


def connect(proxy: FaultProxy, database: str) -> psycopg.Connection:
    url = proxy.through(database)
    # Without the wish for encryption: its one-byte answer is a test of its own.
    return psycopg.connect(url, autocommit=True, sslmode="disable", gssencmode="disable")


def written(database: str) -> list[int]:
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT number FROM written ORDER BY number").fetchall()
    return [row[0] for row in rows]


def test_faultless_proxy_passes_everything_and_counts_it(proxy: FaultProxy, database: str) -> None:
    text = "x" * 3_000_000
    with connect(proxy, database) as connection:
        before = proxy.counts
        assert before.connections == 1
        row = connection.execute("SELECT %s::text", [text]).fetchone()
        assert row == (text,)
    proxy.wait_until_closed()
    after = proxy.counts
    assert after.to_server - before.to_server > len(text)
    assert after.to_client - before.to_client > len(text)
    assert after.cuts == 0


def test_cut_resets_open_connections_and_new_ones_work(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as first, connect(proxy, database) as second:
        assert proxy.cut() == 2
        for connection in (first, second):
            with pytest.raises(LOST):
                connection.execute("SELECT 1")
    with connect(proxy, database) as third:
        third.execute(INSERT, [3])
    assert written(database) == [3]
    assert (proxy.counts.connections, proxy.counts.cuts) == (3, 2)


def test_refused_until_healed_while_open_connections_stay(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as opened:
        proxy.refuse()
        with pytest.raises(LOST, match="refused"):
            connect(proxy, database)
        opened.execute(INSERT, [1])
        proxy.heal()
        with connect(proxy, database) as later:
            later.execute(INSERT, [2])
    assert written(database) == [1, 2]


def test_black_hole_swallows_until_healed(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.black_hole()
        with pytest.raises(LOST, match="timeout"):
            psycopg.connect(proxy.through(database), connect_timeout=2)
        answered = threading.Event()

        def insert() -> None:
            connection.execute(INSERT, [1])
            answered.set()

        caller = threading.Thread(target=insert)
        caller.start()
        assert not answered.wait(0.2)
        assert written(database) == []
        proxy.heal()
        assert answered.wait(SOON), "the held request was never answered"
        caller.join()
    assert written(database) == [1]


def test_black_hole_opens_at_a_request(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.black_hole_at(b"INSERT", nth=2)
        connection.execute(INSERT, [1])
        caller = threading.Thread(target=connection.execute, args=(INSERT, [2]))
        caller.start()
        assert proxy.counts.cuts == 0
        caller.join(0.2)
        assert caller.is_alive()
        assert written(database) == [1]
        proxy.heal()
        caller.join(SOON)
    assert written(database) == [1, 2]


def test_delay_holds_both_directions(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.delay(0.1)
        started = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_half_closed_connection_is_lost_to_the_client(
    proxy: FaultProxy, database: str, direction: Direction
) -> None:
    with connect(proxy, database) as connection:
        proxy.half_close(direction)
        with pytest.raises(LOST, match="closed the connection unexpectedly"):
            connection.execute(INSERT, [1])
    assert proxy.counts.cuts == 0


def test_cut_after_bytes_at_every_point_of_a_call(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        before = proxy.counts
        connection.execute(INSERT, [0])
        after = proxy.counts
    sent, received = after.to_server - before.to_server, after.to_client - before.to_client
    assert min(sent, received) > 30
    for number in range(0, sent, 4):
        assert lost(proxy, database, number, to_server=number), f"{number} of {sent} bytes sent"
    assert written(database) == [0]
    for number in range(0, received, 4):
        assert lost(proxy, database, 1000 + number, to_client=number)
    assert written(database) == [0, *range(1000, 1000 + received, 4)]


def lost(proxy: FaultProxy, database: str, number: int, **limit: int) -> bool:
    """Whether the call was cut; the proxy must have passed exactly the bytes of the limit."""
    with connect(proxy, database) as connection:
        before = proxy.counts
        proxy.cut_after(**limit)
        with pytest.raises(LOST):
            connection.execute(INSERT, [number])
        after = proxy.counts
    ((direction, bytes_passed),) = limit.items()
    passed = getattr(after, direction) - getattr(before, direction)
    return passed == bytes_passed and after.cuts - before.cuts == 1


def test_cut_before_reply_has_committed(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.cut_before_reply(b"INSERT INTO written")
        connection.execute("SELECT 1")
        with pytest.raises(LOST):
            connection.execute(INSERT, [1])
        assert written(database) == [1]
    with connect(proxy, database) as connection:
        connection.execute(INSERT, [2])
    assert written(database) == [1, 2]
    assert proxy.counts.cuts == 1


def test_cut_before_server_has_not_committed(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.cut_before_server(b"INSERT INTO written")
        connection.execute("SELECT 1")
        with pytest.raises(LOST):
            connection.execute(INSERT, [1])
    with connect(proxy, database) as connection:
        connection.execute(INSERT, [2])
    assert written(database) == [2]
    assert proxy.counts.cuts == 1


def test_commit_of_a_transaction_is_cut_on_either_side(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        proxy.cut_before_server(b"COMMIT")
        with pytest.raises(LOST), connection.transaction():
            connection.execute(INSERT, [1])
    with connect(proxy, database) as connection:
        proxy.cut_before_reply(b"COMMIT")
        with pytest.raises(LOST), connection.transaction():
            connection.execute(INSERT, [2])
    assert written(database) == [2]


def test_prepared_statement_is_found_by_its_argument(proxy: FaultProxy, database: str) -> None:
    with connect(proxy, database) as connection:
        connection.execute("CREATE TEMP TABLE named (name text)", prepare=False)
        insert: LiteralString = "INSERT INTO named VALUES (%s)"
        for name in ("first", "second"):
            connection.execute(insert, [name], prepare=True)
        proxy.cut_before_reply(b"INSERT INTO named")
        connection.execute(insert, ["third"], prepare=True)
        proxy.cut_before_reply(b"fourth")
        with pytest.raises(LOST):
            connection.execute(insert, ["fourth"], prepare=True)


def test_nth_request_and_the_following_are_cut(proxy: FaultProxy, database: str) -> None:
    proxy.cut_before_reply(b"INSERT", nth=3, times=2)
    for number in range(1, 6):
        with connect(proxy, database) as connection:
            if number in {3, 4}:
                with pytest.raises(LOST):
                    connection.execute(INSERT, [number])
            else:
                connection.execute(INSERT, [number])
    assert written(database) == [1, 2, 3, 4, 5]
    assert proxy.counts.cuts == 2


def test_answer_larger_than_a_packet_is_awaited_to_its_end(
    proxy: FaultProxy, database: str
) -> None:
    # PostgreSQL sends the first part of so large an answer long before it commits.
    large: LiteralString = "INSERT INTO written SELECT generate_series(1, 50000) RETURNING number"
    with connect(proxy, database) as connection:
        proxy.cut_before_reply(b"generate_series")
        with pytest.raises(LOST):
            connection.execute(large)
    assert len(written(database)) == 50_000
    assert proxy.counts.to_client < 10_000


@pytest.mark.parametrize("nth", [1, 2])
def test_opening_of_a_connection_is_cut(proxy: FaultProxy, database: str, nth: int) -> None:
    # First the wish for encryption, then the greeting.
    proxy.cut_before_reply(nth=nth)
    url = proxy.through(database)
    with pytest.raises(LOST):
        psycopg.connect(url, sslmode="prefer", gssencmode="disable", connect_timeout=10)
    assert proxy.counts.cuts == 1


def test_server_that_is_down_gives_a_reset(proxy: FaultProxy) -> None:
    proxy.refuse()
    with FaultProxy("127.0.0.1", proxy.port) as outer, pytest.raises(LOST):
        psycopg.connect(f"postgresql://127.0.0.1:{outer.port}/x", connect_timeout=10)
    assert proxy.counts == Counts()


async def fetch_through(url: str) -> object:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        cursor = await connection.execute("SELECT 1")
        return await cursor.fetchone()


def test_async_client_and_proxy_share_a_process(proxy: FaultProxy, database: str) -> None:
    assert asyncio.run(fetch_through(proxy.through(database))) == (1,)
    proxy.cut_before_server(b"SELECT 1")
    with pytest.raises(LOST):
        asyncio.run(fetch_through(proxy.through(database)))


def test_cut_after_needs_one_direction(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="either to_server or to_client"):
        proxy.cut_after()
    with pytest.raises(ValueError, match="either to_server or to_client"):
        proxy.cut_after(to_server=1, to_client=1)

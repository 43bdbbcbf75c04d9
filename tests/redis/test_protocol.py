"""Answers are read whole, in whatever pieces they come; index entries are the same in Lua."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import RecordIndex
from holdfast.backends.redis.protocol import Reader, Refusal, pack
from holdfast.backends.redis.script import _text
from holdfast.errors import Unavailable
from holdfast.facets.records_scan import entry
from holdfast.testing.valkey import ValkeyServer

ANSWERS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=20,
)


def _spelled(answer: Any) -> bytes:  # noqa: ANN401 - an answer
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, bytes):
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    return b"*%d\r\n" % len(answer) + b"".join(map(_spelled, answer))


@settings(max_examples=300)
@given(st.lists(ANSWERS, max_size=5), st.integers(1, 50))
def test_answers_come_back_whatever_the_pieces(answers: list[Any], size: int) -> None:
    data = b"".join(map(_spelled, answers))
    reader, found = Reader(), []  # type: ignore[var-annotated]
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size], found)
    assert found == answers


def test_a_long_value_comes_back_from_many_pieces() -> None:
    reader, found = Reader(), []  # type: ignore[var-annotated]
    value = bytes(range(256)) * 4000
    data = b":1\r\n" + _spelled([value, b"x"]) + b"+OK\r\n"
    for at in range(0, len(data), 1000):
        reader.feed(data[at : at + 1000], found)
    assert found == [1, [value, b"x"], b"OK"]


def test_a_refusal_is_an_answer_with_its_code() -> None:
    found: list[Any] = []
    Reader().feed(b"-MOVED 12 127.0.0.1:7000\r\n*2\r\n-ERR no\r\n:2\r\n*-1\r\n", found)
    assert isinstance(found[0], Refusal)
    assert (found[0].code, found[0].words) == ("MOVED", "12 127.0.0.1:7000")
    assert isinstance(found[1][0], Refusal)
    assert (found[1][1], found[2]) == (2, None)


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(Unavailable, match="not an answer"):
        Reader().feed(b"HTTP/1.1 400 Bad Request\r\n", [])


def test_what_no_value_can_be_made_of_is_refused() -> None:
    with pytest.raises(Unavailable, match="not an answer"):
        Reader().feed(b"%1\r\n*0\r\n:1\r\n", [])


def test_commands_are_spelled_out() -> None:
    assert pack([(b"GET", b"a\r\n"), (b"PING",)]) == (
        b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n"
    )


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with ValkeyServer() as server, contextlib.closing(server.client()) as client:
        yield client


_VALUES = st.one_of(
    st.binary(max_size=50),
    st.integers(-(2**64), 2**64).map(lambda number: str(number).encode()),
    st.sampled_from([b"0", b"-0", b"007", b"-", b"", b"9223372036854775807", b"1\n", b"1.5"]),
    st.sampled_from([b"-9223372036854775808", b"9223372036854775808", b"-9223372036854775809"]),
)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(_VALUES, min_size=1, max_size=3))
def test_an_index_entry_is_the_same_in_lua_and_python(client: Any, values: list[bytes]) -> None:  # noqa: ANN401 - as above
    fields = {f"f{at}": value for at, value in enumerate(values)}
    found = entry(RecordIndex("", tuple(fields)), fields)
    assert found is not None
    script = _text("fill_index").decode().partition("local base, name, limit")[0]
    script += "\nreturn entry_of(KEYS[1], 'the.key', ARGV)"
    client.delete("record")
    client.hset("record", mapping=fields)
    made = client.eval(script, 1, "record", *fields)
    assert made == "\0".join((*found, "the.key")).encode()

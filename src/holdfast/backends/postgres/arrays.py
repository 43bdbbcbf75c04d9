"""Arrays as parameters: in the server's binary form, where an item is its length and its bytes.

    texts(["a", None])  ->  1 dimension, may have NULLs, of text (25), 2 items from 1 on,
                            length 1 "a", length -1

psycopg adapts a list item by item in Python: with six arrays per call that was most of the
client's time. Written as text (`{"a",NULL}`) an array is quoted here, letter by letter, and parsed
there; that form is for cursors that put literals into the query, as behind a pooler. The type is
for the query to say (`:keys::text[]`): the server refuses an array of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from struct import Struct, error
from typing import Any, NamedTuple

from psycopg import BaseConnection, DataError
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format


class _Kind(NamedTuple):
    """A type of items: its number, the same on every server, and how one of them is written."""

    oid: int
    in_binary: Callable[[Any], bytes]
    in_text: Callable[[Any], str]
    is_text: bool = False  # which is in the connection's encoding, also in binary


class Array(NamedTuple):
    """A parameter of a query; None among the items is NULL."""

    kind: _Kind
    items: list[Any]


def texts(items: Iterable[str | None]) -> Array:
    """A text[]."""
    return Array(_TEXT, list(items))


def jsons(items: Iterable[bytes | None]) -> Array:
    """A jsonb[]."""
    return Array(_JSONB, list(items))


def bigints(items: Iterable[int | None]) -> Array:
    """A bigint[]."""
    return Array(_BIGINT, list(items))


def booleans(items: Iterable[bool]) -> Array:
    """A boolean[]."""
    return Array(_BOOLEAN, list(items))


def uuids(items: Iterable[bytes]) -> Array:
    """A uuid[] of their 16 bytes."""
    return Array(_UUID, list(items))


def teach_arrays(driver: AdaptContext) -> None:
    """Have a connection or a cursor of psycopg's take them."""
    driver.adapters.register_dumper(Array, _TextDumper)
    driver.adapters.register_dumper(Array, _BinaryDumper)  # the last one is the usual one


_HEAD = Struct(">iiIii").pack  # dimensions, whether it may have NULLs, type, how many, from where
_EMPTY_HEAD = Struct(">iiI").pack
_length = Struct(">i").pack
_NULL = _length(-1)


class _BinaryDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        (oid, in_binary, _, is_text), items = obj
        if not items:
            return _EMPTY_HEAD(0, 0, oid)
        try:
            binary: list[Any] = [item if item is None else in_binary(item) for item in items]
            if is_text and (encoding := _encoding(self.connection)) != _UTF_8:
                binary = [item if item is None else _recoded(item, encoding) for item in binary]
        except _BAD_ITEMS as exc:
            raise DataError(f"an item of an array cannot be sent: {exc}") from exc
        if None in binary:
            sized = (_NULL if item is None else _length(len(item)) + item for item in binary)
            return b"".join([_HEAD(1, 1, oid, len(items), 1), *sized])
        pairs = zip(map(_length, map(len, binary)), binary, strict=True)
        return b"".join([_HEAD(1, 0, oid, len(items), 1), *chain.from_iterable(pairs)])


class _TextDumper(Dumper):
    format = Format.TEXT

    def dump(self, obj: Array) -> bytes:
        (_, _, in_text, _), items = obj
        try:
            spelled = ("NULL" if item is None else in_text(item) for item in items)
            return ("{" + ",".join(spelled) + "}").encode(_encoding(self.connection))
        except _BAD_ITEMS as exc:
            raise DataError(f"an item of an array cannot be sent: {exc}") from exc


# What Python says of a number, a truth or a letter that does not fit; the caller of a batch is to
# hear of it as of what the server refuses.
_BAD_ITEMS = (error, KeyError, UnicodeError)
_UTF_8 = "utf-8"


def _encoding(connection: BaseConnection[Any] | None) -> str:
    """Python's name of the connection's encoding: a caller's own may have any."""
    if connection is None or connection.pgconn.parameter_status(b"client_encoding") == b"UTF8":
        return _UTF_8
    encoding = connection.info.encoding
    return _UTF_8 if encoding == "ascii" else encoding  # a server that does not convert


def _recoded(text: bytes, encoding: str) -> bytes:
    return text.decode().encode(encoding)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_BOOLEAN = _Kind(16, {False: b"\0", True: b"\1"}.__getitem__, str)
_BIGINT = _Kind(20, Struct(">q").pack, str)
_TEXT = _Kind(25, str.encode, _quoted, is_text=True)
_UUID = _Kind(2950, bytes, bytes.hex)
_JSONB = _Kind(  # 1: the form's version
    3802, b"\1".__add__, lambda item: _quoted(item.decode()), is_text=True
)

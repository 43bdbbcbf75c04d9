"""What goes through the codec comes back with the same value and the same types, or is refused."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidArgument, Serialization
from holdfast.codec import decode, encode

keys = (
    st.sampled_from(["$bytes", "$$bytes", "$$$bytes", "x$bytes", "$", "", '$bytes":']) | st.text()
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
quick = settings(deadline=None, database=None, print_blob=True)


@quick
@given(values)
def test_every_value_comes_back_with_its_types(value: object) -> None:
    # repr tells 1 from True and 1.0, -0.0 from 0.0, bytes from text, and the order of keys.
    assert repr(decode(encode(value))) == repr(value)


@quick
@given(values)
def test_stored_text_decodes_like_stored_bytes(value: object) -> None:
    assert repr(decode(encode(value).decode())) == repr(value)


@quick
@given(values)
def test_encoded_is_json_that_other_tools_read(value: object) -> None:
    json.loads(encode(value))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"hi", b'{"$bytes":"aGk="}'),
        ({"$bytes": "aGk="}, b'{"$$bytes":"aGk="}'),
        ({"$$bytes": 1}, b'{"$$$bytes":1}'),
        ({"$bytes": 1, "b": 2}, b'{"$bytes":1,"b":2}'),
        ({"a$bytes": 1}, b'{"a$bytes":1}'),
        ({"$bytes": b""}, b'{"$$bytes":{"$bytes":""}}'),
        ("ü", '"ü"'.encode()),
    ],
    ids=repr,
)
def test_stored_form_is_stable(value: object, encoded: bytes) -> None:
    assert encode(value) == encoded
    assert decode(encoded) == value


class Level(enum.IntEnum):
    HIGH = 3


class Kind(enum.StrEnum):
    A = "a"


class Pair(NamedTuple):
    left: int
    right: bytes


class Ratio(float):
    pass


@dataclasses.dataclass
class Point:
    x: Any
    tag: bytes = b"t"


class Box(msgspec.Struct):
    points: list[Point]


class Model:
    """Looks like pydantic's."""

    def model_dump(self, *, mode: str) -> dict[str, object]:
        return {"mode": mode, "raw": b"r"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ((1, (2,)), [1, [2]]),
        (Pair(1, b"x"), [1, b"x"]),
        (Level.HIGH, 3),
        (Kind.A, "a"),
        (Ratio(0.5), 0.5),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Point(1), {"x": 1, "tag": b"t"}),
        (Box([Point([Level.HIGH])]), {"points": [{"x": [3], "tag": b"t"}]}),
        (Model(), {"mode": "json", "raw": b"r"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_stored_as_their_plain_form(value: object, found: object) -> None:
    assert repr(decode(encode(value))) == repr(found)


def cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan is not a JSON number"),
        (-math.inf, "-inf is not a JSON number"),
        ({"deep": [math.nan]}, "nan is not a JSON number"),
        (Ratio("inf"), "inf is not a JSON number"),
        (2**63, "integer beyond 64 bits"),
        (-(2**63) - 1, "integer beyond 64 bits"),
        ({1: 2}, "key 1 is not text"),
        ({None: 2}, "key None is not text"),
        ({"s": {1, 2}}, "s: set is not a JSON value"),
        (1j, "complex is not a JSON value"),
        (object(), "object is not a JSON value"),
        (Point, "type is not a JSON value"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (cycle(), "nested too deeply, or contains itself"),
        (Point(math.nan), "nan is not a JSON number"),
        (Point(2**64), "integer beyond 64 bits"),
        (Point({1: 2}), "key 1 is not text"),
        (Point(1j), "complex"),
        (Point(object()), "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_would_not_come_back_is_refused(value: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        encode(value)


# Depth


def nested(levels: int, leaf: object, kind: type) -> object:
    value = leaf
    for _ in range(levels):
        value = [value] if kind is list else {"$bytes": value}
    return value


def with_frames_to_spare(frames: int, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the call's
    def deeper(left: int) -> Any:  # noqa: ANN401
        return deeper(left - 1) if left else call()

    return deeper(sys.getrecursionlimit() - len(inspect.stack(0)) - frames)


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize(("leaf", "levels"), [(1, 250), (Kind.A, 250), (b"x", 249)])
def test_deepest_value_is_read_back_from_a_deep_stack(
    kind: type, leaf: object, levels: int
) -> None:
    value = nested(levels, leaf, kind)
    stored = encode(value)
    back = with_frames_to_spare(300, lambda: decode(stored))
    assert repr(back) == repr(nested(levels, decode(encode(leaf)), kind))
    with pytest.raises(InvalidArgument, match="more than 250 levels might not be read back"):
        encode(nested(levels + 1, leaf, kind))


def test_value_that_does_not_fit_the_stack_is_an_invalid_argument() -> None:
    value = nested(200, 1, list)
    with pytest.raises(InvalidArgument, match="what is left of the stack"):
        with_frames_to_spare(100, lambda: encode(value))


# Conversions of the value's own


class BrokenModel:
    def model_dump(self, *, mode: str) -> object:
        raise LookupError(mode)


class EndlessModel:
    def model_dump(self, *, mode: str) -> object:
        del mode
        return self


class BrokenDict(dict[str, object]):
    def __iter__(self) -> Iterator[str]:
        raise LookupError("dict")

    keys = __iter__  # type: ignore[assignment]


class BrokenList(list[object]):
    def __iter__(self) -> Iterator[object]:
        raise LookupError("list")


class BrokenAttribute:
    def __getattr__(self, name: str) -> object:
        raise LookupError(name)


@pytest.mark.parametrize(
    "value",
    [BrokenModel(), [BrokenModel()], BrokenDict(a=1), BrokenList([1]), BrokenAttribute()],
    ids=lambda value: type(value).__name__,
)
def test_failed_conversion_is_a_serialization_error_with_its_cause(value: object) -> None:
    with pytest.raises(Serialization, match="cannot be converted: LookupError: ") as caught:
        encode(value)
    assert type(caught.value.__cause__) is LookupError


def test_released_memory_is_a_serialization_error() -> None:
    view = memoryview(b"x")
    view.release()
    with pytest.raises(Serialization, match="memoryview cannot be converted: ValueError"):
        encode(view)


def test_model_that_dumps_itself_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        encode(EndlessModel())


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{",
        b"NaN",
        b"1e999",
        b"\xff",
        b'"\xff"',
        b"[" * 100_000,
        b'{"$bytes":5}',
        b'{"$bytes":"a"}',
        '{"$bytes":"ä"}',
        b'{"$bytes":{}}',
    ],
    ids=lambda stored: repr(stored)[:24],
)
def test_damaged_text_is_a_serialization_error(stored: bytes | str) -> None:
    with pytest.raises(Serialization, match="stored value"):
        decode(stored)

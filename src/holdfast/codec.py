"""Values to JSON text and back, without loss.

Any JSON value is stored as plain JSON. JSON has no bytes, so bytes anywhere in
a value are stored as an object of one tagged key, and an object that happens to
look like one is escaped by one more `$`:

    b"hi"               ->  {"$bytes":"aGk="}
    {"$bytes": "aGk="}  ->  {"$$bytes":"aGk="}

A tuple comes back as a list. Dataclasses, msgspec Structs and pydantic models
are stored as their JSON form and come back as plain values.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import InvalidArgument, Serialization, StoreError

MAX_DEPTH = 250
"""Levels of lists and objects, bytes counting as one: read with 300 frames of stack to spare."""

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

_TAG = "$bytes"
_TAG_MARK = '$bytes":'  # what JSON text must contain for decode() to have work to do
_TEXT = frozenset({str})
_LEVELS = frozenset({dict, list, tuple, bytes, bytearray, memoryview})  # one in the JSON each
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def encode(value: object) -> bytes:
    """The value as JSON, UTF-8 encoded.

    Raises InvalidArgument, naming the place, for what would not come back the same:
    NaN and infinities, integers beyond 64 bits, keys that are not text, other types, more
    than MAX_DEPTH levels. Serialization when the value's own conversion fails, with its error
    as the cause.
    """
    try:
        if type(value) is dict and _is_flat(value):
            return _encode(value)  # as nearly all are
        return _encode(_plain(value, "value", MAX_DEPTH))
    except (StoreError, MemoryError):
        raise
    except UnicodeEncodeError as exc:
        raise InvalidArgument("value: text holds a lone surrogate, which is not UTF-8") from exc
    except RecursionError as exc:
        raise InvalidArgument("value: nested too deeply for what is left of the stack") from exc
    except Exception as exc:
        # What a model's `model_dump` or a subclass of dict, list … raises may be anything.
        raise Serialization(
            f"value: {type(value).__name__} cannot be converted: {type(exc).__name__}: {exc}"
        ) from exc


def decode(payload: bytes | str) -> Any:  # noqa: ANN401 - any JSON value, or bytes
    """The value that was encoded."""
    try:
        value = _decode(payload)
        tagged = _TAG_MARK in payload if type(payload) is str else _TAG_MARK.encode() in payload
        return _restore(value) if tagged else value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Serialization(f"stored value cannot be decoded: {exc}") from exc


def sorted_text(payload: str) -> str:
    """The JSON text with the keys of its objects in order: the same for what is equal."""
    try:
        return _encode_sorted(_decode(payload)).decode()
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Serialization(f"stored value cannot be decoded: {exc}") from exc


def byte_size(text: str) -> int:
    """How many bytes the text is in UTF-8; nearly all is ASCII, and then nothing is copied."""
    return len(text) if text.isascii() else len(text.encode())


def _is_flat(value: dict[Any, Any]) -> bool:
    """True for an object without levels below that can be stored as it is."""
    if not _TEXT.issuperset(map(type, value)):
        return False
    for item in value.values():
        kind = type(item)
        if kind is str:
            continue
        if kind is int or kind is float:  # neither NaN nor an infinity lies between
            if not INT64_MIN <= item <= INT64_MAX:
                return False
        elif item is not None and kind is not bool:
            return False
    return len(value) != 1 or not next(iter(value)).endswith(_TAG)  # it may be a tag


def _plain(value: object, at: str, room: int) -> object:  # noqa: PLR0911 - one line per type reads best
    """The value with bytes tagged and everything else checked; `room` is for levels below.

    Exact types first: they are nearly all values, and a lookup is cheaper than isinstance.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return _checked_int(value, at)  # type: ignore[arg-type]
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise InvalidArgument(f"{at}: {value} is not a JSON number")
        return value
    if kind not in _LEVELS:
        return _plain(_builtin(value, at), at, room)
    if not room:
        raise InvalidArgument(
            f"value: nested too deeply, or contains itself: more than {MAX_DEPTH} levels might "
            "not be read back"
        )
    if kind is dict:
        return _plain_dict(value, at, room - 1)  # type: ignore[arg-type]
    if kind is list or kind is tuple:
        room -= 1
        return [_plain(item, f"{at}[]", room) for item in value]  # type: ignore[attr-defined]
    return {_TAG: base64.b64encode(bytes(value)).decode()}  # type: ignore[call-overload]


def _plain_dict(value: dict[object, object], at: str, room: int) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key, item in value.items():
        kind = type(item)
        if type(key) is str and (
            kind is str or kind is bool or (kind is int and INT64_MIN <= item <= INT64_MAX)  # type: ignore[operator]
        ):
            plain[key] = item  # as nearly all are
            continue
        if not isinstance(key, str):
            raise InvalidArgument(f"{at}: key {key!r} is not text; JSON objects have text keys")
        text = key if type(key) is str else str.__str__(key)
        plain[text] = _plain(item, text, room)
    if len(plain) == 1:
        (key,) = plain
        if key.endswith(_TAG) and not key.removesuffix(_TAG).strip("$"):
            return {"$" + key: plain[key]}
    return plain


def _checked_int(value: int, at: str) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise InvalidArgument(f"{at}: integer beyond 64 bits; store it as text")


def _builtin(value: object, at: str) -> object:
    """A plain value for the few other types we accept: models and subclasses of plain types."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    is_model = isinstance(value, msgspec.Struct) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )
    if is_model:
        try:
            return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
        except TypeError as exc:
            raise InvalidArgument(f"{at}: {type(value).__name__}: {exc}") from exc
    for base, plain in _SUBCLASSES:
        if isinstance(value, base):
            return plain(value)
    raise InvalidArgument(f"{at}: {type(value).__name__} is not a JSON value or bytes")


# Enum members and the like: what they are without their subclass.
_SUBCLASSES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (dict, dict),
    (list, list),
    (tuple, list),
)


def _restore(value: object) -> object:
    """The decoded value with its tags taken off, in place: one frame of the stack per level."""
    if type(value) is list:
        for at, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[at] = _restore(item)
    elif type(value) is dict:
        if len(value) == 1:
            ((key, item),) = value.items()
            if key == _TAG:
                return _tagged_bytes(item)
            if key.endswith(_TAG) and not key.removesuffix(_TAG).strip("$"):
                return {key[1:]: _restore(item)}
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                value[key] = _restore(item)
    return value


def _tagged_bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error) as exc:
        raise Serialization("stored value holds damaged bytes") from exc

"""The rules for names, keys, tags, branches and namespaces: 1 to 1024 UTF-8 bytes, no NUL."""

from __future__ import annotations

from uuid import UUID

import uuid_utils

from holdfast.errors import InvalidArgument

MAX_NAME_BYTES = 1024
_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_AFTER_SURROGATES = 0xE000
_LAST_CODE_POINT = 0x10FFFF
_ABOVE_ALL_NAMES = chr(_LAST_CODE_POINT) * (MAX_NAME_BYTES // 4 + 1)


def is_plain(name: object) -> bool:
    """True for a legal name of printable ASCII, as nearly all are."""
    return (
        type(name) is str
        and name.isascii()
        and name.isprintable()
        and 0 < len(name) <= MAX_NAME_BYTES
    )


def check_name(name: str, *, what: str) -> str:
    """The name itself, when it is a legal one; `what` is how an error calls it."""
    if is_plain(name):
        return name
    _check_text(name, what)
    if not name:
        raise InvalidArgument(f"{what}: must not be empty")
    return name


def check_prefix(prefix: str) -> str:
    """The prefix itself; unlike a name it may be empty."""
    _check_text(prefix, "prefix")
    return prefix


def prefix_end(prefix: str) -> str:
    """The smallest text above every legal name that starts with the prefix, in byte order.

    UTF-8 sorts by code point, so raising the last code point that can be raised is
    enough: "ab" gives "ac".
    """
    for at in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[at])
        if point < _LAST_CODE_POINT:
            above = _FIRST_AFTER_SURROGATES if point == _LAST_BEFORE_SURROGATES else point + 1
            return prefix[:at] + chr(above)
    return _ABOVE_ALL_NAMES


def next_name(after: str | None) -> str:
    """The smallest legal name above `after`: one bound, which every engine's index can use."""
    return after + "\x01" if after else ""


def operation_id(op_id: UUID | str | None) -> bytes:
    """The operation id's 16 bytes; a new UUIDv7 when the caller gave none."""
    if op_id is None:
        return uuid_utils.uuid7().bytes
    if isinstance(op_id, UUID | uuid_utils.UUID):
        return op_id.bytes
    if not isinstance(op_id, str):
        raise InvalidArgument(f"op_id: wanted a UUID, found {type(op_id).__name__}")
    try:
        return UUID(op_id).bytes
    except ValueError:
        raise InvalidArgument(f"op_id: wanted a UUID, found {op_id[:40]!r}") from None


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: wanted text, found {type(text).__name__}")
    size = _utf8_size(text, what)
    if size > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"{what} {text[:40]!r}…: {size} bytes, at most {MAX_NAME_BYTES} are allowed"
        )
    if "\0" in text:
        raise InvalidArgument(f"{what} {text[:40]!r}: holds a NUL")


def _utf8_size(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidArgument(f"{what}: holds a lone surrogate, which is not UTF-8") from exc

"""Records as they are kept, read: see keys.py."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.redis.keys import META
from holdfast.backends.redis.protocol import Reply
from holdfast.facets.records import Fields, StoredRecord

_OP_BYTES = 16


class Kept(NamedTuple):
    """A record as it is kept; `stored` is None if it is not there, or not any more."""

    stored: StoredRecord | None
    number: int  # of its newest change


def whole(now_us: int, flat: list[bytes]) -> Kept:
    """The record whose fields and values, one after the other, are these."""
    names = iter(flat)
    found = dict(zip(names, names, strict=True))
    meta = found.pop(META, None)
    return _seen(now_us, meta, {name.decode(): value for name, value in found.items()})


def read_kept(now_us: int, reply: list[Reply], fields: tuple[str, ...] | None) -> Kept:
    """The record that HGETALL, or with `fields` HMGET of ours and these, has given."""
    if fields is None:
        return whole(now_us, reply)
    meta, *values = reply
    found = {field: value for field, value in zip(fields, values, strict=True) if value is not None}
    return _seen(now_us, meta, found)


def _seen(now_us: int, meta: bytes | None, fields: Fields) -> Kept:
    if meta is None:
        return Kept(None, 0)
    expires, number = _parsed(meta[_OP_BYTES:])
    if expires and expires <= now_us:  # a deleted one has expired long ago
        return Kept(None, number)
    return Kept(StoredRecord(fields, expires - now_us if expires else None), number)


def _parsed(meta: bytes) -> tuple[int, int]:
    """When the record expires, 0 for never, and the number of its last change."""
    if b";" in meta:
        expires, _, _, number = meta.split(b";")
    else:  # written before fields were counted
        _, expires, number = meta.split(b":")
    return int(expires), int(number)

"""Records as they are kept, read: see keys.py."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.backends.redis.keys import META
from holdfast.backends.redis.protocol import Reply
from holdfast.errors import Corrupt
from holdfast.facets.records import Fields, StoredRecord

_OP_BYTES = 16
_unpack = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class Kept(NamedTuple):
    """A record as it is kept; `stored` is None if it is not there, or not any more."""

    stored: StoredRecord | None
    number: int  # of its newest change


def whole(now_us: int, flat: list[bytes]) -> Kept:
    """The record whose fields and values, one after the other, are these."""
    names = iter(flat)
    found = dict(zip(names, names, strict=True))
    meta = found.pop(META, None)
    return _seen(now_us, meta, {name.decode(): value for name, value in found.items()}, None)


def read_kept(now_us: int, reply: list[Reply], fields: tuple[str, ...] | None) -> Kept:
    """The record that HGETALL, or with `fields` HMGET of ours and these, has given."""
    if fields is None:
        return whole(now_us, reply)
    meta, *values = reply
    found = {field: value for field, value in zip(fields, values, strict=True) if value is not None}
    return _seen(now_us, meta, found, fields)


def _seen(now_us: int, meta: bytes | None, spread: Fields, wanted: tuple[str, ...] | None) -> Kept:
    """The record with what is ours of it, its fields that are the hash's, and which to show."""
    if meta is None:
        return Kept(None, 0)
    ours = meta[_OP_BYTES:]
    packed: list[bytes] = []  # the fields, if they are
    try:
        if b";" in ours:
            expires, _, _, number, *packed = ours.split(b";", 4)
        else:  # written before fields were counted
            _, expires, number = ours.split(b":")
        expires_us = int(expires)
        if expires_us and expires_us <= now_us:  # a deleted one has expired long ago
            return Kept(None, int(number))
        fields = _unpack(packed[0]) if packed else spread
    except (msgspec.DecodeError, ValueError) as exc:
        raise Corrupt(f"the fields of a record cannot be read: {exc}") from exc
    if packed and wanted is not None:
        fields = {field: fields[field] for field in wanted if field in fields}
    return Kept(StoredRecord(fields, expires_us - now_us if expires_us else None), int(number))

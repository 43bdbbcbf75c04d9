"""A write of a record as write_records.lua takes it: a row of values in MessagePack.

Lua reads that in C: a word of the protocol for each field took the server twice as long. The usual
put, some fields in place of whatever was there, has all of them in one value, which nobody reads
before somebody wants them: see keys.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facets.records import NO_TTL, RecordWrite, Stamp, asked_ago_us

MOST_WORDS = 5000
"""What a call out of Lua takes; see write_records.lua."""

MOST_PACKED = 2000
"""Bytes of fields that a put leaves packed: who reads or changes one of them moves all of them."""

_pack = msgspec.msgpack.Encoder().encode
_USUAL = _OTHERS_GO = b"\xc3"
_OTHERS_STAY, _NOTHING_MORE = b"\xc2", b"\xc0"
_FOR_EVER = _pack(NO_TTL)
_FIXED, _SHORT, _MIDDLE, _LONG = 0xA0, b"\xd9", b"\xda", b"\xdb"
_LONGEST_FIXED, _LONGEST_SHORT = 31, 255

Flat = list[object]


class _Heads(dict[int, bytes]):
    """What comes before a text of so many bytes. The server's Lua knows no binary type."""

    def __missing__(self, size: int) -> bytes:
        return _LONG + size.to_bytes(4, "big")


def _head(size: int) -> bytes:
    if size <= _LONGEST_FIXED:
        return bytes([_FIXED + size])
    if size <= _LONGEST_SHORT:
        return _SHORT + bytes([size])
    return _MIDDLE + size.to_bytes(2, "big")


_heads = _Heads((size, _head(size)) for size in range(MOST_PACKED + 1))


def pack_write(write: RecordWrite, seen: int, *, repeat: bool) -> bytes:
    """The row. `seen` is the number of a change that was there before the caller asked."""
    key, op = write.key[1].encode(), write.op_id
    ttl = _FOR_EVER if write.ttl_us == NO_TTL else _pack(write.ttl_us)
    if write.blind and not repeat:
        fields = _pack(write.set)
        if len(fields) <= MOST_PACKED:
            return b"".join(
                (
                    _USUAL, _heads[len(key)], key, _heads[len(op)], op, ttl,
                    _heads[len(fields)], fields,
                )
            )  # fmt: skip
    row = [_heads[len(key)], key, _heads[len(op)], op, ttl]
    row.append(_OTHERS_GO if write.replace else _OTHERS_STAY)
    words, stamped, gone = _sorted(write.set)
    few = [
        write.must_exist or None,
        [*write.expect] or None,
        [value is not None and _text(value) for value in write.expect.values()] or None,
        stamped or None,
        gone or None,
        *((asked_ago_us(write), seen) if repeat else (None, None)),
        words[MOST_WORDS:] or None,
    ]
    row.append(_NOTHING_MORE if few.count(None) == len(few) else _pack(few))
    row += map(_pack, words[:MOST_WORDS])
    return b"".join(row)


def _sorted(settings: Mapping[str, bytes | Stamp | None]) -> tuple[Flat, Flat, Flat]:
    """The fields with their values, those that are stamped with how far off, those that go."""
    words: Flat = []
    stamped: Flat = []
    gone: Flat = []
    for field, value in settings.items():
        if isinstance(value, bytes):
            words += (field, _text(value))
        elif value is None:
            gone.append(field)
        else:
            stamped += (field, value.after_us)
    return words, stamped, gone


def _text(value: bytes) -> msgspec.Raw:
    return msgspec.Raw(_heads[len(value)] + value)

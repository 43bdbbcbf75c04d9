"""References: the text that a record keeps instead of the payload.

    claim:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:3

The digest is the object's name, so a reference cannot lead to anything but an object of ours;
digest and length together say what its content must be.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from holdfast.errors import Corrupt, InvalidArgument

_REF = re.compile(r"claim:sha256:([0-9a-f]{64}):(0|[1-9][0-9]{0,18})")
_NAME = re.compile(r"[0-9a-f]{64}")
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial")
_SHOWN_CHARS = 120


class Ref(NamedTuple):
    """What a reference says of its object."""

    digest: str
    length: int

    def __str__(self) -> str:
        return f"claim:sha256:{self.digest}:{self.length}"

    def check(self, found: Ref) -> None:
        """Raise Corrupt unless the content that was found is the one that is meant."""
        if found.length != self.length:
            raise Corrupt(f"{self}: found {found.length} bytes")
        if found != self:
            raise Corrupt(f"{self}: found content with the SHA-256 {found.digest}")


class Meter:
    """Takes content block by block and tells its reference."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.length = 0

    def add(self, block: bytes) -> bytes:
        """The block itself, counted."""
        self._hash.update(block)
        self.length += len(block)
        return block

    def ref(self) -> Ref:
        """The reference of what was taken so far."""
        return Ref(self._hash.hexdigest(), self.length)


def ref_of(data: bytes) -> Ref:
    """The reference of the whole content."""
    meter = Meter()
    meter.add(data)
    return meter.ref()


def parse(ref: str | bytes) -> Ref:
    """The reference, from its text or from the bytes that a record gives back."""
    if not isinstance(ref, str | bytes):
        raise InvalidArgument(f"claim check: wanted a reference, found {type(ref).__name__}")
    text = ref.decode(errors="replace") if isinstance(ref, bytes) else ref
    found = _REF.fullmatch(text)
    if found is None:
        shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
        raise InvalidArgument(
            f"claim check: wanted a reference like claim:sha256:…:3, found {shown!r}"
        )
    return Ref(found[1], int(found[2]))


def is_ours(name: str) -> bool:
    """Whether the name is one that a claim check gives, to an object or to a part of one."""
    return bool(_NAME.fullmatch(name) or _PARTIAL.fullmatch(name))

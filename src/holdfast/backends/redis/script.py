"""The Lua scripts, read from `scripts/` and put together.

A line `--# parts clock record` stands for those files of `scripts/parts/`, in that order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from holdfast.facets.records import OP_MEMORY_US

_FOLDER = files(__package__) / "scripts"
_PARTS = re.compile(r"^ *--# parts (.*)$", re.MULTILINE)


class Script:
    """A script, and how it is called."""

    def __init__(self, name: str) -> None:
        self._sha = _all()[name]

    def call(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> list[bytes]:
        """The command that runs it."""
        return [b"EVALSHA", self._sha, b"%d" % len(keys), *keys, *arguments]


@cache
def text_of(sha: bytes) -> bytes:
    """The script that the server knows by the digest."""
    (name,) = [name for name, known in _all().items() if known == sha]
    return _text(name)


@cache
def _all() -> dict[str, bytes]:
    """The digests of all scripts, by which Redis calls them; nothing here is secret."""
    names = [file.name.removesuffix(".lua") for file in _FOLDER.iterdir() if file.is_file()]
    return {
        name: hashlib.sha1(_text(name), usedforsecurity=False).hexdigest().encode()
        for name in names
    }


@cache
def _text(name: str) -> bytes:
    def joined(match: re.Match[str]) -> str:
        parts = [_read(f"parts/{part}.lua") for part in match[1].split()]
        return "\n".join([f"local OP_MEMORY_US = {OP_MEMORY_US}", *parts])

    return _PARTS.sub(joined, _read(f"{name}.lua")).encode()


def _read(path: str) -> str:
    return (_FOLDER / path).read_text("utf-8")

"""Places for a claim check, each with a second way to look at its objects."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec

from holdfast import AsyncClaimCheck, ClaimCheck

PLACES = ("folder", "memory", "s3")
COLOURS = ("blocking", "async")


@dataclass
class Site:
    """A URL for a claim check, and its objects as fsspec sees them."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def claims(self) -> ClaimCheck:
        return ClaimCheck(self.url, **self.options)

    def start(self, role: str, *arguments: object) -> subprocess.Popen[str]:
        """A process of worker.py on this site."""
        worker = str(Path(__file__).with_name("worker.py"))
        words = [json.dumps(word) for word in (self.options, *arguments)]
        return subprocess.Popen(
            [sys.executable, "-W", "error", worker, role, self.url, *words],
            stdout=subprocess.PIPE,
            text=True,
        )

    def names(self) -> list[str]:
        """The objects and whatever else lies there, but for the folder's lock."""
        names = [path.rpartition("/")[2] for path in self._fs.find(self.url)]
        return sorted(name for name in names if name != ".holdfast.lock")

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(f"{self.url}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(f"{self.url}/{name}", data)

    @property
    def _fs(self) -> Any:  # noqa: ANN401 - fsspec is not typed
        found, _ = fsspec.url_to_fs(self.url, use_listings_cache=False, **self.options)
        return found


class Awaited:
    """An AsyncClaimCheck that is called like a ClaimCheck."""

    def __init__(self, claims: AsyncClaimCheck, runner: asyncio.Runner) -> None:
        self.claims = claims
        self.runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.claims, name)
        return lambda *args, **kwargs: self.runner.run(method(*args, **kwargs))


Claims = ClaimCheck | Awaited


def blocks_of(claims: Claims, ref: str) -> list[bytes]:
    """What `open` gives, block by block."""
    if isinstance(claims, ClaimCheck):
        with claims.open(ref) as file:
            return list(iter(lambda: file.read(1 << 20), b""))

    async def read() -> list[bytes]:
        async with claims.claims.open(ref) as reader:
            return [block async for block in reader]

    return claims.runner.run(read())


def told(process: subprocess.Popen[str]) -> list[str]:
    """The lines that a process has said when it ended well."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.splitlines()

"""URLs, what needs which package, and the colours."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

import holdfast
from holdfast import AsyncClaimCheck, ClaimCheck, InvalidArgument

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{package}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Without())
import holdfast
try:
    claims = holdfast.{kind}("{url}")
    print(claims.get(claims.put(b"abc")))
except holdfast.StoreError as exc:
    print(exc.code, exc)
"""


def without(package: str, url: str, cwd: Path, kind: str = "ClaimCheck") -> str:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package=package, url=url, kind=kind)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("kind", ["ClaimCheck", "AsyncClaimCheck"])
def test_missing_fsspec_is_named_with_the_command_that_installs_it(
    tmp_path: Path, kind: str
) -> None:
    told = without("fsspec", "s3://bucket/x", tmp_path, kind)
    assert told.startswith("invalid_state claim check at s3://bucket/x: needs fsspec")
    assert "pip install 'holdfast[claimcheck]'" in told


def test_missing_s3fs_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    told = without("s3fs", "s3://bucket/x", tmp_path)
    assert told.startswith("invalid_state claim check at s3://bucket/x: needs one more package")
    assert "pip install s3fs" in told


def test_folder_needs_no_package(tmp_path: Path) -> None:
    assert without("fsspec", f"file://{tmp_path}/claims", tmp_path) == "b'abc'\n"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense://x", "nonsense"),
        ("file://relative", "three slashes"),
        ("simplecache::memory://x", "chained"),
        ("memory://x::file:///y", "chained"),
    ],
)
def test_bad_url_is_refused(url: str, message: str) -> None:
    for kind in (ClaimCheck, AsyncClaimCheck):
        with pytest.raises(InvalidArgument, match=message):
            kind(url)


@pytest.mark.parametrize("put_timeout", [0, -1, "1", None, float("inf")])
def test_bad_timeout_is_refused(put_timeout: float) -> None:
    for kind in (ClaimCheck, AsyncClaimCheck):
        with pytest.raises(InvalidArgument, match="put_timeout"):
            kind("memory://x", put_timeout=put_timeout)


def test_password_of_a_url_is_not_shown() -> None:
    assert repr(ClaimCheck("memory://me:secret@host/x")) == "ClaimCheck('memory://***@host/x')"
    shown = repr(AsyncClaimCheck("memory://me:secret@host/x"))
    assert shown == "AsyncClaimCheck('memory://***@host/x')"
    with pytest.raises(InvalidArgument) as caught:
        ClaimCheck("nonsense://me:secret@host/x")
    assert "secret" not in str(caught.value)


def test_every_method_has_both_colours() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(ClaimCheck) == public(AsyncClaimCheck)


def test_loop_goes_on_while_content_is_read_and_stored() -> None:
    turned = threading.Event()

    class Slow(io.RawIOBase):
        """A file that has its content only after the loop has turned."""

        blocks: ClassVar = [b"abc", b""]

        def read(self, size: int = -1, /) -> bytes:
            del size
            assert turned.wait(60), "the loop stood still"
            return self.blocks.pop(0)

    async def main() -> bytes:
        claims = AsyncClaimCheck("memory://loop")
        putting = asyncio.create_task(claims.put_file(Slow()))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(turned.set)
        return await claims.get(await putting)

    assert asyncio.run(main()) == b"abc"


def test_one_claim_check_serves_several_loops() -> None:
    claims = AsyncClaimCheck("memory://loops")
    ref = asyncio.run(claims.put(b"abc"))
    assert asyncio.run(claims.get(ref)) == b"abc"


def test_many_tasks_at_once(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        claims = AsyncClaimCheck(tmp_path)
        refs = await asyncio.gather(*(claims.put(b"%d" % (n % 7)) for n in range(100)))
        return await asyncio.gather(*map(claims.get, refs))

    assert asyncio.run(main()) == [b"%d" % (n % 7) for n in range(100)]

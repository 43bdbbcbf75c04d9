"""Extras stay extra: the core works without them, and says which one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "psycopg":
            raise {error}
        return None

sys.meta_path.insert(0, Without())
"""
MISSING = WITHOUT.format(error="ModuleNotFoundError(f'No module named {name!r}', name=name)")
# What psycopg says of itself when it finds no libpq.
BROKEN = WITHOUT.format(error="ImportError('no pq wrapper available')")
OPEN = "holdfast.open('postgresql://127.0.0.1:1/app')"
OPEN_ASYNC = """
import asyncio
async def main():
    await holdfast.open_async('postgresql://127.0.0.1:1/app')
asyncio.run(main())
"""


def python(code: str, cwd: Path) -> str:
    """What the code prints, run in an interpreter of its own."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("hook", [MISSING, BROKEN], ids=["missing", "without libpq"])
@pytest.mark.parametrize("opening", [OPEN, OPEN_ASYNC], ids=["blocking", "async"])
def test_missing_driver_is_named_with_the_command_that_installs_it(
    tmp_path: Path, hook: str, opening: str
) -> None:
    body = "\n    ".join(opening.strip().splitlines())
    code = f"""{hook}
import holdfast
try:
    {body}
except holdfast.StoreError as exc:
    print(exc.code, exc)
"""
    told = python(code, tmp_path)
    assert told.startswith("invalid_state PostgreSQL needs")
    assert "psycopg" in told
    assert "pip install 'holdfast[postgres]'" in told


USE_SQLITE = """
import asyncio, sys
import holdfast

with holdfast.open("sqlite:///here.db") as store:
    store.cells.set("x", b"1")
    assert store.cells.get("x") == b"1"

async def main():
    async with holdfast.open_async("sqlite://:memory:") as store:
        await store.cells.set("x", 1)

asyncio.run(main())
"""


def test_sqlite_works_without_the_driver_of_postgres(tmp_path: Path) -> None:
    python(f"{MISSING}{USE_SQLITE}", tmp_path)
    assert (tmp_path / "here.db").exists()


def test_sqlite_store_imports_nothing_that_is_extra(tmp_path: Path) -> None:
    told = python(f"{USE_SQLITE}\nprint(*sorted(sys.modules))", tmp_path)
    packages = {module.partition(".")[0] for module in told.split()}
    extra = {"psycopg", "psycopg_pool", "rich", "pytest", "hypothesis", "uvloop", "bench", "tests"}
    extra |= {"fsspec", "s3fs"}
    assert not packages & extra
    assert {"holdfast", "apsw"} <= packages
    ours = {module for module in told.split() if module.startswith("holdfast.")}
    assert not {
        module for module in ours if module.startswith(("holdfast.testing", "holdfast.demo"))
    }
    assert not {module for module in ours if module.startswith("holdfast.backends.postgres")}

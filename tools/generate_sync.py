"""Writes src/holdfast/sync/ from src/holdfast/aio/, or with --check says whether it is current.

The facades in aio/ await either each other, which in blocking code is a plain
call, or the coroutine core, which blocking code runs with `run(...)`. So:

    await self.get(name)            ->  self.get(name)
    await self._cells.get(keys)     ->  run(self._cells.get(keys))
    await self._store.now()         ->  self._store.now() other facades, by their names
    await work(tx)                  ->  work(tx)          the caller's own, blocking too
    async def / with / for          ->  def / with / for
    AsyncCells, holdfast.aio, …     ->  Cells, holdfast.sync, …

Edits are made to the source text at the positions that the syntax tree gives,
so docstrings and comments stay. Run it after every change to aio/.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/holdfast/aio"
TARGET = ROOT / "src/holdfast/sync"
HEADER = (
    "# GENERATED from holdfast/aio/{name} by tools/generate_sync.py: change that file instead.\n"
)
IMPORT = "from holdfast.runtime.blocking import run\n"
WORDS = {
    r"\bAsync(?=[A-Z])": "",
    r"\bholdfast\.aio\b": "holdfast.sync",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\b__aiter__\b": "__iter__",
    r"\b__anext__\b": "__next__",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\bopen_async\b": "open",
    r"\bAwaitable\[(\w+)\]": r"\1",
    r"  # noqa: ASYNC\d+[^\n]*": "",
    r"\basync with\b": "with",
    r"\basync for\b": "for",
    r"\basync def\b": "def",
    r"\basyncio\b": "blocking code",
}


class Edit(NamedTuple):
    """Replace source[start:end] by text."""

    start: int
    end: int
    text: str


def convert(source: str, name: str) -> str:
    """The blocking twin of one module."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line.encode()))
    edits: list[Edit] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Await):
            start = lines[node.lineno - 1] + node.col_offset
            inner = lines[node.value.lineno - 1] + node.value.col_offset
            end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            if _awaits_facade(node.value):
                edits.append(Edit(start, inner, ""))
            else:
                edits += [Edit(start, inner, "run("), Edit(end, end, ")")]
    text = _apply(source, edits)
    uses_run = len(text) != len(source)
    # Examples in docstrings are code for people: there, awaiting is simply calling.
    text = re.sub(r"\bawait ", "", text)
    for word, replacement in WORDS.items():
        text = re.sub(word, replacement, text)
    if uses_run and "run(" in text:
        text = _with_import(text)
    return HEADER.format(name=name) + text


def _awaits_facade(value: ast.expr) -> bool:
    """True for `self.method(...)` of the facade itself, and for a function of the caller's."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr)):
            return attr in _FACADE_METHODS
        case ast.Call(func=ast.Name()):
            return True
        case ast.Call(func=ast.Attribute(value=owner)):
            chain = ast.unparse(owner).removeprefix("self.").split(".")
            return chain[0] in _FACADES
    return False


# What a facade that is made of others calls them.
_FACADES = {
    "_home",
    "_store",
    "_tasks",
    "_consumer",
    "_shards",
    "feed",
    "records",
    "transport",
    "tx",
}

_FACADE_METHODS: set[str] = set()


def _collect_methods() -> None:
    for file in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef):
                _FACADE_METHODS.add(node.name)


def _apply(source: str, edits: list[Edit]) -> str:
    data = source.encode()
    for edit in sorted(edits, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()


def _with_import(text: str) -> str:
    """Put the import of `run` before the first of our own imports; the linter sorts them."""
    at = text.index("\nfrom holdfast") + 1
    return text[:at] + IMPORT + text[at:]


def _formatted(text: str, name: str) -> str:
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", f"{TARGET / name}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return text


def main() -> int:
    """Write the files, or compare them with --check; 1 when they differ."""
    _collect_methods()
    stale = []
    for file in sorted(SOURCE.glob("*.py")):
        wanted = _formatted(convert(file.read_text(encoding="utf-8"), file.name), file.name)
        target = TARGET / file.name
        if target.exists() and target.read_text(encoding="utf-8") == wanted:
            continue
        stale.append(file.name)
        if "--check" not in sys.argv:
            target.write_text(wanted, encoding="utf-8")
            print(f"wrote {target.relative_to(ROOT)}")
    extra = {file.name for file in TARGET.glob("*.py")} - {
        file.name for file in SOURCE.glob("*.py")
    }
    if "--check" in sys.argv and (stale or extra):
        print(f"sync/ is not what aio/ says: {sorted(extra.union(stale))}; run make generate")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

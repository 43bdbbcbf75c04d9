"""The documentation is true: its examples run, its tables are complete, its links lead somewhere.

The Python blocks of a page run in order, as one program, in an empty folder. A block whose
first line is `# not run` is left out. Two comments at the end of a line are checked:

    store.cells.set("x", "a")  # -> 1
    store.cells.set("", "a")  # raises InvalidArgument
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pytest

import holdfast
from holdfast import AsyncStore, StoreConfig, StoreError
from holdfast.aio.cells import AsyncCells
from holdfast.aio.records import AsyncRecords

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TUTORIALS = [
    "quickstart",
    "concepts",
    "cells",
    "records",
    "transactions",
    "claim-check",
    "eventsourcing",
    "daemons",
    "events",
    "events-export",
    "configuration",
    "errors",
    "operations",
    "testing",
]

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_FENCE = re.compile(r"^[ \t>]*```(\w*).*?^[ \t>]*```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^( *)((?:\w+ = )?)(\S.*?)  # -> (.+)$", re.MULTILINE)
_RAISES = re.compile(r"^( *)(\S.*?)  # raises (\w+)$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """One example; `line` is where its code begins in the page."""

    line: int
    code: str


def blocks(text: str) -> list[Block]:
    found = [
        Block(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in _FENCE.finditer(text)
    ]
    return [block for block in found if not block.code.startswith("# not run")]


def run_page(text: str, name: str) -> int:
    """How many blocks ran; AssertionError where a comment says what is not so."""
    page = ModuleType(name)
    vars(page).update(_shown=_shown, _raises=_raises)
    found = blocks(text)
    # A module like others: libraries find the classes of an example by its name.
    with patch.dict(sys.modules, {name: page}):
        for block in found:
            code = _compiled(block, name)
            outcome = eval(code, vars(page))  # noqa: S307 - our own documentation
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(cast("Coroutine[Any, Any, None]", outcome))
    return len(found)


def _compiled(block: Block, name: str) -> CodeType:
    # Each check stays on its line, so that a traceback points into the page.
    source = _SHOWN.sub(lambda m: f"{m[1]}{m[2]}_shown({m[3]}, {m[4]!r})", block.code)
    source = _RAISES.sub(lambda m: f"{m[1]}with _raises({m[3]!r}): {m[2]}", source)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    lines = "\n" * (block.line - 1) + source
    return cast("CodeType", compile(lines, name, "exec", flags=flags, dont_inherit=True))


def _shown(found: object, wanted: str) -> object:
    assert repr(found) == wanted
    return found


def _raises(kind: str) -> AbstractContextManager[object]:
    return pytest.raises(getattr(holdfast, kind))


def broken_links(page: Path, text: str) -> list[str]:
    prose = _ANY_FENCE.sub("", text)
    return [link for link in _LINK.findall(prose) if not _leads_somewhere(page, text, link)]


def _leads_somewhere(page: Path, text: str, link: str) -> bool:
    if "://" in link or link.startswith("mailto:"):
        return True
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    if not anchor:
        return True
    there = text if target == page else target.read_text(encoding="utf-8")
    return anchor in {_slug(heading) for heading in _HEADING.findall(there)}


def _slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table_rows(page: str) -> Iterator[list[str]]:
    """The cells of every table row whose first cell is `code`, without its quotes."""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, *rest = (cell.strip() for cell in line.strip("|").split(" | "))
            yield [first.strip("` "), *rest]


def public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


# Examples


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_page(page.read_text(encoding="utf-8"), str(page))
    teaches = page.parent == DOCS and page.stem in TUTORIALS
    assert ran or not teaches, "a page that teaches has examples that run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_of_the_page_is_found(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = [language for language in _ANY_FENCE.findall(text) if language.startswith("py")]
    assert len(fences) == len(_FENCE.findall(text)), "an indented or misnamed python block"


@pytest.mark.parametrize(
    "code",
    [
        "1 + 1  # -> 3",
        "x = [1, 2]  # -> [1]",
        "undefined",
        "await nothing()",
        "holdfast.StoreConfig(commit='thread')  # raises InvalidArgument",
        "raise holdfast.Conflict('x')  # raises NotFound",
    ],
)
def test_wrong_example_is_found(code: str) -> None:
    with pytest.raises((AssertionError, NameError, StoreError, pytest.fail.Exception)):
        run_page(f"# Page\n\n```python\nimport holdfast\n{code}\n```\n", "planted")


def test_examples_share_names_and_may_await() -> None:
    text = (
        "```python\nimport asyncio\nx = 1\n```\n```python\nawait asyncio.sleep(0)\nx  # -> 1\n```\n"
    )
    assert run_page(text + "```python\n# not run\nundefined\n```\n", "planted") == 2


# Links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_broken_link_is_found() -> None:
    text = "# One\n[a](cells.md) [b](none.md) [c](#one) [d](#two) [e](cells.md#none) [f](https://x)"
    assert broken_links(DOCS / "index.md", text) == ["none.md", "#two", "cells.md#none"]


def test_index_leads_to_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    missing = [str(page) for page in DOCS.rglob("*.md") if page != index and page not in linked]
    assert missing == []


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_page_opens_with_a_title_and_says_what_it_is_for(page: Path) -> None:
    title, blank, opening, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert not opening.startswith(("#", "|", "```"))


# What must be told


def test_every_setting_is_told_with_its_default() -> None:
    told = {row[0]: row[1].strip("`") for row in table_rows("configuration.md")}
    defaults = zip(StoreConfig.__struct_fields__, StoreConfig.__struct_defaults__, strict=True)
    wanted = {name: _as_option(default) for name, default in defaults}
    assert {name: told.get(name) for name in wanted} == wanted


def _as_option(default: object) -> str:
    """The default as a URL would spell it."""
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_every_error_is_told_with_its_code() -> None:
    rows = [row for row in table_rows("errors.md") if len(row) == 5]
    told = {name: (code.strip("`"), retryable) for name, code, retryable, *_ in rows}
    kinds: list[type[StoreError]] = [StoreError, *StoreError.__subclasses__()]
    wanted = {kind.__name__: (kind.code, "yes" if kind.retryable else "no") for kind in kinds}
    assert {name: told.get(name) for name in wanted} == wanted


def test_every_make_target_is_told() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets is not None
    told = {row[0] for row in table_rows("testing.md")}
    assert {f"make {target}" for target in targets[1].split()} - told == set()


@pytest.mark.parametrize(("page", "facet"), [("cells", AsyncCells), ("records", AsyncRecords)])
def test_every_operation_of_the_facet_is_told(page: str, facet: type) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    headings = " ".join(_HEADING.findall(text))
    assert [name for name in public(facet) if f"`{name}(" not in headings] == []


def test_every_operation_of_the_store_is_told() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert [name for name in public(AsyncStore) if f"store.{name}" not in text] == []


def test_everything_exported_is_told() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    names = holdfast.__all__
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []

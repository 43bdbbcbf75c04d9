"""Branches that go while somebody looks at them."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.runtime.blocking import run


def test_what_a_freed_branch_saw_is_not_found() -> None:
    with holdfast.open("sqlite://:memory:") as store:
        store.branches.fork("b")
        store.branches.fork("c", source="b")
        lineages = store._backend.cells.lineages  # type: ignore[attr-defined]  # noqa: SLF001
        seen = run(lineages.of("default", "c"))
        assert run(lineages.at(*seen[0])) == seen
        store.branches.delete("c")  # nobody sees it, so it is freed at once
        with pytest.raises(holdfast.NotFound, match="meanwhile"):
            run(lineages.at(*seen[0]))

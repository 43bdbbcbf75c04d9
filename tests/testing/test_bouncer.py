"""The harness around PgBouncer says plainly when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing import bouncer
from holdfast.testing.bouncer import MISSING, PgBouncer, find_pgbouncer, need_pgbouncer
from holdfast.testing.servers import ServerError


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without PgBouncer."""
    monkeypatch.delenv("HOLDFAST_PGBOUNCER", raising=False)
    monkeypatch.delenv("HOLDFAST_NEED_PGBOUNCER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bouncer, "_SBIN", str(tmp_path))
    return monkeypatch


def test_missing_program_skips_the_module_with_the_reason(nowhere: pytest.MonkeyPatch) -> None:
    del nowhere
    with pytest.raises(pytest.skip.Exception, match="there is no pgbouncer on this machine"):
        need_pgbouncer()


def test_missing_program_fails_where_it_is_needed(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.setenv("HOLDFAST_NEED_PGBOUNCER", "1")
    with pytest.raises(pytest.fail.Exception, match="there is no pgbouncer on this machine"):
        need_pgbouncer()


def test_missing_program_cannot_be_started(nowhere: pytest.MonkeyPatch) -> None:
    del nowhere
    with pytest.raises(ServerError) as caught, PgBouncer(5432):
        pass
    assert str(caught.value) == MISSING


def test_path_can_be_given(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.setenv("HOLDFAST_PGBOUNCER", "/somewhere/pgbouncer")
    assert find_pgbouncer() == "/somewhere/pgbouncer"

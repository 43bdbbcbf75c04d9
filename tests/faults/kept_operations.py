"""For how long operations on groups are known, for each engine."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from holdfast import Store
from holdfast.facets.transport import Operation
from holdfast.runtime.blocking import run

DAY = 24 * 3600
_SHORT = 2  # seconds
_PATIENCE = 30.0


def move_clock(store: Store, secs: float) -> None:
    """Let so much time pass by the store's clock."""
    run(store._backend.move_clock(round(secs * 1_000_000)))  # noqa: SLF001 - for tests only


def operations_are_known_for_a_day(store: Store) -> None:
    """By the store's clock: on an engine that looks at it."""
    op = uuid4()
    transport = store.transport
    transport.create_group("g", "a")
    assert transport.delete_group("g", op_id=op) is True
    assert transport.create_group("g", "a") is True
    move_clock(store, DAY - 60)
    assert transport.delete_group("g", op_id=op) is True
    assert transport.list_groups() == ["g"]
    move_clock(store, 120)
    assert transport.delete_group("g", op_id=op) is True
    assert transport.list_groups() == []
    # And from then on it is known once more.
    assert transport.create_group("g", "a") is True
    assert transport.delete_group("g", op_id=op) is True
    assert transport.list_groups() == ["g"]
    assert transport.delete_group("g") is True


def operations_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the server itself, when the time is up that it was told."""
    with monkeypatch.context() as shorter:
        shorter.setattr(Operation, "kept_secs", _SHORT)
        op = uuid4()
        begun = time.monotonic()
        transport = store.transport
        transport.create_group("g", "a")
        assert transport.delete_group("g", op_id=op) is True
        assert transport.create_group("g", "a") is True
        while transport.list_groups() == ["g"]:
            assert time.monotonic() < begun + _PATIENCE, "it is known for ever"
            time.sleep(0.1)
            assert transport.delete_group("g", op_id=op) is True
        assert time.monotonic() > begun + _SHORT - 1, "it was never known"
